"""In plain PyTorch, what a verification calls kernels for: its two filters, and the acceptance of a chain of drafts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.providers.torch_eager.speculative import chain_verify


def sort_mask_divide(probs: Any, top_k: Any) -> Any:
    """The cure for top-k: sort, mask what stands at rank k and beyond, divide by what is left."""
    import torch

    ordered, ids = probs.sort(dim=-1, descending=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    ordered = ordered.masked_fill(rank >= top_k.view(-1, 1).clamp(max=probs.shape[-1]), 0.0)
    return torch.zeros_like(probs).scatter_(-1, ids, ordered / ordered.sum(-1, keepdim=True))


def sort_sum_divide(probs: Any, top_p: Any) -> Any:
    """The cure for top-p: sort, mask what stands behind a sum of p, divide by what is left."""
    import torch

    ordered, ids = probs.sort(dim=-1, descending=True)
    ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered > top_p.view(-1, 1), 0.0)
    return torch.zeros_like(probs).scatter_(-1, ids, ordered / ordered.sum(-1, keepdim=True))


def accept_chain(
    *, candidates: Any, target_probs: Any, draft_probs: Any, uniform_samples: Any, uniform_samples_for_final_sampling: Any, **buffers: Any
) -> None:
    """Token-by-token acceptance into the buffers, by the names of SGLang's kernel; thresholds of 1 and the chain's links are what it takes as given."""
    filled = {name: buffers[name] for name in ("predicts", "accept_index", "accept_token_num", "retrive_index")}
    chain_verify(
        SimpleNamespace(
            case=SimpleNamespace(mode="token"),
            device=candidates.device,
            candidates=candidates,
            target_probs=target_probs,
            draft_probs=draft_probs,
            uniform_samples=uniform_samples,
            uniform_final=uniform_samples_for_final_sampling,
            **filled,
        )
    )
