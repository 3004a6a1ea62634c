"""flashinfer.append_paged_kv_cache."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements


def _copies(case: Case) -> str | None:
    if case.cache != "samekv":
        return "FlashInfer's append copies rows of the pool's dtype"
    return "FlashInfer's append has one head dimension" if case.v_dim not in (0, case.dim) else None


@implements("kv_write", library="flashinfer", platforms={"cuda"}, accepts=_copies)
class Append:
    """The whole pool as one request whose pages are in order: a position is a slot."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        pages, page = x.k_pool.shape[:2]
        as_int = {"dtype": torch.int32, "device": x.device}
        request = torch.zeros(len(x.loc), **as_int)
        table = (torch.arange(pages, **as_int), torch.tensor([0, pages], **as_int), torch.tensor([page], **as_int))
        self.args = (x.k, x.v, request, x.loc.to(torch.int32), (x.k_pool, x.v_pool), *table)

    def run(self) -> None:
        from flashinfer import append_paged_kv_cache

        append_paged_kv_cache(*self.args)
