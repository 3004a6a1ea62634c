"""What a check says: nothing, or a finding with its reason, the figures and lines a person can act on."""

from __future__ import annotations

from dataclasses import dataclass, field


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
