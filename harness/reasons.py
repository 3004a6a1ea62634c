"""The checks by name, and which of them a reason belongs to. Imports nothing heavy: faults and reports speak of checks without making any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHECKS = ("tolerance", "support", "distribution", "determinism", "invariants", "memory", "form", "resolve", "isolation")
# the check that a mismatch's reason belongs to, and that of what is no mismatch
_OF_REASON = {
    "numerics": "tolerance",
    "support": "support",
    "distribution": "distribution",
    "invariant": "invariants",
    "unwritten": "memory",
    "out-of-bounds": "memory",
    "input-changed": "memory",
    "shape": "form",
    "dtype": "form",
    "silently-greedy": "distribution",
    "ignored-flag": "distribution",
    "reused-random": "distribution",
}
_OF_STATUS = {"missing": "resolve", "nondeterministic": "determinism"}
REASONS = tuple(_OF_REASON)


def check_of(status: str, reason: str, values: Mapping[str, Any]) -> str:
    """The check that says `status` and `reason` of a case with these axes: invariants where the case is about a relation between
    calls; what a provider raises, or how it ends, is told by isolation."""
    if status == "mismatch" and "relation" in values:
        return "invariants"
    if status == "mismatch":
        return _OF_REASON.get(reason, "")
    return _OF_STATUS.get(status, "isolation")
