"""Draft and target distributions of the speculative ops: integer masses that sum to 2^24, so that every partial sum is exact in fp32.

With exact sums in any order, what a correct kernel decides is known to a few units in the last place of the coin.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.inputs import Draw
from harness.contracts.sampling.distributions import probs

UNIT = 1 << 24
VALUES = ("random", "onehot", "matching", "rejected", "edges", "zerodraft", "nandraft", "decided", "float", "drawn", "grid", "gridhot", "never", "infdraft")
EDGED = ("edges", "float", "never")  # whose coins are 0, 1/2 and the greatest one, too


def masses(draw: Draw, batch: int, vocab: int, kind: str = "random") -> torch.Tensor:
    """int64 [batch, vocab] that sum to UNIT: `random` over 12 octaves (rare tokens have no mass), `ties` four distinct weights."""
    if kind == "ties":
        weights = torch.ones(batch, vocab, dtype=torch.int64, device=draw.device) << draw.integers(batch, vocab, low=0, high=4)
    else:
        weights = draw.integers(batch, vocab, low=256, high=512) << draw.integers(batch, vocab, low=0, high=12)
    scaled = weights * UNIT // weights.sum(-1, keepdim=True)
    return settle(scaled, draw.integers(batch, 1, low=0, high=vocab))


def settle(mass: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """Gives what is missing from UNIT to `token` [batch, 1]."""
    return mass.scatter_add(1, token, UNIT - mass.sum(-1, keepdim=True))


def without(mass: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """The mass of `token` [batch, 1] moved to its neighbour."""
    return settle(mass.scatter(1, token, 0), (token + 1) % mass.shape[1])


def sampled(draw: Draw, mass: torch.Tensor) -> torch.Tensor:
    """[batch, 1]: a token drawn from the masses by the inverse of their cumulative sum."""
    coin = draw.integers(mass.shape[0], 1, low=0, high=UNIT)
    return torch.searchsorted(mass.cumsum(-1), coin, right=True)


def chances(mass: torch.Tensor) -> torch.Tensor:
    """fp32 probabilities, exact."""
    return mass.to(torch.float32) * 2.0**-24


@dataclass(frozen=True)
class Step:
    """One verify step: target p [batch, vocab], draft q [batch, vocab], and the drafted token [batch, 1]."""

    p: torch.Tensor
    q: torch.Tensor
    token: torch.Tensor


def step(draw: Draw, batch: int, vocab: int, values: str) -> Step:
    """One step of an input family.

    random: p half made of q, the token drawn from q; onehot: q certain of its token, which is drawn from p; matching: p = q;
    rejected, never: p gives the token nothing; edges: tied weights; zerodraft: q gives its own token nothing; nandraft, infdraft: every
    second row of q is NaN or infinite; decided: the token is certain (p >= 4 q) or impossible (p = 0); float: not exact in any order, and the
    last token impossible.
    """
    if values == "float":
        p, q = probs(draw, batch, vocab, "random"), probs(draw, batch, vocab, "random")
        p[:, -1] = 0.0
        return Step(p, q, draw.integers(batch, 1, low=0, high=vocab - 1))
    kind = "ties" if values == "edges" else "random"
    q = masses(draw, batch, vocab, kind)
    other = masses(draw, batch, vocab, kind)
    p = q if values == "matching" else settle((q + other) >> 1, draw.integers(batch, 1, low=0, high=vocab))
    token = sampled(draw, p if values == "onehot" else q)
    if values == "onehot":
        q = torch.zeros_like(q).scatter_(1, token, UNIT)
    elif values in ("rejected", "never"):
        p = without(p, token)
    elif values == "zerodraft":
        q = without(q, token)
    elif values == "decided":
        sure = draw.integers(batch, 1, low=0, high=4) != 0
        p = torch.where(sure, settle(p >> 1, token), without(p, token))
        q = settle((q >> 3).scatter(1, token, torch.clamp(q.gather(1, token) >> 3, min=1)), (token + 1) % vocab)
    fp32_q = chances(q)
    if values in ("nandraft", "infdraft"):
        fp32_q[1::2] = torch.nan if values == "nandraft" else torch.inf
    return Step(chances(p), fp32_q, token)


def coins(draw: Draw, *shape: int, values: str) -> torch.Tensor:
    """Uniform samples in [0, 1), multiples of 2^-24; those of EDGED take 0, 1/2 and the greatest one, 1 - 2^-24, too."""
    free = draw.uniform(*shape)
    if values not in EDGED:
        return free
    pick = draw.integers(*shape, low=0, high=4)
    for choice, coin in enumerate((0.0, 0.5, 1 - 2.0**-24)):
        free = torch.where(pick == choice, torch.full_like(free, coin), free)
    return free


def band(exact: bool, vocab: int) -> float:
    """Relative uncertainty of a comparison against a partial sum: the products alone round where sums are exact."""
    return rounding.FP32 * (4.0 if exact else 8 + 4 * vocab**0.5)
