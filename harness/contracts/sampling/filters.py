"""Which tokens a filter keeps, by its declared tie policy, with the band that a provider's own summation order decides."""

from __future__ import annotations

from dataclasses import dataclass

from harness.contracts import rounding
from harness.contracts._torch import torch

SMALLEST = 2.0**-120  # below it a result may be flushed to zero


@dataclass(frozen=True)
class Support:
    """`required`: every correct rule keeps it; `allowed`: some correct rule keeps it; both bool [rows, vocab]. `kept`: exact count or None."""

    required: torch.Tensor
    allowed: torch.Tensor
    kept: torch.Tensor | None = None


def top_k(p: torch.Tensor, k: torch.Tensor, ties: str) -> Support:
    """p [rows, vocab] any dtype, k int64 [rows, 1]; k <= 0 and k >= vocab keep everything.

    ties: `all` keeps every token equal to the k-th; `exactly-k` keeps k of them, whichever.
    """
    vocab = p.shape[-1]
    rank = torch.where((k <= 0) | (k > vocab), vocab, k)
    ordered = torch.sort(p, dim=-1, descending=True).values
    kth = ordered.gather(1, rank - 1)
    present = p > 0
    allowed = (p >= kth) & present
    if ties == "all":
        return Support(allowed & (p.double() >= SMALLEST), allowed)
    kept = torch.minimum(rank.squeeze(1), present.sum(-1))
    return Support((p > kth) & (p.double() >= SMALLEST), allowed, kept)


def top_p(p: torch.Tensor, target: torch.Tensor, ties: str) -> Support:
    """p [rows, vocab], target fp64 [rows, 1] in [0, 1]: the smallest set whose mass reaches the target; at least the best token.

    A token is kept when the mass strictly above it is below the target (ties: `all`), or when the mass before it in some
    order is (`exactly-k`, by rank). Tokens within the summation error of fp32 of the target may go either way.
    """
    mass = p.double()
    ordered, order = torch.sort(mass, dim=-1, descending=True)
    through = ordered.cumsum(-1)
    band = rounding.FP32 * (8 + 4 * p.shape[-1] ** 0.5)
    first = torch.searchsorted(-ordered, -ordered, side="left")  # equal neighbours share first and last
    last = torch.searchsorted(-ordered, -ordered, side="right") - 1
    above = through.gather(1, first) - ordered.gather(1, first)
    before_last = through.gather(1, last) - ordered
    best = ordered == ordered[:, :1]
    allowed_sorted = (above < target + band) | best | (target >= 1)
    must = above if ties == "all" else before_last
    sure = must < target - band
    if ties == "all":
        sure |= best
    elif p.shape[-1] > 1:
        sure |= best & (ordered[:, 1:2] < ordered[:, :1])
    else:
        sure |= best
    sure |= target >= 1
    allowed = torch.zeros_like(allowed_sorted).scatter_(1, order, allowed_sorted) & (mass > 0)
    required = torch.zeros_like(sure).scatter_(1, order, sure) & (mass >= SMALLEST)
    return Support(required & allowed, allowed)


def kept_by_rank(p: list[float], k: int, target: float, ties: str) -> list[int]:
    """The second formula, one row in plain Python: ids kept by top-k and top-p, both on the original mass, by rank, lowest id first.

    ties `all` then adds every token equal to the last one kept.
    """
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    limit = len(p) if k <= 0 or k > len(p) else k
    kept: list[int] = []
    mass = 0.0
    for i in order[:limit]:
        if kept and mass >= target and target < 1:
            break
        kept.append(i)
        mass += p[i]
    if ties == "all":
        kept = [i for i in order if p[i] >= p[kept[-1]]]
    return [i for i in kept if p[i] > 0]
