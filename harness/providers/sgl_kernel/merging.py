"""sgl_kernel's compiled merge of two attention states."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements
from harness.providers.resolve import resolve


def _vector_width(case: Case) -> str | None:
    wide = 4 if case.dtype == "fp32" else 8
    return None if case.dim % wide == 0 else f"merge_state_v2 takes a head dimension divisible by {wide} for {case.dtype}"


@implements("merge_state", library="sgl_kernel", platforms={"cuda"}, semantics={"lse": "natural"}, accepts=_vector_width)
class MergeState:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.merge = resolve("sgl_kernel:merge_state_v2")
        self.x = x
        self.out, self.lse = scratch.output("o", like=x.v_a), scratch.output("lse", like=x.s_a)

    def run(self) -> Any:
        self.merge(self.x.v_a, self.x.s_a, self.x.v_b, self.x.s_b, self.out, self.lse)
