"""Which tokens a filter keeps, by its declared tie policy, with the band that a provider's own summation order decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.contracts import rounding
from harness.contracts._torch import torch

SMALLEST = 2.0**-120  # below it a result may be flushed to zero
OFF = 2.0  # a top-p target that filters nothing


@dataclass(frozen=True)
class Support:
    """`required`: every correct rule keeps it; `allowed`: some correct rule keeps it; both bool [rows, vocab]. `kept`: int64 [rows],
    exactly how many are kept (-1: the band decides), or None where the tie policy leaves no count; `most`: the most there may be."""

    required: torch.Tensor
    allowed: torch.Tensor
    kept: torch.Tensor | None = None
    most: torch.Tensor | None = None


def top_k(p: torch.Tensor, k: torch.Tensor, ties: str) -> Support:
    """p [rows, vocab] any dtype, k int64 [rows, 1]; k <= 0 and k >= vocab keep everything. Policies as in `nucleus`."""
    return nucleus(p, k, torch.full_like(k, OFF, dtype=torch.float64), ties)


def top_p(p: torch.Tensor, target: torch.Tensor, ties: str) -> Support:
    """p [rows, vocab], target fp64 [rows, 1] in [0, 1]; 1 keeps everything, 0 the best token. Policies as in `nucleus`."""
    return nucleus(p, torch.zeros_like(target, dtype=torch.int64), target, ties)


def nucleus(p: torch.Tensor, k: torch.Tensor, target: torch.Tensor, ties: str, order: str = "joint") -> Support:
    """The k most probable tokens, and of them the smallest set whose mass reaches the target (at least the best token).

    p [rows, vocab] any dtype; k int64 [rows, 1] (<= 0 or >= vocab: off); target fp64 [rows, 1] (>= 1: off).
    ties: `all` keeps every token as probable as the last one kept; `exactly-k` ranks them, equal ones in any order.
    order: `joint` takes the mass of the row as it was, `top-k-first` renormalises what top-k keeps before top-p.
    Tokens within the rounding of an fp32 sum of the target may go either way; so may those that the row's own distance
    from a sum of 1 decides (the target is a share of 1 for one library and of the row's sum for another).
    """
    rows, vocab = p.shape
    ordered, ids = torch.sort(torch.nan_to_num(p.double()), dim=-1, descending=True)  # rows with a NaN have no support to speak of
    place = torch.arange(vocab, device=p.device).expand(rows, vocab)
    first = torch.searchsorted(-ordered, -ordered, side="left")  # equal neighbours share first and last
    last = torch.searchsorted(-ordered, -ordered, side="right") - 1
    limit = torch.where((k <= 0) | (k > vocab), vocab, k)
    ranked = (first if ties == "all" else place) < limit
    through = (ordered * ranked).cumsum(-1)
    band = rounding.FP32 * (8 + 4 * vocab**0.5)
    if order == "top-k-first":
        share = through[:, -1:].clamp_min(1e-300)
        through, heavy = through / share, ordered / share
        # a library may store the renormalised row in its own dtype, where neighbours can become equal
        low = 0.0 if p.dtype == torch.float32 else rounding.roundoff(p.dtype)
        near = torch.searchsorted(-ordered, -ordered * (1 + 4 * low), side="left") if low else first
        slack = torch.full_like(share, band + low)
    else:
        heavy, near = ordered, first
        slack = band + (1 - ordered.sum(-1, keepdim=True)).abs()
    above = through.gather(1, first) - heavy.gather(1, first)
    loose = above if near is first else through.gather(1, near) - heavy.gather(1, near)
    off, best = target >= 1, first == 0
    if ties == "all":
        may = ranked & ((loose < target + slack) | best | off)
        must = ranked & ((above < target - slack) | best | off)
    else:
        may = (first < limit) & ((loose < target + slack) | best | off)
        must = (last < limit) & ((through.gather(1, last) - heavy < target - slack) | (last == 0) | off)
    present = ordered > 0
    allowed = torch.zeros_like(may).scatter_(1, ids, may & present)
    required = torch.zeros_like(must).scatter_(1, ids, must & may & (ordered >= SMALLEST))
    if ties == "all":
        return Support(required, allowed)
    before, open_ranks = through - heavy, ranked & present
    low_count = (open_ranks & ((before < target - slack) | (place == 0) | off)).sum(-1)
    high_count = (open_ranks & ((before < target + slack) | (place == 0) | off)).sum(-1)
    unsure = (low_count != high_count) | (open_ranks & (ordered < SMALLEST)).any(-1)
    return Support(required, allowed, torch.where(unsure, -1, high_count), high_count)


def min_p(p: torch.Tensor, share: torch.Tensor) -> Support:
    """p [rows, vocab], share fp64 [rows, 1] in [0, 1]: every token at least `share` times as probable as the best one.

    The threshold is a product rounded to fp32: tokens within two roundings of it may go either way.
    """
    mass = p.double()
    best = mass.amax(-1, keepdim=True)
    edge, band = best * share, 2 * rounding.FP32
    allowed = (mass >= edge * (1 - band)) & (mass > 0)
    required = ((mass >= edge * (1 + band)) | (mass == best)) & (mass >= SMALLEST)
    return Support(required, allowed)


def kept_by_rank(p: Sequence[float], k: int, target: float, ties: str, order: str = "joint") -> list[int]:
    """The second formula of `nucleus`, one row in plain Python: ids kept, by rank, lowest id first."""
    ranking = sorted(range(len(p)), key=lambda i: (-p[i], i))
    limit = len(p) if k <= 0 or k > len(p) else k
    within = [i for i in ranking if p[i] >= p[ranking[limit - 1]]] if ties == "all" else ranking[:limit]
    whole = sum(p[i] for i in within) if order == "top-k-first" else 1.0
    kept: list[int] = []
    mass = 0.0
    for i in within:
        if kept and mass >= target * whole and target < 1:
            break
        kept.append(i)
        mass += p[i]
    if ties == "all":
        kept = [i for i in within if p[i] >= p[kept[-1]]]
    return [i for i in kept if p[i] > 0]
