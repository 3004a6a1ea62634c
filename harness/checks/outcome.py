"""What a check says: nothing, or a finding with its reason, the figures and lines a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Outcome:
    """`reason` empty: right. `error` is the greatest error as a share of its tolerance (<= 1 is right), NaN where not numeric.

    `text` explains a finding in lines as torch.testing words them; `figures` holds the numbers behind it. `suspicious`: chance is not
    ruled out, and a second look with more draws decides.
    """

    reason: str = ""
    text: str = ""
    error: float = float("nan")
    figures: dict[str, float | int | str] = field(default_factory=dict)
    suspicious: bool = False

    @property
    def right(self) -> bool:
        return not self.reason
