"""Providers that write the wrong memory, or not all of the right one."""

from __future__ import annotations

import os
from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import fault, right


class _Merge:
    """Right, into buffers of the harness; the faults spoil what it wrote."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x = x
        self.o, self.lse = scratch.output("o", like=x.v_a), scratch.output("lse", like=x.s_a)

    def run(self) -> None:
        for buffer, value in zip((self.o, self.lse), right(self.x), strict=True):
            buffer.copy_(value)
        self.spoil()

    def spoil(self) -> None:
        """What is wrong with it."""


def _around(buffer: torch.Tensor, first: int) -> torch.Tensor:
    """One element of the memory around a contiguous buffer, counted from its start."""
    return buffer.as_strided((1,), (1,), buffer.storage_offset() + first)


@fault("merge_state", "mismatch", "numerics")
class writes_nan(_Merge):
    def spoil(self) -> None:
        self.o[-1, -1, -1] = float("nan")


@fault("merge_state", "mismatch", "unwritten")
class leaves_one_unwritten(_Merge):
    def run(self) -> None:
        last = self.o[-1, -1, -1:].clone()
        super().run()
        self.o[-1, -1, -1:] = last


@fault("merge_state", "mismatch", "unwritten")
class leaves_an_output_unwritten(_Merge):
    def run(self) -> None:
        self.o.copy_(right(self.x)[0])


@fault("top_k_top_p_sample", "mismatch", "unwritten")
class leaves_ids_unwritten:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.ids = x, scratch.output("ids", x.case.batch, x.case.draws, dtype=torch.int32)

    def run(self) -> None:
        self.ids[:-1] = right(self.x)[0][:-1]


@fault("merge_state", "mismatch", "out-of-bounds")
class writes_past_the_end(_Merge):
    def spoil(self) -> None:
        _around(self.o, self.o.numel()).zero_()


@fault("merge_state", "mismatch", "out-of-bounds")
class writes_before_the_start(_Merge):
    def spoil(self) -> None:
        _around(self.o, -1).zero_()


@fault("merge_state", "mismatch", "out-of-bounds")
def writes_past_its_own_allocation(x: Any) -> Any:
    """In memory the provider allocated by itself."""
    o, lse = right(x)
    mine = torch.empty(o.shape, dtype=o.dtype, device=x.device).copy_(o)
    _around(mine, mine.numel()).zero_()
    return mine, lse


@fault("merge_state", "mismatch", "input-changed")
def changes_its_input(x: Any) -> Any:
    answer = right(x)
    x.s_b[-1, -1] += 1
    return answer


@fault("merge_state", "pass")
def changes_defaults(x: Any) -> Any:
    """Right, but it leaves the process in another state, and prints what is no text."""
    answer = right(x)
    torch.set_default_dtype(torch.float16)
    torch.set_default_device("meta")
    os.write(1, b"\xff\x00junk" * 1000)
    return answer
