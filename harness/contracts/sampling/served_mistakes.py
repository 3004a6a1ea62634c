"""What a server's sampler draws from when it makes a known mistake: something dropped, the filters in another order, another row's parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.expected import Instead
from harness.contracts.inputs import Inputs
from harness.contracts.registry import Semantics

PENALTIES = {"frequency": 0.0, "presence": 0.0, "repetition": 1.0}
# what a row may be given, by its name in a report -> its fields with the values at which it does nothing
GROUPS: dict[str, dict[str, float]] = {
    "temperature": {"temperature": 1.0},
    "top_k": {"top_k": 1 << 30},
    "top_p": {"top_p": 1.0},
    "min_p": {"min_p": 0.0},
    "penalties": PENALTIES,
    **{name: {name: off} for name, off in PENALTIES.items()},
    "min_new_tokens": {"least": 0},
    "penalties and min_new_tokens": {**PENALTIES, "least": 0},
    "grammar mask": {"constrained": 0},
    "logit bias": {"bias": 0.0},
    "filters": {"top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0},
}
_BESIDE = {"grammar mask": ("constrained", "allowed"), "logit bias": ("bias", "bias_ids"), "penalties": ("generated",)}


def mistakes(contract: Any, x: Inputs, semantics: Semantics) -> list[Instead]:
    """Each known mistake as a distribution, the simplest first."""
    return [Instead(reason, text, _drawn(contract, y, words)) for reason, text, y, words in _known(x, semantics)]


def _drawn(contract: Any, y: Inputs, semantics: Semantics) -> torch.Tensor:
    made: torch.Tensor = contract.weights(y) * contract.support(y, semantics).allowed
    return made


def _known(x: Inputs, semantics: Semantics) -> Iterator[tuple[str, str, Inputs, Semantics]]:
    for name, off in GROUPS.items():
        if any(bool((getattr(x, field) != value).any()) for field, value in off.items()):
            dropped = {field: torch.full_like(getattr(x, field), value) for field, value in off.items()}
            yield "ignored-flag", f"{name} {'are' if name.endswith('s') else 'is'} ignored: draws are those without", _hot(x, dropped), semantics
    if semantics["order"] == "own" and bool((x.min_p > 0).any()) and not bool((x.min_p > 0).all()):
        text = "A row depends on its neighbours: as one request has min-p, all take top-p of what top-k leaves"
        yield "invariant", text, _all_own(x), semantics
    yield "support", "The filters are in another order: top-p is taken of what top-k leaves", _all_own(x), {**semantics, "order": "own"}
    if semantics["order"] == "own":
        yield "support", "The filters are in another order: top-p is taken of the whole mass", x, {**semantics, "order": "joint"}
    if len(x.logits) < 2:
        return
    for step, word in ((1, "before"), (-1, "after")):
        for name, off in GROUPS.items():
            fields = dict.fromkeys((*off, *_BESIDE.get(name, ())))
            yield "invariant", f"A row depends on its neighbours: it has {name} of the row {word} it", _moved(x, fields, step), semantics
        every = dict.fromkeys(("stop", *(field for name, off in GROUPS.items() for field in (*off, *_BESIDE.get(name, ())))))
        yield "invariant", f"A row depends on its neighbours: it has the parameters of the row {word} it", _moved(x, every, step), semantics


def _all_own(x: Inputs) -> Inputs:
    """With a min-p in every row that removes nothing, so that each takes its filters one after the other."""
    return x.copy_with(min_p=x.min_p.clamp_min(1e-30))


def _moved(x: Inputs, fields: dict[str, None], step: int) -> Inputs:
    return x.copy_with(**{field: torch.roll(getattr(x, field), step, 0) for field in fields})


def _hot(x: Inputs, fields: dict[str, torch.Tensor]) -> Inputs:
    """With these fields; a row whose own temperature is 0 stays greedy where its filters are dropped."""
    y = x.copy_with(**fields)
    return y.copy_with(top_k=torch.where(y.temperature == 0, 1, y.top_k))
