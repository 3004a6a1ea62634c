"""Is it right: judges one output against what its contract expects. Pure: torch tensors in, an Outcome out."""

from __future__ import annotations

from typing import Any

import torch

from harness.checks.outcome import Outcome
from harness.checks.support import filtered, one_of
from harness.checks.tolerance import close, explain, tolerance
from harness.contracts.expected import Close, Drawn, Exact, Expected, Filtered, Judged, OneOf

__all__ = ["Outcome", "close", "exact", "explain", "filtered", "judge", "one_of", "tolerance"]

_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def exact(actual: torch.Tensor, expected: Exact) -> Outcome:
    """Equality where defined; NaN equals NaN."""
    golden = expected.value
    same = actual == golden
    if golden.is_floating_point():
        same |= actual.isnan() & golden.isnan()
    if expected.where is not None:
        same |= ~expected.where
    if bool(same.all()):
        return Outcome(error=0.0)
    at = tuple(torch.nonzero(~same)[0].tolist())
    count = int((~same).sum())
    share = f"Mismatched elements: {count} / {same.numel()} ({100 * count / same.numel():.1f}%)"
    text = f"{share}\nFirst at index {at}: expected {golden[at].item()}, actual {actual[at].item()}"
    return Outcome("numerics", text, figures={"count": count, "total": same.numel(), "index": str(at)})


def _form(actual: Any, expected: Expected) -> Outcome | None:
    """Device, shape and dtype before any value."""
    if isinstance(expected, Judged) or (isinstance(expected, Drawn) and expected.ids is not None):
        return None
    if not isinstance(actual, torch.Tensor):
        return Outcome("shape", f"expected a tensor, got {type(actual).__name__}")
    wanted: tuple[int, ...] | None
    dtype: torch.dtype | None = None
    kind = "a floating dtype"
    right_kind = actual.is_floating_point()
    golden = expected.weights if isinstance(expected, Filtered) else expected.allowed if isinstance(expected, OneOf) else expected.value
    if actual.device != golden.device:
        return Outcome("shape", f"expected a tensor on {golden.device}, got one on {actual.device}")
    if isinstance(expected, Filtered):
        wanted = tuple(expected.weights.shape)
    elif isinstance(expected, OneOf):
        wanted = None if actual.shape[:1] == expected.allowed.shape[:1] and actual.dim() in (1, 2) else (expected.allowed.shape[0],)
        kind, right_kind = "an integer dtype", actual.dtype in _INTEGERS
    else:
        wanted, dtype = tuple(expected.value.shape), expected.dtype
        if isinstance(expected, Exact):
            whole = expected.value.dtype in _INTEGERS
            kind, right_kind = (str(expected.value.dtype), actual.dtype in _INTEGERS if whole else actual.dtype == expected.value.dtype)
    if wanted is not None and tuple(actual.shape) != wanted:
        return Outcome("shape", f"expected shape {wanted}, got {tuple(actual.shape)}")
    if (dtype is not None and actual.dtype != dtype) or not right_kind:
        return Outcome("dtype", f"expected {dtype or kind}, got {actual.dtype}")
    return None


def judge(actual: Any, expected: Expected, confirm: bool = False) -> Outcome:
    """One output against its expectation: form, then values. `confirm`: the second look at draws that were suspicious."""
    wrong = _form(actual, expected)
    if wrong is not None:
        return wrong
    if isinstance(expected, Close):
        return close(actual, expected)
    if isinstance(expected, Exact):
        return exact(actual, expected)
    if isinstance(expected, Filtered):
        return filtered(actual, expected)
    if isinstance(expected, Drawn):
        from harness.checks.distribution import drawn  # scipy takes its time to import

        return drawn(actual, expected, confirm)
    if isinstance(expected, OneOf):
        return one_of(actual, expected)
    said = expected.judge(actual)
    return Outcome(said[0], said[1]) if said else Outcome(error=0.0)
