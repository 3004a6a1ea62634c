"""Launches summed by kernel: all that is kept of a trace, whatever its size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

_NAMES = 100_000  # kernels that are told apart; a JIT may make more names than memory should hold
_SHAPES = 64  # grids, or input shapes, that are told apart for one kernel
REST = "(kernels past the first 100,000 names)"


class Launch(NamedTuple):
    """One kernel, copy or fill on the device: its name, microseconds, grid in blocks, and input shapes of the operator that launched it,
    where the trace says so."""

    name: str
    us: float
    grid: tuple[int, ...] = ()
    shapes: str = ""


@dataclass
class Summed:
    """All launches of one kernel."""

    us: float = 0.0
    count: int = 0
    grids: Counter[tuple[int, ...]] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)


@dataclass
class Tally:
    """A trace: what ran by kernel name; `platform` is `cuda`, `rocm` or, where nothing says, an empty string."""

    kernels: dict[str, Summed] = field(default_factory=dict)
    platform: str = ""

    @property
    def us(self) -> float:
        """Device time in all, in microseconds; launches that ran side by side count each."""
        return sum(one.us for one in self.kernels.values())


def tally(found: Iterable[Launch], into: Tally | None = None) -> Tally:
    """Sums launches."""
    summed = into or Tally()
    kernels = summed.kernels
    for launch in found:
        name = launch.name
        one = kernels.get(name)
        if one is None:
            one = kernels.setdefault(name if len(kernels) < _NAMES else REST, Summed())
        one.us += launch.us
        one.count += 1
        if launch.grid and (launch.grid in one.grids or len(one.grids) < _SHAPES):
            one.grids[launch.grid] += 1
        if launch.shapes and (launch.shapes in one.shapes or len(one.shapes) < _SHAPES):
            one.shapes[launch.shapes] += 1
    return summed
