"""What a planted fault is, and the right answers that some of them spoil."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.contracts import Case, Drawn, Expected, Filtered, Inputs, op
from harness.contracts._torch import torch
from harness.errors import UsageError
from harness.providers import Provider, implements, providers
from harness.reasons import CHECKS, check_of

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

    status empty  any finding will do, or any of `check` where that is given
    check  the check that must catch it; empty: any
    point  the axes of the case that shows it; None: the op's small case, or, if `swept`, one of all the cases that a selftest has for the op
    slow   a limit passes before it is found: run it with few seconds for a cell, and more than 5 for a build
    bug    the public bug that it stands for
    source where it is declared
    """

    op: str
    provider: str
    status: str
    reason: str
    platforms: frozenset[str]
    slow: bool
    point: Mapping[str, Any] | None = field(default=None, hash=False)
    check: str = ""
    bug: str = ""
    swept: bool = False
    source: str = ""

    @property
    def case(self) -> Case:
        """The case that shows it, the only one it accepts. Not for a swept fault, which takes any."""
        return op(self.op).axes.case(**(self.point or _SMALL[self.op]))

    @property
    def made(self) -> Provider:
        """The wrong provider itself."""
        return _MADE[self.provider]


FAULTS: dict[str, Fault] = {}
_MADE: dict[str, Provider] = {}


def fault(
    op_name: str,
    status: str = "",
    reason: str = "",
    *,
    check: str = "",
    bug: str = "",
    platforms: Collection[str] = EVERYWHERE,
    slow: bool = False,
    swept: bool | None = None,
    semantics: Mapping[str, str] | None = None,
    promises: Collection[str] | None = None,
    **point: Any,
) -> Callable[[Any], Any]:
    """Declares a function or phased class as the provider `fault_<its name>` of `op_name`, which must end as `status` and `reason`.

    It runs on the case of `point`; without one, a fault of this package runs on its op's small case, any other (and one that is
    `swept`) on the cases of the op in turn until one shows it. `check` names what must catch it; without it and without a status
    any finding counts. Raises UsageError for an unknown op, check or axis, and for a name that is taken.
    """
    if check and check not in CHECKS:
        raise UsageError(f"fault of {op_name!r}: there is no check {check!r}; there are {', '.join(CHECKS)}")
    axes = op(op_name).axes
    if point:
        axes.case(**point)

    def declare(made: Any) -> Any:
        name, source = f"fault_{made.__name__}", f"{made.__module__}:{made.__qualname__}"
        if name in FAULTS and FAULTS[name].source != source:
            raise UsageError(f"two faults are called {made.__name__!r}: {FAULTS[name].source} and {source}")
        foreign = not made.__module__.startswith("harness.faults.")
        everywhere = not point and (foreign or op_name not in _SMALL if swept is None else swept)
        found_by = check or (check_of(status, reason, point) if status else "")
        planted = Fault(op_name, name, status, reason, frozenset(platforms), slow, point or None, found_by, bug, everywhere, source)

        def accepts(case: Case) -> str | None:
            return None if planted.swept or case == planted.case else f"planted on {planted.case.id} alone"

        declared = implements(op_name, library="torch", name=name, platforms=platforms, accepts=accepts, semantics=semantics, promises=promises)(made)
        FAULTS[name], _MADE[name] = planted, providers()[op_name, name]
        return declared

    return declare


def right(x: Inputs) -> tuple[torch.Tensor, ...]:
    """A right answer, in the contract's order of outputs: its reference in the dtype asked for."""
    declared = op(x.case.op)
    golden = declared.impl.reference(x, declared.resolve({}))
    return tuple(_answer(x, golden[name]) for name in declared.outputs)


def eager(x: Inputs) -> Any:
    """What plain PyTorch answers to these inputs, of which a fault may have replaced some: as right as its own provider is."""
    made = providers()[x.case.op, "torch_eager"].make()
    made.prepare(x, None)
    return made.run()


def _answer(x: Inputs, expected: Expected) -> torch.Tensor:
    if isinstance(expected, Filtered):
        kept = torch.where(expected.allowed, expected.weights, 0.0)
        return (kept / kept.sum(-1, keepdim=True)).float()
    if isinstance(expected, Drawn):
        return torch.multinomial(expected.weights * expected.allowed, x.draws, replacement=True)
    value: torch.Tensor = expected.value  # type: ignore[union-attr]  # the ops here have no judge of their own
    return value.to(getattr(expected, "dtype", None) or torch.float32)
