"""Whether a sampler draws anew: a second call, whose random numbers go on where the first one's ended, must not draw the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.checks.distribution import tells
from harness.contracts import Drawn, Expected
from harness.store.results import Result


def draws_anew(outputs: dict[str, Any], golden: dict[str, Expected], call: Callable[[], dict[str, Any]], result: Result) -> None:
    """Judges a cell that passed, where what it draws tells one call from another; `call` makes the second."""
    drawn = {name: expected for name, expected in golden.items() if isinstance(expected, Drawn)}
    telling = [name for name, expected in drawn.items() if isinstance(outputs.get(name), torch.Tensor) and tells(outputs[name], expected)]
    if not telling:
        return
    before = {name: outputs[name].clone() for name in telling}
    after = call()
    for name in telling:
        if isinstance(after.get(name), torch.Tensor) and torch.equal(before[name], after[name]):
            result.status, result.reason = "mismatch", "reused-random"
            result.detail = f"Output {name!r}: a second call drew the same {before[name].numel()} tokens: its random numbers start anew with every call"
