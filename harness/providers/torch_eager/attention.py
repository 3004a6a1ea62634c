"""Attention in plain PyTorch: scores in fp32, softmax weights in the working precision."""

from __future__ import annotations

import math
from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


def band(x: Any, request: int) -> Any:
    """bool [queries, keys] of one request: causal and window, aligned at the last query and the last key; None: everything."""
    import torch

    queries, keys = x.q_len[request], len(x.slots[request])
    if not x.causal and x.window < 0:
        return None
    ahead = torch.arange(keys, device=x.device) - (torch.arange(queries, device=x.device)[:, None] + keys - queries)
    seen = ahead <= 0 if x.causal else torch.ones_like(ahead, dtype=torch.bool)
    return seen if x.window < 0 else seen & (ahead.abs() <= x.window)


def branches(x: Any, request: int) -> Any:
    """bool [nodes, prefix + nodes] of one request: the whole prefix, then the tree."""
    import torch

    prefix = torch.ones(x.case.nodes, x.prefix_len[request], dtype=torch.bool, device=x.device)
    return torch.cat((prefix, x.tree[request]), 1)


def _one(x: Any, request: int, mask: Any) -> tuple[Any, Any]:
    import torch

    low, high = int(x.qo_indptr[request]), int(x.qo_indptr[request + 1])
    slots, dtype, group = x.slots[request], x.q.dtype, x.case.heads // x.case.kv_heads
    k, v = (flat[slots].float().repeat_interleave(group, 1).transpose(0, 1) for flat in (x.k_flat, x.v_flat))
    scores = x.q[low:high].float().transpose(0, 1) @ k.transpose(1, 2) * (x.scale * x.k_scale)
    if x.soft_cap:
        scores = x.soft_cap * torch.tanh(scores / x.soft_cap)
    for name, change in x.modified_one(request).items():
        scores = scores * change.float()[:, None] if name == "factor" else scores + change.float()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    lse = torch.logsumexp(scores, -1) if len(slots) else scores.new_full(scores.shape[:2], -math.inf)
    total = lse if x.sinks is None else torch.logaddexp(lse, x.sinks[:, None])
    weights = torch.exp(scores - total.masked_fill(total == -math.inf, 0.0)[..., None]).to(dtype)
    o = (weights.float() @ v * x.v_scale).to(dtype)
    return o.transpose(0, 1), lse.transpose(0, 1)


def _all(x: Any, mask: Any) -> tuple[Any, Any]:
    import torch

    o, lse = zip(*(_one(x, request, mask(x, request)) for request in range(x.case.batch)), strict=True)
    return torch.cat(o), torch.cat(lse)


@implements("decode_attention", library="torch", name="torch_eager", platforms=ANYWHERE)
def decode(x: Any) -> Any:
    """A loop over requests."""
    return _all(x, band)


@implements("extend_attention", library="torch", name="torch_eager", platforms=ANYWHERE)
def extend(x: Any) -> Any:
    """A loop over requests."""
    return _all(x, band)


@implements("verify_attention", library="torch", name="torch_eager", platforms=ANYWHERE)
def verify(x: Any) -> Any:
    """A loop over requests."""
    return _all(x, branches)


@implements("positioned_attention", library="torch", name="torch_eager", platforms=ANYWHERE)
def positioned(x: Any) -> Any:
    """A loop over requests."""
    return _all(x, band)
