"""Relations of flags: turned off where it matters, a flag must change the result, or the call took it and ignored it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied


def _itself(x: Any) -> Any:
    return x


def turned_off(axis: str, off: Any, *, remake: Callable[[Any], Any] = _itself, **fields: Any) -> Relation:
    """The axis at its value `off` and these fields with it, in the form they have; `remake` brings in order what else follows from them."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        kept = {
            name: torch.full_like(given, value) if isinstance(given := getattr(x, name), torch.Tensor) and value is not None else value
            for name, value in fields.items()
        }
        return [remake(varied(x, {axis: off}, **kept))]

    def unfit(case: Case) -> str | None:
        return f"{axis} is off already" if case.point[axis] == off else None

    return Relation(f"{axis.replace('_', ' ')} turned off", vary, off=True, unfit=unfit)


def attention_flags(*, window: bool = True, remake: Callable[[Any], Any] = _itself) -> dict[str, Relation]:
    """Soft cap, sinks, scales and window."""
    flags = {
        "uncapped": turned_off("soft_cap", 0.0, soft_cap=0.0),
        "unsunk": turned_off("sinks", "nosinks", sinks=None),
        "unscaled": turned_off("scales", "unit", k_scale=1.0, v_scale=1.0, remake=remake),
    }
    return flags | ({"unwindowed": turned_off("window", -1, window=-1)} if window else {})
