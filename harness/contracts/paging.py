"""A paged KV pool with scattered pages and ragged lengths, as every attention family uses it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.contracts._torch import torch
from harness.contracts.inputs import Draw

STRAY = 64.0  # what lies where nothing should be read: one such token in thousands shows, and weight 0 hides it

LENGTHS = ("uniform", "ragged", "empty")


@dataclass(frozen=True)
class Pages:
    """`indptr` int32 [batch + 1] over pages, `indices` int32 [pages used] (scattered page ids), `lengths` int32 [batch] in
    tokens, `slots` one int64 tensor a request: where each token lies in the pool flattened to tokens; `count` pages in the pool."""

    indptr: torch.Tensor
    indices: torch.Tensor
    lengths: torch.Tensor
    slots: list[torch.Tensor]
    count: int

    def fill_unowned(self, pool: torch.Tensor, value: float = STRAY) -> torch.Tensor:
        """The pool [pages, page_size, ...] with the value in every slot that no request owns, page tails included; in place."""
        stray = torch.ones(pool.shape[0] * pool.shape[1], dtype=torch.bool, device=pool.device)
        stray[torch.cat(self.slots)] = False
        pool.view(-1, *pool.shape[2:])[stray] = value
        return pool


def ragged(draw: Draw, batch: int, length: int, kind: str, low: int = 1) -> list[int]:
    """Sequence lengths: all `length` (uniform), hashed in [low, length] with one at `length` (ragged), or the same with every third 0 (empty)."""
    if kind == "uniform":
        return [length] * batch
    lengths = draw.integers(batch, low=min(low, length), high=length + 1).tolist()
    lengths[0] = length
    if kind == "empty":
        lengths = [0 if i % 3 == 1 or batch == 1 else n for i, n in enumerate(lengths)]
    return lengths


def below_pages(batch: int, length: int, page_size: int, top_page: int) -> str | None:
    """Why no pool whose highest page id in use is `top_page` (0: any) holds these requests, or None."""
    pages = batch * -(-length // page_size)
    least = pages + max(2, pages // 4) - 1  # what the scattered pages of the pool may reach
    return None if top_page == 0 or top_page >= least else f"its pages have ids up to {least}, above {top_page}"


def page_table(draw: Draw, lengths: list[int], page_size: int, *, first: bool = True) -> Pages:
    """Scattered pages for these lengths in a pool with one spare page in four, none of them in order. Without `first`, page 0 is nobody's, as
    servers keep it for padding."""
    needed = [-(-n // page_size) for n in lengths]
    total = sum(needed)
    count = total + max(2, total // 4)
    shuffled = draw.permutation(count)
    order = (shuffled if first else shuffled[shuffled != 0])[:total].to(torch.int64)
    bounds = [0]
    slots = []
    for n, pages in zip(lengths, needed, strict=True):
        ids = order[bounds[-1] : bounds[-1] + pages]
        bounds.append(bounds[-1] + pages)
        token = torch.arange(n, device=draw.device)
        slots.append(ids[token // page_size] * page_size + token % page_size)

    def as_int(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=draw.device)

    return Pages(as_int(bounds), order.to(torch.int32), as_int(lengths), slots, count)
