"""Checks that the stand-in's functions share: what a kernel would read, it must be given."""

from __future__ import annotations

import itertools
from typing import Any

import torch

FP8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
WORDS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float8_e4m3fn: "fp8", torch.float8_e4m3fnuz: "fp8"}


def need(condition: bool, what: str) -> None:
    """What AITER does not check and a device would answer with a wild read: the process ends."""
    from standin.kernels import abort

    if not condition:
        abort(f"memory access fault: {what}")


def integers(**tensors: Any) -> None:
    """Index tensors must be int32 and contiguous: kernels take their pointers."""
    for name, tensor in tensors.items():
        need(isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int32 and tensor.is_contiguous(), f"{name} is no contiguous int32 tensor")


def bounds(indptr: torch.Tensor, total: int, name: str) -> list[int]:
    """The running sums of an indptr that starts at 0, never falls and stays within `total`."""
    values = indptr.tolist()
    need(len(values) > 1 and values[0] == 0 and all(a <= b for a, b in itertools.pairwise(values)) and values[-1] <= total, f"{name} = {values[:8]}")
    return values


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: torch.Tensor, cap: float = 0.0, sinks: Any = None) -> tuple[Any, Any]:
    """fp64 attention of q [n, heads, d] over k [m, heads, d], v [m, heads, dv]; mask [n, m] -> o [n, heads, dv], natural lse [n, heads]."""
    scores = torch.einsum("nhd,mhd->nhm", q.double(), k.double()) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    lse = torch.logsumexp(scores, -1)
    total = lse if sinks is None else torch.logaddexp(lse, sinks.double())
    weights = torch.exp(scores - total.masked_fill(total.isinf(), 0.0)[..., None])
    return torch.einsum("nhm,mhd->nhd", weights, v.double()), lse


def causal(queries: int, keys: int) -> torch.Tensor:
    """bool [queries, keys], aligned at the last key."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
