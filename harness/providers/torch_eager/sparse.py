"""Sparse MLA and its index tables in plain PyTorch."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


@implements("sparse_mla_decode", library="torch", name="torch_eager", platforms=ANYWHERE)
@implements("sparse_mla_prefill", library="torch", name="torch_eager", platforms=ANYWHERE)
def sparse_mla(x: Any) -> Any:
    """Gathered keys; products in the working precision, softmax in fp32; in pieces that fit in memory."""
    import torch

    from harness.contracts import dtype_of

    dtype, indices = dtype_of(x.case.dtype), x.indices[:, 0].long()
    step = max(1, (1 << 27) // (x.case.k * 576))
    states = []
    for low in range(0, x.case.tokens, step):
        rows = slice(low, low + step)
        kv = x.kv[indices[rows].clamp_min(0), 0].to(dtype)
        scores = torch.matmul(x.q[rows].float(), kv.float().transpose(1, 2)) * x.scale
        scores = scores.masked_fill((indices[rows] < 0)[:, None], float("-inf"))
        lse = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - lse.masked_fill(lse.isinf(), 0.0)[..., None]).to(dtype)
        states.append((torch.matmul(weights, kv[..., :512]), lse))
    return torch.cat([o for o, _ in states]), torch.cat([lse for _, lse in states])


@implements("indexer_topk", library="torch", name="torch_eager", platforms=ANYWHERE)
def indexer_topk(x: Any) -> Any:
    import torch

    column = torch.arange(x.scores.shape[1], device=x.device)
    start = torch.zeros_like(x.lengths) if x.row_starts is None else x.row_starts
    inside = (column >= start[:, None]) & (column < (start + x.lengths)[:, None])
    best = torch.topk(x.scores.masked_fill(~inside, float("-inf")), min(x.k, x.scores.shape[1]), dim=-1)
    indices = (best.indices - start[:, None]).masked_fill(best.values == float("-inf"), -1)
    return torch.nn.functional.pad(indices, (0, x.k - indices.shape[1]), value=-1).to(torch.int32)


@implements("topk_page_table", library="torch", name="torch_eager", platforms=ANYWHERE)
def topk_page_table(x: Any) -> Any:
    import torch

    return torch.where(x.indices < 0, -1, x.page_table.gather(1, x.indices.clamp_min(0).long()))


@implements("valid_kv_indices", library="torch", name="torch_eager", platforms=ANYWHERE)
def valid_kv_indices(x: Any) -> Any:
    import torch

    kept = x.slots[x.slots >= 0]
    return torch.nn.functional.pad(kept, (0, x.slots.numel() - kept.numel()), value=-1)
