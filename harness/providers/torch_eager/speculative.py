"""Speculative verification in plain PyTorch, fp32."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


def draw_final(weights: Any, coin: Any) -> Any:
    """[batch]: the first token whose cumulative sum of weights [batch, vocab] exceeds coin [batch] times the sum, of those with weight."""
    import torch

    through = weights.cumsum(-1)
    hit = (through > coin[:, None] * through[:, -1:]) & (weights > 0)
    place = torch.arange(weights.shape[1], device=weights.device)
    last = torch.where(weights > 0, place, 0).amax(-1)
    return torch.where(hit.any(-1), hit.int().argmax(-1), last)


def _prefixes(x: Any, ratio: Any) -> Any:
    """Joint prefix probability [batch, drafts] and the longest accepted prefix [batch]."""
    import torch

    drafts = ratio.shape[1]
    prefix = torch.empty_like(ratio)
    so_far = torch.ones_like(ratio[:, 0])
    count = torch.zeros_like(so_far, dtype=torch.int64)
    for i in range(drafts):
        so_far = torch.clamp(so_far * ratio[:, i], max=1.0)
        prefix[:, i] = so_far
        chance = so_far
        if i < drafts - 1:
            left = (so_far[:, None] * x.target_probs[:, i + 1] - x.draft_probs[:, i + 1]).clamp(min=0).sum(-1)
            chance = torch.where(so_far < 1, left / (left + 1 - so_far), so_far)
        count = torch.where(x.uniform_samples[:, i] < chance, i + 1, count)
    return prefix, count


@implements("chain_verify", library="torch", name="torch_eager", platforms=ANYWHERE)
def chain_verify(x: Any) -> Any:
    import torch

    batch, slots = x.candidates.shape
    rows = torch.arange(batch, device=x.device)
    drafted = x.candidates[:, 1:, None]
    p = x.target_probs[:, :-1].gather(2, drafted).squeeze(2)
    q = x.draft_probs.gather(2, drafted).squeeze(2)
    usable = (q > 0) & (q <= 1)
    scale = torch.ones(batch, slots, device=x.device)
    if x.case.mode == "block":
        scale[:, 1:], count = _prefixes(x, torch.where(usable, p / q, 0.0))
    else:
        count = (usable & (x.uniform_samples * q < p)).int().cumprod(1).sum(1)
    row = x.target_probs[rows, count]
    draft = torch.nan_to_num(x.draft_probs[rows, count.clamp(max=slots - 2)], nan=0.0)
    rest = (scale[rows, count][:, None] * row - draft).clamp(min=0)
    final = draw_final(torch.where((count == slots - 1)[:, None], row, rest), x.uniform_final)
    place = torch.arange(slots, device=x.device)
    tokens = torch.where(place < count[:, None], torch.roll(x.candidates, -1, 1), torch.where(place == count[:, None], final[:, None], -1))
    x.predicts.copy_(tokens.view(-1))
    x.accept_index.copy_(torch.where(place <= count[:, None], x.retrive_index, -1))
    x.accept_token_num.copy_(count)
