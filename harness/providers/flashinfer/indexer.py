"""flashinfer's selection of the indexer's tokens, fused with the row's offset (0 here)."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import call


@implements("indexer_topk", library="flashinfer", platforms={"cuda"}, promises=())  # its atomics give the picks in any order
class IndexerTopk:
    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, self.offsets = x, torch.zeros_like(x.lengths)

    def run(self) -> Any:
        import flashinfer

        optional = {} if self.x.row_starts is None else {"row_starts": self.x.row_starts}
        return call(flashinfer.top_k_ragged_transform, self.x.scores, self.offsets, self.x.lengths, self.x.k, **optional)
