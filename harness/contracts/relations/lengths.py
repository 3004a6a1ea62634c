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
    """Each request with a key for each query, as a server captures its graphs, and where there are prefixes one of a token."""
    pages, prefixed = pages_of(x), "prefix" in x.case.point
    lengths = [min(n, queries + prefixed) for n, queries in zip(x.kv_len.tolist(), x.q_len, strict=True)]
    counts = [-(-n // x.case.page) for n in lengths]
    # the last tokens where a page is one: the new keys are theirs; else the first pages, which are full
    kept = [own[len(own) - count :] if x.case.page == 1 else own[:count] for own, count in zip(pages, counts, strict=True)]
    return on_pages(x, kept, lengths)


def _grows(case: Case) -> str | None:
    if "prefix" in case.point and case.page > 1:
        return "new tokens behind a shorter prefix would not lie where a page begins"
    longer = case.prefix > 1 if "prefix" in case.point else case.length > case.point.get("queries", 1)
    return None if longer else "its requests are as short as those of a capture"


LONGER = {"longer": Relation("a graph captured while the requests were short, replayed as they are now", _owned, how="refilled", captured=_short, unfit=_grows)}
