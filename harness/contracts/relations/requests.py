"""Relations of ragged batches: requests in another order, and each alone."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied
from harness.contracts.relations.rows import ALONE, joined

_BY_QUERY = ("k_new", "v_new")


def bounds(lengths: list[int], device: str) -> torch.Tensor:
    """int32 [n + 1]: the running sum of the lengths."""
    return torch.nn.functional.pad(torch.tensor(lengths, dtype=torch.int64, device=device).cumsum(0), (1, 0)).to(torch.int32)


def _rows(indptr: torch.Tensor, order: list[int]) -> torch.Tensor:
    """int64: the rows of these requests, one request after the other."""
    ends: list[int] = indptr.tolist()
    return torch.cat([torch.arange(ends[i], ends[i + 1], device=indptr.device) for i in order])


def chosen(x: Any, order: list[int]) -> Any:
    """The inputs of these requests in this order, on the same pool."""
    held = vars(x)
    rows, q_len = _rows(x.qo_indptr, order), [x.q_len[i] for i in order]
    fields: dict[str, Any] = {"q": x.q[rows], "q_len": q_len, "qo_indptr": bounds(q_len, x.device)}
    fields |= {name: held[name][rows] for name in _BY_QUERY if name in held}
    if "prefix_len" in held:
        fields["prefix_len"] = [x.prefix_len[i] for i in order]
    if "tree" in held:
        fields["tree"] = x.tree[order]
    counts = x.kv_indptr.diff().tolist()
    if "slots" in held:
        fields |= {"slots": [x.slots[i] for i in order], "kv_len": x.kv_len[order], "kv_indices": x.kv_indices[_rows(x.kv_indptr, order)]}
    else:
        keys = _rows(x.kv_indptr, order)
        fields |= {"k": x.k[keys], "v": x.v[keys]}
    return varied(x, {"batch": len(order)}, **fields, kv_indptr=bounds([counts[i] for i in order], x.device))


def _order(count: int) -> list[int]:
    """Backwards: a rotation would leave most requests their neighbours."""
    return list(range(count))[::-1]


def _slots(x: Any, outputs: Outputs) -> list[Inputs]:
    return [chosen(x, _order(x.case.batch))]


def _unslot(x: Any, called: list[Outputs]) -> Outputs:
    back = torch.argsort(_rows(x.qo_indptr, _order(x.case.batch)))
    return {name: value[back] for name, value in called[0].items()}


def _alone(x: Any, outputs: Outputs) -> list[Inputs]:
    return [chosen(x, [request]) for request in range(x.case.batch)]


def _several(case: Case) -> str | None:
    return None if case.batch > 1 else "it needs two requests or more"


def _few(case: Case) -> str | None:
    if getattr(case, "lengths", "uniform") not in ("uniform", "ragged"):
        return "a request alone may have no query or no key"
    return _several(case) or (None if case.batch <= ALONE else f"it calls at most {ALONE} requests one by one")


RAGGED = {
    "slots": Relation("the requests in another order", _slots, _unslot, promise="slots", unfit=_several),
    "alone": Relation("each request alone", _alone, joined, promise="alone", unfit=_few),
}
