"""SGLang's PyTorch selection of the indexer's tokens."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import resolve

TOPK = ("sglang.srt.layers.attention.dsa.dsa_topk_backend:_topk_unfused", "sglang.srt.layers.attention.nsa.nsa_topk_backend:_topk_unfused")


@implements("indexer_topk", library="sglang", name="sglang_torch", platforms={"cuda", "rocm", "cpu"})
def indexer_topk(x: Any) -> Any:
    """--dsa-topk-backend torch."""
    import torch

    return resolve(*TOPK)(x.scores, x.lengths, x.k, row_starts=x.row_starts, topk_op=torch.topk, topk_op_kwargs={"dim": -1})
