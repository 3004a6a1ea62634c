"""Rules that other projects use, written from their description, to be replayed beside this project's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Runs:
    """Figures of recorded runs, each `[cells, runs]`, and `chance[cells, baseline run, new run]`: the two-sided p of Mann and Whitney on
    the samples of two runs."""

    mean: np.ndarray
    median: np.ndarray
    least: np.ndarray
    third: np.ndarray
    chance: np.ndarray


@dataclass(frozen=True)
class Drawn:
    """Which runs were drawn, `[draws, cells, ...]`: `base` for the baseline, `new` after it; new times are `slowed` by a factor."""

    base: np.ndarray
    new: np.ndarray
    slowed: float

    def one(self, figure: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A figure of one run of the baseline and of the first new one."""
        return _at(figure, self.base[..., 0]), self.slowed * _at(figure, self.new[..., 0])


def _at(figure: np.ndarray, runs: np.ndarray) -> np.ndarray:
    cells = np.arange(len(figure)).reshape((1, -1) + (1,) * (runs.ndim - 2))
    return figure[cells, runs]


def figures(samples: list[np.ndarray], slowed: float) -> Runs:
    """The figures of recorded samples, one array `[runs, samples]` a cell; chances for new runs slowed by a factor."""

    def each(what: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.stack([what(cell) for cell in samples])

    return Runs(
        each(lambda cell: cell.mean(axis=1)),
        each(lambda cell: np.median(cell, axis=1)),
        each(lambda cell: cell.min(axis=1)),
        each(lambda cell: np.quantile(cell, 0.75, axis=1)),
        each(lambda cell: mann_whitney(cell, slowed * cell)),
    )


def mann_whitney(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The two-sided p of every row of one against every row of the other, by the normal approximation with corrections for ties and
    continuity."""
    from scipy.special import ndtr

    n, m = first.shape[1], second.shape[1]
    chances = np.empty((len(first), len(second)))
    for place, row in enumerate(np.sort(first, axis=1)):
        below, upto = (np.searchsorted(row, second.ravel(), side).reshape(second.shape) for side in ("left", "right"))
        above = (n - (below + upto) / 2).sum(axis=1)  # pairs in which the first is greater, ties by half
        both = np.sort(np.concatenate([np.broadcast_to(row, (len(second), n)), second], axis=1), axis=1)
        variance = n * m / 12 * (n + m + 1 - _ties(both) / ((n + m) * (n + m - 1)))
        distance = np.maximum(np.abs(above - n * m / 2) - 0.5, 0)
        chances[place] = 2 * ndtr(-distance / np.sqrt(np.maximum(variance, 1e-300)))
    return np.minimum(chances, 1)


def _ties(ordered: np.ndarray) -> np.ndarray:
    """Sum of t^3 - t over the groups of equal values in each sorted row."""
    place = np.broadcast_to(np.arange(ordered.shape[1]), ordered.shape)
    other = ordered[:, 1:] != ordered[:, :-1]
    edge = np.ones((len(ordered), 1), dtype=bool)
    first = np.maximum.accumulate(np.where(np.hstack([edge, other]), place, 0), axis=1)
    last = np.minimum.accumulate(np.where(np.hstack([other, edge]), place, ordered.shape[1])[:, ::-1], axis=1)[:, ::-1]
    size = (last - first + 1).astype(float)
    return (size**2 - 1).sum(axis=1)


def _mean(ratio: float) -> Callable[[Runs, Drawn], np.ndarray]:
    def rule(runs: Runs, drawn: Drawn) -> np.ndarray:
        base, new = drawn.one(runs.mean)
        return new > ratio * base

    return rule


def _ranks(below: float, ratio: float) -> Callable[[Runs, Drawn], np.ndarray]:
    def rule(runs: Runs, drawn: Drawn) -> np.ndarray:
        base, new = drawn.one(runs.median)
        chance = runs.chance[np.arange(len(runs.chance))[None], drawn.base[..., 0], drawn.new[..., 0]]
        return (chance < below) & (new > ratio * base)

    return rule


def _gap(runs: Runs, drawn: Drawn) -> np.ndarray:
    third, _ = drawn.one(runs.third)
    _, least = drawn.one(runs.least)
    return least > 1.005 * third


def _medians(runs: Runs, drawn: Drawn) -> np.ndarray:
    from scipy.special import stdtrit

    base, new = _at(runs.median, drawn.base), drawn.slowed * _at(runs.median, drawn.new[..., :2])
    count, centre = base.shape[-1], base.mean(axis=-1)
    reach = stdtrit(count - 1, 0.999) * base.std(axis=-1, ddof=1) * np.sqrt(1 + 1 / count)
    return (new > np.maximum(centre + reach, 1.02 * centre)[..., None]).all(axis=-1)


# one run against one run, but for the last; every rule answers whether each drawn cell is slower
RULES: dict[str, Callable[[Runs, Drawn], np.ndarray]] = {
    "mean, 5 % (pytest-benchmark --benchmark-compare-fail)": _mean(1.05),
    "mean ratio 1.10 (AITER CI, warns)": _mean(1.10),
    "mean ratio 1.15 (AITER CI, fails)": _mean(1.15),
    "Mann-Whitney p < .05 (google-benchmark)": _ranks(0.05, 1.0),
    "Mann-Whitney p < .002, median ratio 1.1 (asv)": _ranks(0.002, 1.1),
    "[min, q3] apart by 0.5 % (nvbench compare)": _gap,
    "ten medians, t p < .001, floor 2 %, one confirming rerun": _medians,
}
