"""How far providers of one case lie apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from harness.speed.cliffs import Place


@dataclass(frozen=True)
class Gap:
    """`slow` takes `ratio` times the time of `fast`, the fastest provider of the case in the same mode."""

    slow: Place
    fast: Place
    ratio: float


def gaps(timed: Iterable[Place]) -> list[Gap]:
    """Every provider of a case beside the fastest, the widest gap first; none across modes."""
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Place]] = defaultdict(list)
    for one in timed:
        groups[one.op, one.mode, tuple(sorted((name, str(value)) for name, value in one.point.items()))].append(one)
    found = []
    for cells in groups.values():
        fast = min(cells, key=lambda one: median(one.medians))
        found += [Gap(one, fast, median(one.medians) / median(fast.medians)) for one in cells if one is not fast]
    return sorted(found, key=lambda gap: -gap.ratio)
