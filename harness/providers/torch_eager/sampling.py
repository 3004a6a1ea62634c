"""Sampling ops in plain PyTorch."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


@implements("top_k_renorm", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties": "all"})
def top_k_renorm(x: Any) -> Any:
    import torch

    vocab = x.probs.shape[-1]
    k = torch.as_tensor(x.top_k, device=x.device).long().expand(x.probs.shape[0])
    k = torch.where((k <= 0) | (k > vocab), vocab, k)
    kth = torch.sort(x.probs, dim=-1, descending=True).values.gather(1, k[:, None] - 1)
    kept = x.probs.masked_fill(x.probs < kth, 0.0)
    return kept / kept.sum(-1, keepdim=True)
