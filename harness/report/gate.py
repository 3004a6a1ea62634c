"""What a gate found, in a terminal and as markdown. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from tabulate import tabulate

from harness.report.tables import Judged, totals
from harness.speed.ladder import FAILS, WORDS, Called, Tried
from harness.speed.regression import drifting
from harness.words import plural

_MOST = 200  # findings that a page lists
_HEADS = ("cell", "verdict", "us", "baseline", "ratio", "beyond", "kernels then", "kernels now", "why", "remedy")
_NUMBERS = 6  # columns of a terminal's table: the names would not fit beside


@dataclass(frozen=True)
class Night:
    """A gate's whole outcome.

    rows      results with what the ledger says of them
    called    the word of each cell that was timed, or gone; empty where nothing was timed, and `unjudged` says why
    trials    of the gate's own power; shift: by which share the device moved
    expired   entries of the ledger that are past their day
    untimed   cells that are right and were not timed, because the device's baselines do not have them
    """

    rows: Sequence[Judged]
    called: Mapping[str, Called] = field(default_factory=dict)
    trials: Sequence[Tried] = ()
    shift: float = 0.0
    expired: Sequence[str] = ()
    unjudged: str = ""
    untimed: int = 0

    @property
    def failing(self) -> list[Called]:
        """Cells that fail by time or kernels, the worst kind first, of a kind the slowest."""
        return sorted((one for one in self.called.values() if one.fails), key=lambda one: (FAILS.index(one.word), -one.ratio, one.cell))

    @property
    def blind(self) -> list[Tried]:
        """Trials that the gate did not see."""
        return [one for one in self.trials if not one.seen]

    @property
    def drifts(self) -> list[Called]:
        """Cells of the drift lane: their change stands out over all cells, and none fails by it."""
        compared = [one for one in self.called.values() if one.was and not one.fails]
        chosen = drifting(np.array([one.chance for one in compared]))
        return sorted((one for one, taken in zip(compared, chosen, strict=True) if taken), key=lambda one: one.chance)


def counts(night: Night) -> str:
    """The totals of parity, and of speed and kernels by word."""
    lines = [totals(night.rows)]
    if night.unjudged:
        lines.append(night.unjudged)
    else:
        words = Counter(one.word for one in night.called.values())
        told = ", ".join(f"{words[word]} {word}" for word in WORDS if words[word]) or "nothing was right and timed"
        lines.append(f"speed and kernels: {told}; findings {len(night.failing)}")
    if night.untimed:
        lines.append(f"{plural(night.untimed, 'cell')} without a baseline: right, not timed (--time-all)")
    if night.shift:
        lines.append(f"the device moved, or its clock: all times, those of the controls too, by {100 * night.shift:+.2f} %; taken off before judging")
    lines += [f"expired: {line}" for line in night.expired]
    return "\n".join(lines)


def power(night: Night) -> list[str]:
    """How many of the trials of each kind were seen, and each that was not."""
    if night.unjudged:
        return []
    lines = []
    for wanted, what in (("fallback", "a slow provider forced"), ("slow", "a delay on the device")):
        trials = [one for one in night.trials if one.wanted == wanted]
        seen = sum(one.seen for one in trials)
        tried = f"seen as {wanted} in {seen} of {len(trials)}" if trials else "not tried: no cell here shows it"
        lines.append(f"power: {what}, {tried}" + (f" ({', '.join(one.by for one in trials)})" if trials else ""))
    return lines + [f"power: {one.cell} by {one.by} was called {one.got.word}, not {one.wanted}: this gate is blind" for one in night.blind]


def text(night: Night) -> str:
    """Findings of speed and kernels, the drift lane and the power check, for a terminal."""
    parts = []
    if night.failing:
        parts.append(tabulate([_row(one)[:_NUMBERS] for one in night.failing], headers=_HEADS[:_NUMBERS], tablefmt="simple", disable_numparse=True))
        parts.append("\n".join(_told(one) for one in night.failing))
    if night.drifts:
        parts.append(tabulate(_drift(night.drifts), headers=["drift lane", "baseline", "us", "ratio", "chance"], tablefmt="simple", disable_numparse=True))
    parts.append("\n".join([*power(night), counts(night)]))
    return "\n\n".join(parts)


def markdown(night: Night, *, red: bool) -> str:
    """The same as a page: findings first."""
    parts = [f"## kernel-parity gate: {'red' if red else 'green'}", *(counts(night).splitlines())]
    wrong = [row for row in night.rows if row[1].bad or row[1].kind == "error"]
    if wrong:
        told = [[result.cell, result.status, _short(result.reason or verdict.why), _short(result.detail)] for result, verdict in wrong[:_MOST]]
        parts += ["### Wrong, or not as the ledger says", _page(told, ["cell", "status", "reason", "detail"]), _more(len(wrong))]
    if night.failing:
        parts += ["### Slower, or other kernels", _page([_row(one) for one in night.failing[:_MOST]], _HEADS), _more(len(night.failing))]
    if night.trials:
        told = [[one.cell, one.wanted, one.by, one.got.word, _names(one.got.identity.then), _names(one.got.identity.now)] for one in night.trials]
        parts += ["### Power check", *power(night), _page(told, ["cell", "must be", "by", "called", "kernels then", "kernels now"])]
    if night.drifts:
        parts += ["### Drift lane (reported, never failed on)", _page(_drift(night.drifts[:_MOST]), ["cell", "baseline", "us", "ratio", "chance"])]
    return "\n\n".join(filter(None, parts)) + "\n"


def _row(one: Called) -> list[str]:
    times = [f"{us:.4g}" if us else "-" for us in (one.us, one.was)]
    ratios = [f"{ratio:.3f}" if ratio else "-" for ratio in (one.ratio, one.bound)]
    return [one.cell, one.word, *times, *ratios, _names(one.identity.then), _names(one.identity.now), one.why or "-", one.remedy or "-"]


def _told(one: Called) -> str:
    """What the table of numbers leaves out: both kernel names, and what would help."""
    lines = [f"{one.cell}: {one.word}" + (f", {one.why}" if one.why else ""), f"    kernels: {_names(one.identity.then)} -> {_names(one.identity.now)}"]
    return "\n".join(lines + ([f"    remedy: {one.remedy}"] if one.remedy else []))


def _drift(found: Iterable[Called]) -> list[list[str]]:
    return [[one.cell, f"{one.was:.4g}", f"{one.us:.4g}", f"{one.ratio:.4f}", f"{one.chance:.2g}"] for one in found]


def _names(kernels: Sequence[str]) -> str:
    return ", ".join(kernels) or "-"


def _page(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    """A table of markdown. A bar or a line's end within a cell would end it, and `<` begin a tag."""
    told = [[" ".join(value.split()).replace("|", "\\|").replace("<", "&lt;") for value in row] for row in rows]
    return tabulate(told, headers=heads, tablefmt="github", disable_numparse=True)


def _short(said: str) -> str:
    return " ".join(said.split())[:200] or "-"


def _more(count: int) -> str:
    return f"... and {plural(count - _MOST, 'finding')} more" if count > _MOST else ""
