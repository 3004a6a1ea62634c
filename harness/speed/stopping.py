"""When the samples of one run are enough: the median is known closely, or they are as noisy as they will stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONVERGED, NOISY, LIMIT = "converged", "noisy", "limit"
_Z = 1.96  # of a 95 % interval
_HALVES = 2.0  # deviations by which the medians of both halves may differ in samples that do not drift


@dataclass(frozen=True)
class Rule:
    """
    close  half the 95 % interval of the median, as a share of it, at which the median is known
    least  samples before anything is decided
    most   samples after which nothing more is taken
    """

    close: float = 0.002
    least: int = 20
    most: int = 200

    def decide(self, samples: Sequence[float]) -> str:
        """`converged`, `noisy` (more samples would not help soon: steady, but wide), `limit` (`most` are there and they drift), or an
        empty string: go on. Samples in any one unit, all above 0."""
        if len(samples) < self.least:
            return ""
        if halfwidth(samples) <= self.close:
            return CONVERGED
        if len(samples) < self.most:
            return ""
        return NOISY if steady(samples) else LIMIT


def halfwidth(samples: Sequence[float] | np.ndarray) -> float:
    """Half the distribution-free 95 % interval of the median (order statistics of a binomial), as a share of the median."""
    ordered = np.sort(np.asarray(samples, dtype=float))
    count = len(ordered)
    reach = _Z * math.sqrt(count) / 2
    low, high = max(0, math.floor(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
    return float((ordered[high] - ordered[low]) / 2 / np.median(ordered))


def steady(samples: Sequence[float]) -> bool:
    """Whether the medians of both halves agree within their own intervals: nothing drifts."""
    values = np.asarray(samples, dtype=float)
    halves = values[: len(values) // 2], values[len(values) // 2 :]
    first, second = (float(np.median(half)) for half in halves)
    room = math.hypot(*(halfwidth(half) * float(np.median(half)) / _Z for half in halves))
    return abs(first - second) <= _HALVES * room
