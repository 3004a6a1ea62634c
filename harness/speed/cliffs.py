"""Steps between neighbouring shapes: a shape that lies inside its neighbour must not take longer than the neighbour and the padding that
would get it there. Needs no baseline: only what one command timed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

STEP = 1.05  # the ratio that the lower bound must exceed
CONFIDENCE = 0.95
# How a shape gets into its greater neighbour on an axis, all other axes equal. With kv heads fixed, heads grow inside each group.
EMBEDDED = {
    "heads": "heads of zeros, sliced off again",
    "batch": "requests of any kind, left out again",
    "tokens": "tokens of any kind, left out again",
    "new": "queries of any kind, left out again",
    "vocab": "tokens of no probability",
    "length": "keys masked out",
    "prefix": "keys masked out",
    "parts": "states without mass",
}
_VALUES = "values"  # the axis of what stands in the inputs: the work is the same for all, the plain family is what each is held against


@dataclass(frozen=True)
class Place:
    """A cell that was timed: `point` its axes, `medians` of its runs in microseconds, in order: the same place is the same process for
    every cell of one command."""

    cell: str
    op: str
    provider: str
    point: Mapping[str, Any]
    mode: str
    medians: Sequence[float]


@dataclass(frozen=True)
class Cliff:
    """`small` takes `ratio` times what `neighbour` and the pad take, and by the runs at least `bound` times."""

    small: Place
    neighbour: Place
    axis: str
    ratio: float
    bound: float
    pad: float


def cliffs(timed: Iterable[Place], pad: Callable[[Place, Place], float], *, plain: str = "random") -> list[Cliff]:
    """The steepest cliff of each cell that has one, the steepest first.

    `pad` gives the microseconds in which inputs of the first are brought to the shape of the second; `plain` is the family of values
    that others are held against. A cell that was timed in less than two runs makes no claim.
    """
    pairs = [(*pair, pad(pair[0], pair[1])) for pair in neighbours(timed, plain) if min(len(pair[0].medians), len(pair[1].medians)) > 1]
    logs = [_log_ratios(small, neighbour, extra) for small, neighbour, _, extra in pairs]
    usual = _usual_spread(logs)
    steepest: dict[str, Cliff] = {}
    for (small, neighbour, axis, extra), ratios in zip(pairs, logs, strict=True):
        found = Cliff(small, neighbour, axis, math.exp(float(np.mean(ratios))), math.exp(lower(ratios, usual)), extra)
        if found.bound > STEP and (small.cell not in steepest or found.bound > steepest[small.cell].bound):
            steepest[small.cell] = found
    return sorted(steepest.values(), key=lambda cliff: -cliff.bound)


def doubtful(timed: Iterable[Place], pad: Callable[[Place, Place], float], accepted: Callable[[Place], bool], *, plain: str = "random") -> set[str]:
    """The cells at both ends of steps whose ratio is above `STEP` in the runs there are, but for those whose smaller cell is accepted."""
    found: set[str] = set()
    for small, neighbour, _ in neighbours(timed, plain):
        if not accepted(small) and float(np.mean(_log_ratios(small, neighbour, pad(small, neighbour)))) > math.log(STEP):
            found |= {small.cell, neighbour.cell}
    return found


def neighbours(timed: Iterable[Place], plain: str) -> Iterator[tuple[Place, Place, str]]:
    """(small, neighbour, axis) of every two cells of one op, provider and mode that differ on one axis, by which the first lies inside
    the second."""
    groups: dict[tuple[Any, ...], list[Place]] = defaultdict(list)
    for one in timed:
        for axis in (*EMBEDDED, _VALUES):
            if axis in one.point:
                others = tuple(sorted((name, str(value)) for name, value in one.point.items() if name != axis))
                groups[one.op, one.provider, one.mode, axis, others].append(one)
    for (*_, axis, _), cells in groups.items():
        for small in cells:
            for other in cells:
                mine, its = small.point[axis], other.point[axis]
                if (mine != plain and its == plain) if axis == _VALUES else mine < its:
                    yield small, other, axis


def _log_ratios(small: Place, neighbour: Place, pad: float) -> np.ndarray:
    count = min(len(small.medians), len(neighbour.medians))
    return np.log(np.asarray(small.medians[:count]) / (np.asarray(neighbour.medians[:count]) + pad))


def _usual_spread(logs: Sequence[np.ndarray]) -> float:
    """The median, over pairs, of the standard deviation between runs: two runs that agree by chance prove nothing."""
    return float(np.median([np.std(ratios, ddof=1) for ratios in logs])) if logs else 0.0


def lower(ratios: np.ndarray, usual: float) -> float:
    """The one-sided lower bound of the mean by Student's t, from a spread that is at least the usual one."""
    from scipy.stats import t

    spread = max(float(np.std(ratios, ddof=1)), usual)
    return float(np.mean(ratios)) - float(t.ppf(CONFIDENCE, len(ratios) - 1)) * spread / math.sqrt(len(ratios))
