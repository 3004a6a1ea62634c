"""Relations of head counts: heads added and cut off again, the remedy where a kernel takes 16 heads and a model has 12."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied

TILE = 16


def _groups(case: Case) -> int:
    return int(case.point.get("kv_heads", 1))


def _wanted(case: Case) -> int:
    """Heads a group with the added ones: the next multiple of 16 where all share their keys, the next power of two in a group of GQA."""
    count: int = case.heads // _groups(case)
    return (count // TILE + 1) * TILE if _groups(case) == 1 else 1 << count.bit_length()


def padded_heads(case: Case) -> int:
    """Heads of the case once they are padded."""
    return _groups(case) * _wanted(case)


def _parted(tensor: torch.Tensor, axis: int, groups: int) -> torch.Tensor:
    """[..., groups, heads a group, ...]."""
    shape = tensor.shape
    return tensor.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _grown(tensor: torch.Tensor, axis: int, case: Case, fill: str) -> torch.Tensor:
    groups, wanted = _groups(case), _wanted(case)
    parted = _parted(tensor, axis, groups)
    count = parted.shape[axis + 1]
    grown = parted.index_select(axis + 1, torch.arange(wanted, device=tensor.device) % count) if tensor.element_size() > 1 else _bytes(parted, axis + 1, wanted)
    if fill == "zeros":
        grown.narrow(axis + 1, count, wanted - count).zero_()
    return grown.flatten(axis, axis + 1)


def _bytes(parted: torch.Tensor, axis: int, wanted: int) -> torch.Tensor:
    """As above for fp8, which torch does not index."""
    place = torch.arange(wanted, device=parted.device) % parted.shape[axis]
    return parted.view(torch.uint8).index_select(axis, place).view(parted.dtype)


def padded(inputs: Mapping[str, int], outputs: Mapping[str, int]) -> dict[str, Relation]:
    """padheads and repheads: zero heads, or the first ones again, behind those of each group; `inputs` and `outputs` name the axis of the heads."""

    def vary(fill: str) -> Any:
        def made(x: Any, _: Outputs) -> list[Inputs]:
            held = {name: (value, axis) for name, axis in inputs.items() if isinstance(value := vars(x).get(name), torch.Tensor)}
            fields = {name: _grown(value, axis, x.case, fill) for name, (value, axis) in held.items()}
            return [varied(x, {"heads": padded_heads(x.case)}, **fields)]

        return made

    def cut(x: Any, called: list[Outputs]) -> Outputs:
        groups, count = _groups(x.case), x.case.heads // _groups(x.case)
        return {name: _parted(value, at := outputs[name], groups).narrow(at + 1, 0, count).flatten(at, at + 1) for name, value in called[0].items()}

    return {
        "padheads": Relation("zero heads added to each group and cut off again", vary("zeros"), cut),
        "repheads": Relation("heads of each group repeated and cut off again", vary("repeated"), cut),
    }
