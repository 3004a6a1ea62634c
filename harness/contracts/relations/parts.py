"""Relations of merging: the order of the parts must not matter."""

from __future__ import annotations

from typing import Any

from harness.contracts.axes import Case
from harness.contracts.inputs import Inputs
from harness.contracts.relations.base import Outputs, Relation, varied


def commuted() -> Relation:
    """The two states of merge_state in each other's place."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, v_a=x.v_b, v_b=x.v_a, s_a=x.s_b, s_b=x.s_a)]

    return Relation("the two states in each other's place", vary)


def reordered() -> Relation:
    """The parts of merge_states backwards."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, v=x.v.flip(1), lse=x.lse.flip(1))]

    def unfit(case: Case) -> str | None:
        return None if case.parts > 1 else "it needs two parts or more"

    return Relation("the parts in another order", vary, unfit=unfit)
