"""Relations of ops that treat each row (request, token) by itself."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied

ALONE = 8  # most rows that are called one by one


def _take(tensor: torch.Tensor, order: torch.Tensor, rows: int) -> torch.Tensor:
    """Rows in that order; a row may be several lines of the tensor (the slots of a request)."""
    return tensor.view(rows, len(tensor) // rows, *tensor.shape[1:])[order].flatten(0, 1)


def _order(count: int, device: str) -> torch.Tensor:
    """Backwards: a rotation would leave most rows their neighbours."""
    return torch.arange(count - 1, -1, -1, device=device)


def several(axis: str, most: int | None = None) -> Any:
    """Why a law of several rows says nothing of a case with one, or with more than `most`."""

    def unfit(case: Case) -> str | None:
        count = case.point[axis]
        if count < 2:
            return f"it needs two {axis} rows or more"
        return f"it calls at most {most} rows one by one" if most and count > most else None

    return unfit


def _chosen(x: Any, order: torch.Tensor, axis: str, names: tuple[str, ...]) -> Any:
    count = x.case.point[axis]
    held = {name: value for name in names if isinstance(value := getattr(x, name), torch.Tensor)}
    return varied(x, {axis: len(order)}, **{name: _take(value, order, count) for name, value in held.items()})


def row_by_row(axis: str, *names: str) -> dict[str, Relation]:
    """slots and alone: `axis` counts the rows, `names` are the inputs that hold a line or several of each; outputs hold the rows in order."""

    def slots(x: Any, outputs: Outputs) -> list[Inputs]:
        return [_chosen(x, _order(x.case.point[axis], x.device), axis, names)]

    def unslot(x: Any, called: list[Outputs]) -> Outputs:
        count = x.case.point[axis]
        back = torch.argsort(_order(count, x.device))
        return {name: _take(value, back, count) for name, value in called[0].items()}

    def alone(x: Any, outputs: Outputs) -> list[Inputs]:
        return [_chosen(x, torch.tensor([row], device=x.device), axis, names) for row in range(x.case.point[axis])]

    return {
        "slots": Relation("the rows in another order", slots, unslot, promise="slots", unfit=several(axis)),
        "alone": Relation("each row alone", alone, joined, promise="alone", unfit=several(axis, ALONE)),
    }


def joined(x: Any, called: list[Outputs]) -> Outputs:
    """The outputs of several calls one behind the other."""
    return {name: torch.cat([outputs[name] for outputs in called]) for name in called[0]}


def neighbours(**others: float) -> Relation:
    """Every second row with other parameters (name -> value); the rows between must not care."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        changed = {}
        for name, value in others.items():
            given = getattr(x, name)
            changed[name] = given.clone()
            changed[name][1::2] = value
        return [varied(x, **changed)]

    def even(x: Any, outputs: Outputs) -> Outputs:
        return {name: value[::2] for name, value in outputs.items()}

    def unfit(case: Case) -> str | None:
        return None if case.batch > 1 and case.form != "scalar" else "it needs two rows or more with parameters of their own"

    return Relation("other parameters in every second row", vary, lambda x, called: even(x, called[0]), even, promise="slots", unfit=unfit)
