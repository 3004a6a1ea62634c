"""How other projects would judge the same output: their rules, written anew from their description, to be compared with ours.

Each rule takes the output, the contract's expectation and the output of a low-precision PyTorch run (None where there is none) and
says whether the output passes; None where the rule has nothing to say about such an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from harness.contracts.expected import Close, Drawn, Exact, Expected, Filtered, OneOf

Rule = Callable[[torch.Tensor, Expected, Any], bool | None]
PASSES, FAILS, CANNOT = "passes", "fails", "cannot judge"


def _golden(expected: Expected) -> torch.Tensor | None:
    """The values that a test without our band would compare with."""
    if isinstance(expected, (Close, Exact)):
        value = expected.value
        return value.float() if value.is_floating_point() and value.element_size() == 1 else value  # torch computes little in fp8
    if isinstance(expected, Filtered):
        kept = expected.weights * expected.allowed
        return kept / kept.sum(-1, keepdim=True).clamp_min(1e-300) if expected.renormalise else kept
    return None


def assert_close(actual: torch.Tensor, expected: Expected, low: Any) -> bool | None:
    """`torch.testing.assert_close` with its default tolerances for the output's dtype; infinities equal."""
    golden = _golden(expected)
    if golden is None:
        return None
    if actual.is_floating_point() and actual.element_size() == 1:
        return bool((actual.float() == golden.float()).all())
    try:
        torch.testing.assert_close(actual, golden.to(actual.dtype), equal_nan=True)
    except AssertionError:
        return False
    return True


def five_percent(actual: torch.Tensor, expected: Expected, low: Any) -> bool | None:
    """AITER's checkAllclose: |a - b| <= 0.01 + 0.01 |b|, and up to 5 % of the elements may fail it."""
    golden = _golden(expected)
    if golden is None or not golden.numel():
        return None
    near = torch.isclose(actual.double(), golden.double(), rtol=1e-2, atol=1e-2, equal_nan=True)
    return bool((~near).double().mean() <= 0.05)


def cosine(actual: torch.Tensor, expected: Expected, low: Any) -> bool | None:
    """Cosine of the whole tensors above 0.99."""
    golden = _golden(expected)
    if golden is None or not actual.is_floating_point():
        return None
    a, b = (torch.where(golden.isinf(), 0.0, value.double()).flatten() for value in (actual, golden))
    size = a.norm() * b.norm()
    if not float(b.norm()):  # nothing to take an angle with
        return None
    return bool(a @ b / size > 0.99)


def twice_low(actual: torch.Tensor, expected: Expected, low: Any) -> bool | None:
    """FlashAttention's: the greatest error at most twice that of PyTorch in low precision, and 1e-5."""
    if not isinstance(expected, Close) or not isinstance(low, torch.Tensor) or low.shape != actual.shape:
        return None

    def worst(value: torch.Tensor) -> float:
        gap = (value.double() - expected.value).abs()
        gap = gap.masked_fill(value.double() == expected.value, 0.0)
        return float(torch.nan_to_num(gap, nan=math.inf, posinf=math.inf).amax()) if gap.numel() else 0.0

    return worst(actual) <= 2 * worst(low) + 1e-5


def variation(actual: torch.Tensor, expected: Expected, low: Any) -> bool | None:
    """flashinfer-bench's: total variation distance of a row's draws from its distribution at most 0.2, every draw allowed."""
    if not isinstance(expected, Drawn) or expected.ids is not None or actual.is_floating_point():
        return None
    rows, vocab = expected.weights.shape
    ids = actual.long().view(rows, -1)
    if bool(((ids < 0) | (ids >= vocab)).any()):
        return False
    seen = torch.zeros(rows, vocab, dtype=torch.float64, device=ids.device).scatter_add_(1, ids, torch.ones_like(ids, dtype=torch.float64))
    kept = expected.weights * expected.allowed
    apart = (seen / ids.shape[1] - kept / kept.sum(1, keepdim=True).clamp_min(1e-300)).abs().sum(1) / 2
    return bool((apart <= 0.2).all())


def count_kept(actual: torch.Tensor, expected: Expected, low: Any) -> bool | None:
    """The number of tokens kept in each row, whichever they are."""
    if not isinstance(expected, Filtered):
        return None
    kept = (actual != 0).sum(-1)
    return bool(((kept >= expected.required.sum(-1)) & (kept <= expected.allowed.sum(-1))).all())


RULES: dict[str, Rule] = {
    "assert_close defaults": assert_close,
    "1e-2, 5 % may differ": five_percent,
    "cosine > 0.99": cosine,
    "twice low precision": twice_low,
    "total variation <= 0.2": variation,
    "count of kept tokens": count_kept,
}


def others(outputs: dict[str, Any], golden: dict[str, Expected], low: dict[str, Any]) -> dict[str, str]:
    """Each rule's word on all outputs together: fails where it fails one, passes where it passes some and fails none."""
    return {name: _together(rule, outputs, golden, low) for name, rule in RULES.items()}


def _together(rule: Rule, outputs: dict[str, Any], golden: dict[str, Expected], low: dict[str, Any]) -> str:
    said: list[bool | None] = []
    for name, actual in outputs.items():
        expected = golden.get(name)
        if expected is None or not isinstance(actual, torch.Tensor):
            continue
        said.append(_same_form(actual, expected) and rule(actual, expected, low.get(name)))
    if False in said:
        return FAILS
    return PASSES if True in said else CANNOT


def _same_form(actual: torch.Tensor, expected: Expected) -> bool:
    """Whether shapes and devices go together; every one of these tests would raise where they do not."""
    if isinstance(expected, OneOf):
        return actual.shape[:1] == expected.allowed.shape[:1] and actual.device == expected.allowed.device
    golden = _golden(expected)
    return golden is None or (actual.shape == golden.shape and actual.device == golden.device)
