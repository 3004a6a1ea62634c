"""The verdict ladder of a gate: from a time against its baseline, the kernels that ran and the neighbours to one word a cell."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.speed.identity import Identity
from harness.speed.regression import AMBIGUOUS, FAST, GONE, HOST_BOUND, NEW, SAME, SLOW
from harness.speed.suite import Judged

FALLBACK, REROUTED, CLIFF, UNCLASSIFIED = "fallback", "rerouted", "cliff", "unclassified"
FAILS = (FALLBACK, SLOW, CLIFF, GONE, UNCLASSIFIED)  # the worst first
WORDS = (*FAILS, AMBIGUOUS, HOST_BOUND, REROUTED, FAST, NEW, SAME)


@dataclass(frozen=True)
class Called:
    """A cell's word with its evidence.

    us, was    microseconds now and in the baseline; 0 where there are none
    ratio      how many times as long as the baseline (of a cliff: as the neighbour and the pad) it takes, and `bound`: the ratio beyond
               which it counts (of a cliff: the lower bound of the ratio); 0 where nothing was compared
    chance     of so slow a time if nothing changed
    remedy     what would bring the time back, as far as this gate tried or saw it
    """

    cell: str
    word: str
    why: str = ""
    us: float = 0.0
    was: float = 0.0
    ratio: float = 0.0
    bound: float = 0.0
    chance: float = 1.0
    identity: Identity = field(default_factory=Identity)
    remedy: str = ""

    @property
    def fails(self) -> bool:
        """Whether a gate fails by it."""
        return self.word in FAILS


def climb(judged: Judged, ran: Identity, *, cliff: str = "", mode: str = "") -> tuple[str, str]:
    """(word, why) of a cell. `cliff`: the step to a neighbour, in words, of a cell without a baseline; `mode`: why its times are not compared."""
    if judged.verdict == GONE:
        return GONE, ""
    if ran.lacking:
        return FALLBACK, f"no kernel fits {', '.join(ran.lacking)}"
    if ran.unwanted:
        return FALLBACK, f"{', '.join(ran.unwanted)} must not run"
    if ran.generic and judged.verdict != FAST:
        return FALLBACK, "a generic kernel took over"
    if ran.other and judged.verdict == SLOW:
        return FALLBACK, "other kernels, slower"
    if ran.unknown and ran.then:
        return UNCLASSIFIED, f"no family of cases/kernels.toml takes in {', '.join(ran.unknown)}"
    if judged.verdict == SLOW:
        return SLOW, ""
    if cliff:
        return CLIFF, cliff
    if mode:
        return AMBIGUOUS, mode
    if ran.other:
        return REROUTED, "other kernels, faster" if judged.verdict == FAST else "other kernels, not slower"
    return judged.verdict, f"no reviewed family has {', '.join(ran.unknown)}" if ran.unknown else ""


@dataclass(frozen=True)
class Tried:
    """One trial of a gate's own power: `wanted` the word that a cell must get, `by` what was done to it (the provider that was forced, or
    the delay), `got` what it was called, with the evidence."""

    cell: str
    wanted: str
    by: str
    got: Called

    @property
    def seen(self) -> bool:
        """Whether the gate called it what it is."""
        return self.got.word == self.wanted
