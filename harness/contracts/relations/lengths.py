"""A relation of requests that grow: a graph captured while they are short must hold when they are long."""

from __future__ import annotations

from typing import Any

from harness.contracts.axes import Case
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation
from harness.contracts.relations.keys import on_pages, pages_of

_LENGTHS = ("kv_len", "kv_indptr", "kv_indices")


def _owned(x: Any, outputs: Outputs) -> list[Inputs]:
    """The same inputs with length tensors of their own, which the provider may overwrite."""
    return [x.copy_with(**{name: vars(x)[name].clone() for name in _LENGTHS})]


def _short(x: Any) -> Any:
    """Each request with as many keys as queries, as a server captures its graphs; on its first pages."""
    page = x.case.page
    lengths = [min(n, queries) for n, queries in zip(x.kv_len.tolist(), x.q_len, strict=True)]
    return on_pages(x, [own[: -(-n // page)] for own, n in zip(pages_of(x), lengths, strict=True)], lengths)


def _grows(case: Case) -> str | None:
    longer = case.prefix > 0 if "prefix" in case.point else case.length > case.point.get("queries", 1)
    return None if longer else "it needs more keys than queries"


LONGER = {"longer": Relation("a graph captured with as many keys as queries, replayed with all of them", _owned, how="refilled", captured=_short, unfit=_grows)}
