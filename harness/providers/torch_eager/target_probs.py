"""Verify target probabilities in plain PyTorch, fp32."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.torch_eager.speculative import ANYWHERE


@implements("softmax_temp", library="torch", name="torch_eager", platforms=ANYWHERE)
def softmax_temp(x: Any) -> Any:
    return (x.logits.float() / x.temperatures.repeat_interleave(x.case.slots, 0)).softmax(-1)


@implements("verify_target_probs", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties_k": "exactly-k", "ties_p": "by-rank"})
def verify_target_probs(x: Any) -> Any:
    import torch

    probs, ids = torch.sort(softmax_temp(x), dim=-1, descending=True, stable=True)
    rank = torch.arange(x.case.vocab, device=x.device)
    probs = probs.masked_fill(rank >= x.top_ks.repeat_interleave(x.case.slots)[:, None], 0.0)
    probs = probs / probs.sum(-1, keepdim=True)
    top_p = x.top_ps.repeat_interleave(x.case.slots)[:, None]
    before = probs.cumsum(-1) - probs
    probs = probs.masked_fill((before >= top_p) & (top_p < 1) & (rank > 0), 0.0)
    probs = probs / probs.sum(-1, keepdim=True)
    return torch.zeros_like(probs).scatter_(1, ids, probs).view(x.case.batch, x.case.slots, -1)
