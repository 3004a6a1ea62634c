"""What a planted fault is, and the right answers that some of them spoil."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.contracts import Case, Drawn, Expected, Filtered, Inputs, op
from harness.contracts._torch import torch
from harness.providers import implements

EVERYWHERE = frozenset({"cuda", "rocm", "cpu"})
_SMALL: dict[str, dict[str, Any]] = {
    "merge_state": {"tokens": 3, "heads": 2, "dim": 16, "dtype": "fp32"},
    "mla_decode": {"batch": 2, "heads": 5, "length": 9, "dtype": "fp32"},
    "top_k_renorm": {"batch": 3, "vocab": 111, "k": 10, "form": "scalar", "dtype": "fp32", "values": "random"},
    "top_k_top_p_sample": {"batch": 3, "vocab": 111, "k": 10, "p": 1.0, "form": "scalar", "dtype": "fp32", "values": "random"},
    "chain_verify": {"batch": 2, "slots": 4, "vocab": 111},
}


@dataclass(frozen=True)
class Fault:
    """A wrong provider and the verdict it must get: `status` and `reason` of its result line (pass: mischief that harms no cell, or a clean control).

    point the axes of the case that shows it; None: the op's own
    slow  a limit passes before it is found: run it with few seconds for a cell, and more than 5 for a build
    """

    op: str
    provider: str
    status: str
    reason: str
    platforms: frozenset[str]
    slow: bool
    point: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def case(self) -> Case:
        """The case that shows it, the only one it accepts."""
        return op(self.op).axes.case(**(self.point or _SMALL[self.op]))


FAULTS: dict[str, Fault] = {}


def fault(
    op_name: str,
    status: str,
    reason: str = "",
    *,
    platforms: Collection[str] = EVERYWHERE,
    slow: bool = False,
    promises: Collection[str] | None = None,
    **point: Any,
) -> Callable[[Any], Any]:
    """Declares a function or phased class as the provider `fault_<its name>` of `op_name`, which must end as `status` and `reason` on the case of `point`."""

    def declare(made: Any) -> Any:
        name = f"fault_{made.__name__}"
        planted = FAULTS[name] = Fault(op_name, name, status, reason, frozenset(platforms), slow, point or None)

        def accepts(case: Case) -> str | None:
            return None if case == planted.case else f"planted on {planted.case.id} alone"

        return implements(op_name, library="torch", name=name, platforms=platforms, accepts=accepts, promises=promises)(made)

    return declare


def right(x: Inputs) -> tuple[torch.Tensor, ...]:
    """A right answer, in the contract's order of outputs: its reference in the dtype asked for."""
    declared = op(x.case.op)
    golden = declared.impl.reference(x, declared.resolve({}))
    return tuple(_answer(x, golden[name]) for name in declared.outputs)


def _answer(x: Inputs, expected: Expected) -> torch.Tensor:
    if isinstance(expected, Filtered):
        kept = torch.where(expected.allowed, expected.weights, 0.0)
        return (kept / kept.sum(-1, keepdim=True)).float()
    if isinstance(expected, Drawn):
        return torch.multinomial(expected.weights * expected.allowed, x.case.draws, replacement=True)
    value: torch.Tensor = expected.value  # type: ignore[union-attr]  # the ops here have no judge of their own
    return value.to(getattr(expected, "dtype", None) or torch.float32)
