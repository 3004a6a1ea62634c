"""How the probability of a false alarm is split, and the smallest bias that the draws can show.

    SUITE  all the draws of one run together raise a false alarm with at most this probability
    CELLS  cells with draws that a run may have; each gets SUITE / CELLS, in three equal parts:
           SURE for a first look that needs no second, SURE for two looks that both accuse, SURE for `silently-greedy`

Two looks at independent draws accuse a right sampler with probability DOUBT * CONFIRM = SURE.
"""

from __future__ import annotations

import functools
import math

from scipy import special

from harness.checks import tails

SUITE = 1e-3
CELLS = 10_000
SURE = SUITE / CELLS / 3
DOUBT = 1e-3
CONFIRM = SURE / DOUBT
RETRY = 4  # times the draws of the first look
POWER = 0.99
TOKENS = (0.5, 0.1, 0.01)  # probabilities of the tokens whose detectable bias is printed


def seen(draws: int, p: float, bias: float, level: float, slack: float = 0.0) -> float:
    """Probability that a token of probability p, drawn with p (1 + bias), differs by an exact binomial test, `level` on each side."""
    biased = min(max(p * (1 + bias), 0.0), 1.0)
    most = math.ceil(special.bdtrik(1 - level, draws, min(p + slack, 1.0)))  # more than this many accuse
    fewest = math.floor(special.bdtrik(level, draws, max(p - slack, 0.0)))  # as many, or fewer, accuse
    return float(tails.above(most, draws, biased) + tails.upto(fewest, draws, biased))


@functools.lru_cache(maxsize=4096)
def detectable(draws: int, p: float, rows: int, questions: int, slack: float = 0.0) -> float:
    """Smallest relative bias, up or down, of a token of probability p that both looks see with probability POWER; inf for none.

    The token's share of a look's level is p / rows of one question's part, half of it on each side.
    """
    part = p / rows / questions / 2

    def enough(bias: float) -> bool:
        looks = ((draws, DOUBT), (RETRY * draws, CONFIRM))
        return all(math.prod(seen(n, p, sign * bias, level * part, slack) for n, level in looks) >= POWER for sign in (1, -1))

    low, high = 0.0, min(1.0, 1 / p - 1)
    if not enough(high):
        return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
