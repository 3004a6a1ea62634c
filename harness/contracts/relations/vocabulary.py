"""Relations of ops over a vocabulary: probabilities and logits."""

from __future__ import annotations

import math
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.relations.base import Outputs, Relation, none_of, nothing, varied

POWER = 2.0**-3
CONSTANT = 64.0


def _moved(x: Any) -> torch.Tensor:
    return Draw("relation:permuted", 0, x.device).permutation(x.case.vocab)


def permuted(name: str) -> Relation:
    """Columns of the input `name` in another order, and those of the output with them."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, **{name: getattr(x, name)[:, _moved(x)].contiguous()})]

    def back(x: Any, called: list[Outputs]) -> Outputs:
        there = torch.argsort(_moved(x))
        return {output: value[:, there] for output, value in called[0].items()}

    return Relation("the vocabulary in another order", vary, back)


def powered(*, compared: bool = True) -> Relation:
    """Probabilities times a power of two: a rank and a share of the best one stay what they are, and so does the renormalised row.
    Not `compared` where some right libraries leave the kept values as they were."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, probs=x.probs * POWER)]

    def unfit(case: Case) -> str | None:
        plain = case.values == "random" and case.dtype == "fp32"
        return None if plain else "denormals and 16-bit numbers do not scale exactly"

    doc = "every probability an eighth of what it was"
    return Relation(doc, vary, unfit=unfit) if compared else Relation(doc, vary, nothing, none_of, unfit=unfit)


def twice(name: str) -> Relation:
    """The op on its own result, which must stay as it is."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, **{name: outputs[next(iter(outputs))].to(getattr(x, name).dtype)})]

    def unfit(case: Case) -> str | None:
        return None if case.dtype == "fp32" else "a 16-bit input rounds the result"

    return Relation("its own result as input", vary, unfit=unfit)


def shifted() -> Relation:
    """Logits plus a constant, which a softmax does not see."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, logits=x.logits + CONSTANT)]

    def unfit(case: Case) -> str | None:
        plain = case.dtype == "fp32" and case.values in ("random", "ties", "masked")
        return None if plain else "the constant would round these logits away"

    return Relation(f"{CONSTANT:g} added to every logit", vary, unfit=unfit)


def identity(**off: float) -> Relation:
    """Parameters that keep everything: the varied call is judged by itself, against the row renormalised."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        fields: dict[str, Any] = {}
        for name, value in off.items():
            given, wanted = getattr(x, name), x.case.vocab if value == math.inf else value
            fields[name] = torch.full_like(given, wanted) if isinstance(given, torch.Tensor) else type(given)(wanted)
        return [varied(x, **fields)]

    return Relation("parameters that keep every token", vary, nothing, none_of)


def picked() -> Relation:
    """Logits in another order, and the id of the best with them: of equals another may be picked, which its own reference judges."""

    def vary(x: Any, outputs: Outputs) -> list[Inputs]:
        return [varied(x, logits=x.logits[:, _moved(x)].contiguous())]

    return Relation("the vocabulary in another order", vary, nothing, none_of)
