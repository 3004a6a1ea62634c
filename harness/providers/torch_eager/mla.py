"""MLA in plain PyTorch: products in the working precision, softmax in fp32, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


def _attend(q: Any, k: Any, v: Any, scale: float) -> Any:
    """q [queries, heads, d], k [keys, heads or 1, d], v [keys, heads or 1, dv]: causal, aligned at the last key -> o, lse."""
    import torch

    count, keys = q.shape[0], k.shape[0]
    scores = torch.matmul(q.transpose(0, 1).float(), k.permute(1, 2, 0).float()) * scale
    hidden = torch.ones(count, keys, dtype=torch.bool, device=q.device).triu(keys - count + 1)
    scores = scores.masked_fill(hidden, float("-inf"))
    lse = torch.logsumexp(scores, -1) if keys else scores.new_full(scores.shape[:2], float("-inf"))
    weights = torch.exp(scores - lse.masked_fill(lse.isinf(), 0.0)[..., None]).to(v.dtype)
    return torch.matmul(weights, v.transpose(0, 1)).transpose(0, 1), lse.T


def _requests(x: Any) -> Iterator[tuple[int, slice]]:
    bounds = x.qo_indptr.tolist()
    for request, count in enumerate(x.q_len):
        if count:
            yield request, slice(bounds[request], bounds[request + 1])


@implements("mla_prefill_absorbed", library="torch", name="torch_eager", platforms=ANYWHERE)
@implements("mla_decode", library="torch", name="torch_eager", platforms=ANYWHERE)
def absorbed(x: Any) -> Any:
    import torch

    from harness.contracts import dtype_of

    dtype = dtype_of(x.case.dtype)
    flat = x.kv.view(-1, 576)
    states = []
    for request, rows in _requests(x):
        kv = (flat[x.slots[request]].to(dtype) * x.kv_scale)[:, None]
        states.append(_attend(x.q[rows].to(dtype) * x.q_scale, kv, kv[..., :512], x.scale))
    return torch.cat([o for o, _ in states]), torch.cat([lse for _, lse in states])


@implements("mla_prefill", library="torch", name="torch_eager", platforms=ANYWHERE)
def explicit(x: Any) -> Any:
    import torch

    bounds = x.kv_indptr.tolist()
    states = []
    for request, rows in _requests(x):
        keys = slice(bounds[request], bounds[request + 1])
        states.append(_attend(x.q[rows], x.k[keys], x.v[keys], x.scale))
    return torch.cat([o for o, _ in states]), torch.cat([lse for _, lse in states])


@implements("concat_mla_k", library="torch", name="torch_eager", platforms=ANYWHERE)
def concat_mla_k(x: Any) -> Any:
    import torch

    return torch.cat((x.k_nope, x.k_rope.expand(-1, x.case.heads, -1)), -1)


@implements("concat_mla_absorb_q", library="torch", name="torch_eager", platforms=ANYWHERE)
def concat_mla_absorb_q(x: Any) -> Any:
    import torch

    return torch.cat((x.q_nope, x.q_rope), -1)
