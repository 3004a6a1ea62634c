"""How much the medians of runs vary: each cell's own variance drawn towards that of its like, and the shift between machine starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

LEAST = 5e-4  # a smaller deviation between runs is luck: a run is stopped when half its 95 % interval is 0.2 %, a deviation of 0.1 %
STARTS = 0.009 / 3**0.5  # deviation of shifts that are uniform within 0.9 %, the most by which graph medians moved between two H200s
WEIGHT = 8.0  # starts that this prior counts for
ALONE = 3e-3  # deviation assumed for cells that have no like: between runs it was 0.1 to 0.4 % on an H200
_FEW = 3  # variances from which nothing is learned about their spread
_MOST = 1000.0  # degrees of freedom that serve as infinitely many


@dataclass(frozen=True)
class Summary:
    """Baselines of cells, in logarithms of run medians; each field an array with one value a cell in its last axis.

    mean      of the means of the machine starts
    variance  of runs within a start; `freedom`: its degrees of freedom
    noise     the mean's variance as a share of `variance`
    starts    machine starts; `between`: variance of their means beyond what `variance` explains, unlimited below
    """

    mean: np.ndarray
    variance: np.ndarray
    freedom: np.ndarray
    noise: np.ndarray
    starts: np.ndarray
    between: np.ndarray


def summarise(starts: Sequence[np.ndarray]) -> Summary:
    """The summary of run medians by machine start; each array `[..., runs]` in any one unit, all above 0."""
    logs = [np.log(np.asarray(runs, dtype=float)) for runs in starts]
    means = np.stack([values.mean(axis=-1) for values in logs])
    squares = sum(((values - mean[..., None]) ** 2).sum(axis=-1) for values, mean in zip(logs, means, strict=True))
    freedom = sum(values.shape[-1] - 1 for values in logs)
    shares = np.array([1 / values.shape[-1] for values in logs])
    variance = np.maximum(squares / max(freedom, 1), LEAST**2)
    between = means.var(axis=0, ddof=1) - variance * shares.mean() if len(logs) > 1 else np.zeros_like(variance)
    full = np.ones_like(variance)
    return Summary(means.mean(axis=0), variance, full * freedom, full * shares.sum() / len(logs) ** 2, full * len(logs), between)


def stack(summaries: Iterable[Summary]) -> Summary:
    """Summaries of single cells as one of many."""
    columns = zip(*(vars(summary).values() for summary in summaries), strict=True)
    return Summary(*(np.stack(column, axis=-1) for column in columns))


def moderated(variance: np.ndarray, freedom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances of like cells (last axis), each drawn towards what they have in common, with their degrees of freedom.

    Empirical Bayes: if true variances follow a scaled inverse chi-square with d0 degrees of freedom, the posterior is
    (d0 s0^2 + d s^2) / (d0 + d) with d0 + d; d0 and s0 by the moments of log s^2 (G. K. Smyth, 2004, section 6.2). A cell above
    Tukey's upper fence is unlike the others: it takes no part and keeps its own variance. Where fewer than three cells have a
    variance, `ALONE` stands in, with four degrees of freedom.
    """
    from scipy.special import digamma, polygamma

    half = np.maximum(freedom, 1) / 2
    scores = np.log(variance) - digamma(half) + np.log(half)
    known = freedom > 0
    low, high = np.nanpercentile(np.where(known, scores, np.nan), [25, 75], axis=-1, keepdims=True) if known.any() else (0.0, 0.0)
    like = known & (scores <= high + 1.5 * (high - low))
    count = like.sum(axis=-1, keepdims=True)
    centre = np.where(like, scores, 0).sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    excess = np.where(like, (scores - centre) ** 2, 0).sum(axis=-1, keepdims=True) / np.maximum(count - 1, 1)
    excess -= np.where(like, polygamma(1, half), 0).sum(axis=-1, keepdims=True) / np.maximum(count, 1)
    prior = np.minimum(2 * _inverse_trigamma(np.maximum(excess, 2 / _MOST)), _MOST)
    common = np.exp(centre + digamma(prior / 2) - np.log(prior / 2))
    prior, common = np.where(count < _FEW, 4.0, prior), np.where(count < _FEW, ALONE**2, common)
    weight = np.where(known & ~like, 0.0, prior)
    return (weight * common + freedom * variance) / (weight + freedom), np.minimum(weight + freedom, _MOST)


def _inverse_trigamma(value: np.ndarray) -> np.ndarray:
    """Where the trigamma function has this value, by Newton's method on its reciprocal, which is nearly a line."""
    from scipy.special import polygamma

    place = 0.5 + 1 / value
    for _ in range(20):
        there = polygamma(1, place)
        place = place + there * (1 - there / value) / polygamma(2, place)
    return place


def starts_variance(summary: Summary) -> np.ndarray:
    """The variance of the shift between machine starts, a cell.

    In common: the mean of `between` over the cells of several starts, each weighted by how well it is known, with one degree of freedom less
    than starts, because all cells of a start may move together; drawn towards `STARTS`, which counts for `WEIGHT` degrees of freedom. Some
    kernels move more than others: a cell has the variance that its own `between` gives, drawn towards what is common in the same way, where
    that is greater. It never has less: three starts that agree are soon met by luck.
    """
    several = summary.starts > 1
    weight = np.where(several, (STARTS**2 + summary.variance * summary.noise * summary.starts) ** -2.0, 0)
    seen = (weight * summary.between).sum(axis=-1, keepdims=True) / np.maximum(weight.sum(axis=-1, keepdims=True), 1e-300)
    own = np.where(several, summary.starts - 1, 0)
    most = own.max(axis=-1, keepdims=True)
    common = (WEIGHT * STARTS**2 + most * np.maximum(seen, 0)) / (WEIGHT + most)
    return np.maximum(common, (WEIGHT * common + own * summary.between) / (WEIGHT + own))
