"""Acceptance of a block of drafts in plain PyTorch."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.torch_eager.speculative import ANYWHERE


def _accepted(candidates: Any, predict: Any) -> Any:
    import torch

    return (candidates[:, 1:] == predict[:, :-1]).to(torch.int32).cumprod(1).sum(1)


def _at(table: Any, index: Any) -> Any:
    return table.gather(1, index.long()[:, None]).squeeze(1)


@implements("dflash_accept", library="torch", name="torch_eager", platforms=ANYWHERE)
def dflash_accept(x: Any) -> Any:
    count = _accepted(x.candidates, x.target_predict)
    return count.int(), _at(x.target_predict, count)


@implements("dflash_commit", library="torch", name="torch_eager", platforms=ANYWHERE)
def dflash_commit(x: Any) -> Any:
    import torch

    count = _accepted(x.candidates, x.target_predict)
    bonus = _at(x.target_predict, count)
    tokens = torch.roll(x.candidates, -1, 1).scatter(1, count[:, None], bonus[:, None])
    return count, count + 1, bonus, tokens, x.prefix_lens + count + 1


@implements("dspark_accept_greedy", library="torch", name="torch_eager", platforms=ANYWHERE)
def dspark_accept_greedy(x: Any) -> Any:
    import torch

    predict = x.target_logits.argmax(-1).view(x.case.batch, x.case.slots)
    count = _accepted(x.candidates, predict)
    kept = count if x.verify_lens is None else torch.minimum(count, x.verify_lens - 1)
    return kept, _at(predict, kept), count - kept


@implements("dspark_cap_len", library="torch", name="torch_eager", platforms=ANYWHERE)
def dspark_cap_len(x: Any) -> Any:
    capped = x.correct_len.clamp(max=x.verify_lens - 1)
    return capped, x.correct_len - capped


@implements("dspark_finalize_lens", library="torch", name="torch_eager", platforms=ANYWHERE)
def dspark_finalize_lens(x: Any) -> Any:
    commit = x.correct_len + 1
    return commit, x.prefix_lens + commit, x.cap_trim_lens


@implements("dspark_select_mixed", library="torch", name="torch_eager", platforms=ANYWHERE)
def dspark_select_mixed(x: Any) -> Any:
    import torch

    return tuple(torch.where(x.greedy_mask, getattr(x, f"greedy_{part}"), getattr(x, f"sampling_{part}")) for part in ("len", "bonus", "trim"))


@implements("dspark_accept_sampling", library="torch", name="torch_eager", platforms=ANYWHERE)
def dspark_accept_sampling(x: Any) -> Any:
    import torch

    batch, slots = x.candidates.shape
    rows = torch.arange(batch, device=x.device)
    p = (x.target_logits / x.temperatures.repeat_interleave(slots, 0)).softmax(-1).view(batch, slots, -1)
    drafted = x.candidates[:, 1:, None]
    at_p, at_q = p[:, :-1].gather(2, drafted).squeeze(2), x.draft_probs.gather(2, drafted).squeeze(2)
    raw = (torch.rand_like(at_p) * at_q < at_p).int().cumprod(1).sum(1)
    kept = raw if x.verify_lens is None else torch.minimum(raw, x.verify_lens - 1)
    left = torch.cat(((p[:, :-1] - x.draft_probs).clamp(min=0), p[:, -1:]), 1)[rows, raw]
    bonus = torch.multinomial(left, 1).squeeze(1)
    bonus = torch.where(kept < raw, _at(x.candidates, (kept + 1).clamp(max=slots - 1)), bonus)
    return kept, bonus, raw - kept
