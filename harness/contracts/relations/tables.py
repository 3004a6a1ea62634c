"""Relations of index tables and trees, whose outputs hold more entries of one request than of another, or number the rows of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied
from harness.contracts.relations.rows import several

Entries = Callable[[Any], list[int]]


def _itself(x: Any) -> Any:
    return x


def backwards(axis: str, *names: str, entries: Mapping[str, Entries], remake: Callable[[Any], Any] = _itself) -> Relation:
    """The requests (or rows) in another order.

    axis     counts them
    names    the inputs, tensors or lists, that hold one line of each; what holds numbers of rows stays as it is
    entries  output -> how many of its entries each request has, in order; only these outputs are compared, and what lies behind stays
    remake   brings in order what follows from the order: running sums
    """

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        held = {name: value for name in names if (value := getattr(x, name)) is not None}
        return [remake(varied(x, **{name: value.flip(0) if isinstance(value, torch.Tensor) else value[::-1] for name, value in held.items()}))]

    def part(x: Any, outputs: Outputs) -> Outputs:
        return {name: value for name, value in outputs.items() if name in entries}

    def back(x: Any, called: list[Outputs]) -> Outputs:
        found = {}
        for name, value in part(x, called[0]).items():
            counts = entries[name](x)[::-1]
            *turned, rest = torch.split(value, [*counts, len(value) - sum(counts)])
            found[name] = torch.cat([*turned[::-1], rest])
        return found

    return Relation("the rows in another order", vary, back, part, promise="slots", unfit=several(axis))


def each(axis: str, entries: int | str = 1) -> Entries:
    """As many entries of every request: a number, or the value of an axis."""
    return lambda x: [x.case.point[entries] if isinstance(entries, str) else entries] * x.case.point[axis]
