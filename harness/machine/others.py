"""The same outputs under the rules of others, for a selftest: what they need beside the outputs is made here."""

from __future__ import annotations

from typing import Any

from harness.checks.rivals import others
from harness.contracts import Close, Expected, Inputs, Op
from harness.machine.memory import Scratch
from harness.providers import providers


def judged_by_others(declared: Op, x: Inputs, outputs: dict[str, Any], golden: dict[str, Expected]) -> dict[str, str]:
    """By rule: passes, fails or cannot judge."""
    measured = any(isinstance(expected, Close) for expected in golden.values())
    return others(outputs, golden, _low_precision(declared, x) if measured else {})


def _low_precision(declared: Op, x: Inputs) -> dict[str, Any]:
    """The outputs of plain PyTorch in the case's own precision, by which one rule measures."""
    plain = providers().get((declared.name, "torch_eager"))
    if plain is None or declared.mutates or plain.declines(x.case, "cpu"):
        return {}
    made = plain.make()
    made.prepare(x, Scratch(x.device))
    returned = made.run()
    return dict(zip(declared.outputs, returned if isinstance(returned, tuple) else (returned,), strict=True))
