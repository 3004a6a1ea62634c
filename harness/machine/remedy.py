"""A call brought to another head count: inputs padded, called, outputs cut, all of it in the time, as an engine would do it."""

from __future__ import annotations

from typing import Any

import torch

from harness.contracts import Inputs, Op, Relation
from harness.machine.exchange import collect
from harness.machine.memory import Scratch


class Padded:
    """A provider's call as the law `padheads` varies it. `prepare` pads once; each `run` copies the inputs that have heads into their padded
    buffers, whose other heads stay as they were made, calls, and cuts the outputs into memory of their own."""

    def __init__(self, declared: Op, law: Relation, made: Any) -> None:
        self._declared, self._law, self._made = declared, law, made

    def prepare(self, x: Inputs, scratch: Scratch) -> None:
        """As a provider's."""
        (self._padded,) = self._law.vary(x, {})
        self._x, self._scratch = x, scratch
        groups = int(x.case.point.get("kv_heads", 1))
        pairs = [(vars(self._padded)[name], value) for name, value in vars(x).items() if isinstance(value, torch.Tensor)]
        self._copies = [(first_heads(padded, plain.shape, groups), plain) for padded, plain in pairs if padded.shape != plain.shape]
        self._made.prepare(self._padded, scratch)

    def run(self) -> dict[str, torch.Tensor]:
        """As a provider's."""
        for target, source in self._copies:
            target.copy_(source.reshape(target.shape))
        outputs = collect(self._declared, self._made.run(), self._padded, self._scratch)
        return {name: value.contiguous() for name, value in self._law.back(self._x, [outputs]).items()}


def first_heads(padded: torch.Tensor, shape: torch.Size, groups: int) -> torch.Tensor:
    """The view of a padded tensor in which the elements of a plain one of that shape lie: [..., groups, heads a group, ...], the first
    heads of each group."""
    (axis,) = (place for place, (more, less) in enumerate(zip(padded.shape, shape, strict=True)) if more != less)
    grouped = padded.view(*padded.shape[:axis], groups, padded.shape[axis] // groups, *padded.shape[axis + 1 :])
    return grouped.narrow(axis + 1, 0, shape[axis] // groups)
