"""kv_indices and kv_page_table: from SGLang's request-to-token table to what attention kernels read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.attention.batch import indptr
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Exact
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, page_table, ragged
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided, varied
from harness.contracts.relations.requests import bounds
from harness.contracts.relations.tables import backwards, each

_AXES = (
    number("batch", "b", "requests"),
    number("length", "s", "longest number of tokens of a request", least=0, search=(0, 4097)),
    number("page", "pg", "page size in tokens", default=1, search=(1, 128)),
    words("lengths", LENGTHS, "token counts of the requests", default="uniform"),
    words("start", ("begin", "later"), "later: the wanted tokens start at a hashed position of each request, at a page", default="begin"),
)

_REQUESTS = ("req_pool_indices", "lengths", "starts", "ahead", "counts")


def _ended(x: Any) -> Any:
    return varied(x, indptr=bounds(x.counts, x.device))


def _draw(case: Case, draw: Draw) -> Inputs:
    counts = ragged(draw, case.batch, case.length, case.lengths)
    ahead = (draw.integers(case.batch, low=0, high=4) * case.page).tolist() if case.start == "later" else [0] * case.batch
    pages = page_table(draw, [n + m for n, m in zip(counts, ahead, strict=True)], case.page)
    rows = case.batch + 3
    width = max(1, max(map(len, pages.slots))) + 5
    table = draw.integers(rows, width, low=0, high=1 << 30).to(torch.int32)  # what no request owns is noise
    owner = draw.permutation(rows)[: case.batch]
    if "holes" in case.point.values():
        pages.slots[:] = [slots.masked_fill(draw.integers(len(slots), low=0, high=5) == 0, -1) for slots in pages.slots]
    for row, slots in zip(owner.tolist(), pages.slots, strict=True):
        table[row, : len(slots)] = slots.to(torch.int32)
    return Inputs(
        case,
        draw.device,
        req_to_token=table,
        req_pool_indices=owner,
        lengths=torch.tensor(counts, dtype=torch.int32, device=draw.device),
        starts=torch.tensor(ahead, dtype=torch.int32, device=draw.device) if case.start == "later" else None,
        indptr=indptr(counts, draw.device),
        ahead=ahead,
        counts=counts,
    )


def _gathered(x: Inputs, step: int) -> list[torch.Tensor]:
    """Each request's wanted tokens, every `step`-th."""
    rows = x.req_to_token[x.req_pool_indices]
    return [row[m : m + n : step] for row, m, n in zip(rows, x.ahead, x.counts, strict=True)]


@contract("attention")
class kv_indices:
    """The flat list of token slots of a batch.

    req_to_token int32 [rows, width]; req_pool_indices int64 [batch] picks each request's row; lengths int32 [batch]; starts int32
    [batch] or None (0); indptr int32 [batch + 1] -> kv_indices, any integer dtype, [sum of lengths]. A token without a slot (holes)
    is -1 in the table and in the list.
    """

    axes = (*_AXES, words("holes", ("full", "holes"), "holes: some tokens have no slot any more, as behind a sliding window", default="full"))
    outputs = ("kv_indices",)
    relations = {
        "slots": backwards("batch", *_REQUESTS, entries={"kv_indices": lambda x: x.counts}, remake=_ended),
        "strided": strided("req_to_token"),
    }
    semantics: dict[str, tuple[str, ...]] = {}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return _draw(case, draw)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        return {"kv_indices": Exact(torch.cat(_gathered(x, 1)).long())}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """By the position of each output: its request from indptr, its column from what is left."""
        at = torch.arange(sum(x.counts), device=x.device)
        request = torch.searchsorted(x.indptr.long()[1:], at, right=True)
        column = at - x.indptr.long()[request] + torch.tensor(x.ahead, device=x.device)[request]
        return {"kv_indices": x.req_to_token.long()[x.req_pool_indices[request], column]}

    def work(self, case: Case) -> Work:
        return Work(0, case.batch * case.length * 12)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        yield {"batch": 3, "length": 40, "lengths": "ragged"} if small else {"batch": 64, "length": 4096, "lengths": "ragged"}


@contract("attention")
class kv_page_table:
    """The page table of a batch: inputs as kv_indices -> page_table, any integer dtype, [batch, most pages], the page id of each
    page of the wanted tokens; entries past a request's last page are left open."""

    axes = _AXES
    outputs = ("page_table",)
    relations = {
        "slots": backwards("batch", *_REQUESTS, entries={"page_table": each("batch")}, remake=_ended),
        "strided": strided("req_to_token"),
    }
    semantics: dict[str, tuple[str, ...]] = {}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return _draw(case, draw)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        rows = [row.long() // x.case.page for row in _gathered(x, x.case.page)]
        width = max(1, max(map(len, rows)))
        table = torch.zeros(len(rows), width, dtype=torch.int64, device=x.device)
        for i, row in enumerate(rows):
            table[i, : len(row)] = row
        used = torch.arange(width, device=x.device) < torch.tensor([len(row) for row in rows], device=x.device)[:, None]
        return {"page_table": Exact(table, where=used)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Column by column, for all requests at once."""
        columns = []
        ahead, counts = (torch.tensor(values, device=x.device) for values in (x.ahead, x.counts))
        for page in range(max(1, -(-max(x.counts) // x.case.page))):
            position = page * x.case.page
            token = x.req_to_token.long()[x.req_pool_indices, (ahead + position).clamp_max(x.req_to_token.shape[1] - 1)]
            columns.append(torch.where(position < counts, token // x.case.page, 0))
        return {"page_table": torch.stack(columns, 1)}

    def work(self, case: Case) -> Work:
        return Work(0, case.batch * -(-case.length // case.page) * 8)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        yield {"batch": 3, "length": 40, "page": 16} if small else {"batch": 64, "length": 4096, "page": 64, "lengths": "ragged"}
