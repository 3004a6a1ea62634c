"""Relations of paged caches: where a token lies must not matter."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.paging import STRAY, page_table
from harness.contracts.relations.base import Outputs, Relation, varied

POOLS = ("k_pool", "v_pool", "kv")
WORD = 1 << 16  # ids that 16 bits no longer hold begin here
EDGE = 1 << 31  # elements that a signed 32-bit offset no longer reaches begin here


def _pools(x: Any) -> dict[str, torch.Tensor]:
    return {name: vars(x)[name] for name in POOLS if name in vars(x)}


def _empty(pool: torch.Tensor, pages: int, page: int) -> torch.Tensor:
    """A pool of that many pages with STRAY everywhere."""
    return torch.full((pages, page, *pool.shape[2:]), STRAY, dtype=pool.dtype if pool.element_size() > 1 else torch.float16, device=pool.device).to(pool.dtype)


def _laid(pool: torch.Tensor, old: torch.Tensor, into: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The tokens of `old` slots of the pool at the `new` slots of another."""
    raw = [t.view(torch.uint8) if t.element_size() == 1 else t for t in (pool, into)]
    raw[1].view(-1, *raw[1].shape[2:])[new] = raw[0].view(-1, *raw[0].shape[2:])[old]
    return into


def _repaged(x: Any, outputs: Outputs) -> list[Inputs]:
    page = 16 if x.case.page == 1 else 1
    table = page_table(Draw("relation:repaged", 0, x.device), [len(slots) for slots in x.slots], page)
    old, new = torch.cat(x.slots), torch.cat(table.slots)
    pools = {name: _laid(pool, old, _empty(pool, table.count, page), new) for name, pool in _pools(x).items()}
    return [varied(x, {"page": page}, **pools, kv_indptr=table.indptr, kv_indices=table.indices, slots=table.slots)]


def _shifted(x: Any, shift: int) -> list[Inputs]:
    """Every page that many ids higher, in a pool whose other pages hold STRAY."""
    pools = {}
    for name, pool in _pools(x).items():
        pools[name] = _empty(pool, shift + len(pool), x.case.page)
        pools[name][shift:].view(torch.uint8).copy_(pool.view(torch.uint8))
    return [varied(x, None, **pools, kv_indices=x.kv_indices + shift, slots=[slots + shift * x.case.page for slots in x.slots])]


def _line(case: Case) -> int:
    """Elements of a token slot in the widest pool."""
    return case.kv_heads * max(case.dim, case.v_dim) if "kv_heads" in case.point else 576


def _size(case: Case) -> int:
    """Bytes of a token slot in all pools."""
    width = case.kv_heads * (case.dim + (case.v_dim or case.dim)) if "kv_heads" in case.point else 576
    return width * (4 if case.dtype == "fp32" else 2)


def _edge(case: Case) -> int:
    """The page that holds the first element past 31 bits."""
    return EDGE // (_line(case) * case.page)


def _plain(case: Case) -> str | None:
    return "its pages are high already" if getattr(case, "top_page", 0) else None


def tokens_in_another_order() -> Relation:
    """New rows written backwards: the pools end alike."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, k=x.k.flip(0), v=x.v.flip(0), loc=x.loc.flip(0))]

    def unfit(case: Case) -> str | None:
        return None if case.tokens > 1 else "it needs two tokens or more"

    return Relation("the new tokens in another order", vary, promise="slots", unfit=unfit)


# the shift leaves pages on both sides of the edge
PAGED = {
    "repaged": Relation("another page size, the pages scattered anew", _repaged, unfit=_plain),
    "highpages": Relation(
        "page ids on both sides of 65,536",
        lambda x, outputs: _shifted(x, WORD - int(x.kv_indices.float().median() if len(x.kv_indices) else 0)),
        unfit=_plain,
        nbytes=lambda case: (WORD + 4096) * case.page * _size(case),
    ),
    "edgepages": Relation(
        "pages on both sides of element 2^31 of the pool",
        lambda x, outputs: _shifted(x, _edge(x.case) - int(x.kv_indices.float().median() if len(x.kv_indices) else 0)),
        unfit=_plain,
        nbytes=lambda case: (_edge(case) + 4096) * case.page * _size(case),
    ),
}
