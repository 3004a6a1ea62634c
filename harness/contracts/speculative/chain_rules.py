"""Accept rules of a chain: which decisions are certain, and the same rules one request at a time in plain Python."""

from __future__ import annotations

from typing import TypeAlias

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.inputs import Inputs

Sure: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"  # as words: declaring ops does not import torch


def token(p: torch.Tensor, q: torch.Tensor, coin: torch.Tensor, band: float, own: bool) -> Sure:
    """(surely accepted, surely rejected), bool [batch, drafts], where a draft is accepted while coin q < p.

    p, q, coin fp64 [batch, drafts]. `own`: the coin is not known, only what no coin in (0, 1) can change.
    """
    usable = (q > 0) & (q <= 1)
    impossible = (p <= 0) | ~((q >= 0) & (q <= 1))
    if own:
        return usable & ~impossible & (q <= p), impossible
    product = coin * q
    margin = band * torch.maximum(product, p)
    return usable & ~impossible & (product < p - margin), impossible | (usable & (product > p + margin))


def block(x: Inputs, p: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Joint prefix probability [batch, drafts] after each draft, and whether stopping there is surely accepted or rejected.

    Algorithm 2 of Sun et al.: h_i = R / (R + 1 - P_i), R the mass of max(P_i p - q, 0) at the next step; h = P after the last.
    """
    drafts, vocab = p.shape[1], x.target_probs.shape[2]
    ratio = torch.where((q > 0) & (q <= 1), p / q, torch.zeros_like(p))
    prefix, chance, error = torch.empty_like(p), torch.empty_like(p), torch.empty_like(p)
    so_far = torch.ones_like(p[:, 0])
    for i in range(drafts):
        so_far = torch.clamp(so_far * ratio[:, i], max=1.0)
        prefix[:, i], chance[:, i], error[:, i] = so_far, so_far, rounding.FP32 * (4 * i + 4)
        if i < drafts - 1:
            other = torch.nan_to_num(x.draft_probs[:, i + 1].double(), nan=0.0, posinf=0.0)
            left = (so_far[:, None] * x.target_probs[:, i + 1].double() - other).clamp(min=0).sum(1)
            whole = left + 1 - so_far
            chance[:, i] = torch.where(so_far < 1, left / whole, so_far)
            error[:, i] = torch.where(whole > 0, rounding.FP32 * (8 + 4 * vocab**0.5 + 4 * i) / whole, torch.ones_like(whole))
    coin = x.uniform_samples.double()
    return prefix, (prefix > 0) & (coin < chance - error), (prefix <= 0) | (coin >= chance + error)


def stops(accept: torch.Tensor, reject: torch.Tensor, block: bool) -> torch.Tensor:
    """bool [batch, drafts + 1]: n drafts may be accepted. Token: the first rejection ends; block: the longest accepted prefix counts."""
    yes, no = ~reject, ~accept
    always = torch.ones_like(yes[:, :1])
    if block:
        none_longer = no.flip(1).cumprod(1).flip(1).bool()
        return torch.cat((always, yes), 1) & torch.cat((none_longer, always), 1)
    return torch.cat((always, yes.cumprod(1).bool()), 1) & torch.cat((no, always), 1)


def accepted(p: list[list[float]], q: list[list[float]], drafts: list[int], coins: list[float], block: bool) -> tuple[int, float]:
    """(accepted drafts, scale of p in the residual) of one request; p has one row more than q."""
    if not block:
        count = 0
        for i, draft in enumerate(drafts):
            if not (0 < q[i][draft] <= 1 and coins[i] * q[i][draft] < p[i][draft]):
                break
            count += 1
        return count, 1.0
    best, scale, prefix = 0, 1.0, 1.0
    for i, draft in enumerate(drafts):
        prefix = min(prefix * p[i][draft] / q[i][draft], 1.0) if 0 < q[i][draft] <= 1 else 0.0
        chance = prefix
        if i + 1 < len(drafts) and prefix < 1:
            left = sum(max(prefix * a - b, 0.0) for a, b in zip(p[i + 1], q[i + 1], strict=True))
            chance = left / (left + 1 - prefix)
        if coins[i] < chance:
            best, scale = i + 1, prefix
    return best, scale


def inverse(weights: list[float], coin: float) -> int:
    """The first index whose cumulative sum exceeds coin times the sum; the last with weight when rounding leaves none."""
    target, through, last = coin * sum(weights), 0.0, 0
    for i, weight in enumerate(weights):
        through += weight
        last = i if weight > 0 else last
        if weight > 0 and through > target:
            return i
    return last
