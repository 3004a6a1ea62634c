"""Draws counted against the probabilities they should have, and the questions asked of them. numpy and scipy.special alone.

Every question's p-value is exact, or an upper bound, at any number of draws: binomial tails, and for the whole distribution a
chain of conditional binomials whose deviates are independent standard normals (randomised where the count is discrete).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from harness.checks import tails
from harness.checks.tails import Array

MANY = 256  # draws of a row from which it is looked at by itself
LEAST = 10.0  # expected draws of a cell of the chain; rarer tokens share one
BINS = 16
TAIL = 0.01  # the least likely tokens that together hold at most this
FEWEST = 512  # draws in all for autocorrelation
_ROUNDING = 2.0**-24  # a uniform number in fp32 has 24 bits
_SEED = 20140903  # of what randomises the discrete counts: it need not change, the draws do


class Answer(NamedTuple):
    """One question's p-value and what it saw, in words."""

    question: str
    p: float
    text: str


@dataclass(frozen=True)
class Tally:
    """Rows of draws: all arrays fp64 or int64 over [rows, vocab] or [rows].

    counts   draws of each token
    p        probability among the tokens that every correct rule keeps; 0 elsewhere
    n        draws of those tokens
    total    all draws, those in the band with them
    low, high  least and greatest probability of the band together
    sample   ids in the order they were drawn, [rows, some], -1 for none: for questions about order
    gap      absolute error allowed in a probability; `rounding` allows for fp32 besides
    """

    counts: Array
    p: Array
    n: Array
    total: Array
    low: Array
    high: Array
    sample: Array
    gap: float

    @property
    def relative(self) -> float:
        """Relative error of a probability by the fp32 sum that renormalises it: random in sign, so the root of its length."""
        return float(_ROUNDING * (8 + 4 * self.p.shape[1] ** 0.5))

    def slack(self, p: Any, tokens: Any = 1) -> Any:
        """Absolute error allowed in the probability p of a set of tokens."""
        return p * self.relative + np.sqrt(tokens) * _ROUNDING + self.gap


def questions(tally: Tally, watched: dict[str, Array]) -> list[Answer]:
    """Every question that these draws can answer."""
    asked = [_whole(tally), _tokens(tally), _named(tally, watched), _band(tally), _uniforms(tally), _order(tally)]
    return [answer for answer in asked if answer is not None]


def verdict(answers: list[Answer]) -> Answer:
    """The most damning answer, its p-value as that of all together (Bonferroni)."""
    worst = min(answers, key=lambda answer: answer.p)
    return worst._replace(p=min(1.0, worst.p * len(answers)))


def deviates(count: Array, n: Array, low: Array, high: Array, jitter: Array) -> Array:
    """Standard normal deviates of binomial counts whose probability lies in [low, high]: how far they lie beyond it, 0 within."""
    upper = tails.above(count, n, high) + jitter * tails.exactly(count, n, high)
    lower = tails.upto(count - 1, n, low) + (1 - jitter) * tails.exactly(count, n, low)
    z = np.where(upper < 0.5, -special.ndtri(np.maximum(upper, 1e-300)), 0.0)
    return np.where((lower < 0.5) & (lower < upper), special.ndtri(np.maximum(lower, 1e-300)), z)


def chain(counts: Array, p: Array, slack: Array, jitter: Array) -> Array:
    """Independent standard normal deviates, one fewer than the cells, of counts over cells of probability p: each cell's count
    given what the cells before it left. The rarest go first, so that what is left stays large."""
    order = np.argsort(p, kind="stable")
    counts, p, slack = counts[order], p[order], slack[order]
    left = np.cumsum(counts[::-1])[::-1][:-1]
    others = np.cumsum(p[::-1])[::-1][1:]
    loose = np.sqrt(np.cumsum(slack[::-1] ** 2)[::-1][1:])
    p, slack = p[:-1], slack[:-1]
    least, most = np.maximum(p - slack, 0.0), p + slack
    low, high = least / (least + others + loose), most / (most + np.maximum(others - loose, 0.0))
    return deviates(counts[:-1], left, low, high, jitter[: len(p)])


def _random(*shape: int) -> Array:
    return np.random.default_rng(_SEED).random(shape)


def _whole(tally: Tally) -> Answer | None:
    """The whole distribution of each row with MANY draws: chi-square of the chain over tokens, the rare ones pooled."""
    total, freedom, worst = 0.0, 0, (0.0, "")
    for row in np.flatnonzero(tally.n >= MANY):
        counts, p, size = _cells(tally.counts[row], tally.p[row], float(tally.n[row]))
        if len(p) < 2:
            continue
        z = chain(counts, p, tally.slack(p, size), _random(len(p)))
        total, freedom = total + float(z @ z), freedom + len(z)
        share = float(z @ z) / len(z)
        if share > worst[0]:
            worst = share, f"row {row} {share:.3g} times what chance gives"
    if not freedom:
        return None
    return Answer("whole distribution", tails.chi_square(total, freedom), f"chi-square {total:.6g} with {freedom} degrees of freedom; {worst[1]}")


def _cells(counts: Array, p: Array, n: float) -> tuple[Array, Array, Array]:
    """Counts, probabilities and numbers of tokens of cells with at least LEAST expected draws: frequent tokens alone, rare ones pooled."""
    held = np.flatnonzero(p > 0)
    held = held[np.argsort(-p[held], kind="stable")]
    counts, p = counts[held], p[held]
    alone = int(np.count_nonzero(n * p >= LEAST))
    rare = np.cumsum(n * p[alone:])
    place = (rare / LEAST).astype(np.int64)
    if len(rare):
        place = np.minimum(place, max(int(rare[-1] / LEAST) - 1, 0))  # the last cell takes what is left over
    cell = np.concatenate((np.arange(alone), alone + place))
    # cells that no token ends in are skipped
    cell = np.unique(cell, return_inverse=True)[1]
    return np.bincount(cell, counts), np.bincount(cell, p), np.bincount(cell)


def _tokens(tally: Tally) -> Answer | None:
    """Each token by itself. A token's part of the level is its probability, so that the parts sum to one whatever the vocabulary."""
    rows = np.flatnonzero(tally.n >= MANY)
    if not len(rows):
        return None
    expected = tally.n[rows, None] * tally.p[rows]
    count = tally.counts[rows]
    # within two deviations nothing can be suspicious
    at, token = np.nonzero((tally.p[rows] > 0) & ((count - expected) ** 2 > 4 * (expected + 1)))
    if not len(at):
        return Answer("each token", 1.0, "")
    p, n = tally.p[rows][at, token], tally.n[rows][at]
    slack = tally.slack(p)
    value = tails.both(count[at, token], n, np.maximum(p - slack, 0), np.minimum(p + slack, 1)) * len(rows) / p
    worst = int(value.argmin())
    text = _said(f"token {token[worst]} of row {rows[at[worst]]}", count[at[worst], token[worst]], n[worst], p[worst])
    return Answer("each token", float(min(1.0, value[worst])), text)


def _named(tally: Tally, watched: dict[str, Array]) -> Answer | None:
    """The most probable token, those the contract names, and the tail."""
    rows = np.flatnonzero(tally.n >= MANY)
    if not len(rows):
        return None
    found = []
    for name, ids in {"most probable token": tally.p.argmax(1), **watched}.items():
        held = [(row, ids[row]) for row in rows if ids[row] >= 0 and tally.p[row, ids[row]] > 0]
        found += [(f"{name} ({token}) of row {row}", row, tally.counts[row, token], tally.p[row, token], 1) for row, token in held]
    for row in rows:
        order = np.argsort(tally.p[row])
        rare = order[np.cumsum(tally.p[row][order]) <= TAIL]
        mass = float(tally.p[row][rare].sum())
        if mass > 0:
            found.append((f"tail of row {row}, {np.count_nonzero(tally.p[row][rare])} tokens", row, tally.counts[row][rare].sum(), mass, len(rare)))
    names, at, count, p, size = (np.array(part) for part in zip(*found, strict=True))
    slack = tally.slack(p, size)
    value = tails.both(count, tally.n[at], np.maximum(p - slack, 0), np.minimum(p + slack, 1)) * len(found)
    worst = int(value.argmin())
    return Answer("named tokens", float(min(1.0, value[worst])), _said(str(names[worst]), count[worst], tally.n[at[worst]], p[worst]))


def _band(tally: Tally) -> Answer | None:
    """Tokens that a correct rule may keep or drop: together no more, and where their number is fixed no less, than their mass."""
    rows = np.flatnonzero(tally.high > 0)
    if not len(rows):
        return None
    count = tally.total[rows] - tally.n[rows]
    low, high = tally.low[rows], tally.high[rows]
    value = tails.both(count, tally.total[rows], np.maximum(low - tally.slack(low), 0), np.minimum(high + tally.slack(high), 1)) * len(rows)
    worst = int(value.argmin())
    text = f"tokens at the edge of row {rows[worst]}: {count[worst]} of {tally.total[rows][worst]} draws, their mass is {low[worst]:.6g} to {high[worst]:.6g}"
    return Answer("edge tokens", float(min(1.0, value[worst])), text)


def _places(tally: Tally, order: Array, jitter: Array) -> Array:
    """Where each sampled draw falls in the cumulative distribution over tokens in `order`, spread evenly over its token's share:
    uniform on [0, 1) for a right sampler whatever the row; NaN for no draw and for tokens in the band."""
    p = np.take_along_axis(tally.p, order, 1)
    before = np.empty_like(tally.p)
    np.put_along_axis(before, order, np.cumsum(p, 1) - p, 1)
    ids = np.maximum(tally.sample, 0)
    share = np.take_along_axis(tally.p, ids, 1)
    place = np.take_along_axis(before, ids, 1) + jitter * share
    return np.where((tally.sample >= 0) & (share > 0), np.clip(place, 0.0, 1 - 2.0**-53), np.nan)


def _uniforms(tally: Tally) -> Answer | None:
    """All rows pooled, also rows with one draw each: places in the distribution, most probable token first, over BINS equal bins."""
    places = _places(tally, np.argsort(-tally.p, axis=1, kind="stable"), _random(*tally.sample.shape))
    places = places[~np.isnan(places)]
    if not len(places):
        return None
    counts = np.bincount((places * BINS).astype(np.int64), minlength=BINS)
    p = np.full(BINS, 1 / BINS)
    z = chain(counts, p, tally.slack(p, tally.p.shape[1] / BINS), _random(BINS))
    text = f"places of {len(places)} draws in their row's distribution, in {BINS} equal parts from the most probable: {counts.tolist()}"
    return Answer("pooled uniforms", tails.chi_square(float(z @ z), BINS - 1), text)


def _order(tally: Tally) -> Answer | None:
    """Autocorrelation of the places at every distance, within a row and from row to row: none where no random number is used twice."""
    rows, width = tally.sample.shape
    if rows * width < FEWEST:
        return None
    places = _places(tally, np.tile(np.arange(tally.p.shape[1]), (rows, 1)), _random(*tally.sample.shape)[::-1])
    known = ~np.isnan(places)
    axis = 1 if width >= MANY else None
    count = known.sum(axis=axis, keepdims=True)
    centre = np.where(known, places, 0.0).sum(axis=axis, keepdims=True) / np.maximum(count, 1)
    flat = np.where(known, places - centre, 0.0).ravel()
    variance = float(flat @ flat) / max(int(known.sum()), 1)
    pairs = np.rint(_apart(known.ravel().astype(float)))
    lags = int(np.count_nonzero(pairs >= MANY))
    if not variance or not lags:
        return None
    z = np.where(pairs >= MANY, _apart(flat) / variance / np.sqrt(np.maximum(pairs, 1)), 0.0)
    worst = int(np.abs(z).argmax())
    p = min(1.0, 2 * lags * tails.normal(abs(z[worst])))
    correlation = z[worst] / np.sqrt(pairs[worst])
    return Answer("order", p, f"draws {worst + 1} apart (row after row, {width} a row) have correlation {correlation:.3g}, {z[worst]:.3g} deviations")


def _apart(values: Array) -> Array:
    """Sum of the products of values 1, 2, 3, ... apart."""
    size = 1 << (2 * len(values) - 1).bit_length()
    return np.fft.irfft(np.abs(np.fft.rfft(values, size)) ** 2, size)[1 : len(values)]


def _said(what: str, count: Any, n: Any, p: Any) -> str:
    bias = f"{100 * (count / (n * p) - 1):+.3g} %"
    return f"{what}: drawn {int(count)} times in {int(n)}, expected {n * p:.6g} (probability {p:.6g}, bias {bias})"
