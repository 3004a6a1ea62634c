"""Clean controls: right answers, and the real providers that are right, over cells with inputs that nobody has seen."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scipy import special

from harness.contracts import ops
from harness.faults import FAULTS
from harness.machine.pool import Limits
from harness.providers import Provider, providers_of
from harness.selection import Cell, cell, preset_cases, standing
from harness.selftest.planted import reachable
from harness.session import Session
from harness.store.ledger import Ledger
from harness.store.results import FINDINGS, Result

LIBRARIES = ("torch", "sglang")
CONFIDENCE = 0.95
_ROUND = 250  # cells of one seed
_LIMITS = Limits(run=120.0)


@dataclass
class Clean:
    """Cells that must pass: how many were judged, and those that gave an alarm, with the words of others about them by rule."""

    judged: int = 0
    alarms: list[Result] = field(default_factory=list)
    errors: list[Result] = field(default_factory=list)
    rivals: dict[str, dict[str, int]] = field(default_factory=dict)
    providers: dict[str, int] = field(default_factory=dict)

    def take(self, result: Result, ledger: Ledger) -> None:
        """Counts a result. What the ledger knows to deviate is no clean cell."""
        if result.status == "error":
            self.errors.append(result)
        if result.status not in ("pass", *FINDINGS) or ledger.judge(result).kind == "known":
            return
        self.judged += 1
        self.providers[result.provider] = self.providers.get(result.provider, 0) + 1
        if result.status != "pass":
            self.alarms.append(result)
        for rule, word in result.rivals.items():
            said = self.rivals.setdefault(rule, {})
            said[word] = said.get(word, 0) + 1


def bound(alarms: int, judged: int) -> float:
    """The exact upper bound (Clopper and Pearson), at CONFIDENCE, of the rate of false alarms; 1 where nothing was judged."""
    if alarms >= judged:
        return 1.0
    return float(special.betaincinv(alarms + 1, judged - alarms, CONFIDENCE))


def controls(machine: str, folder: Path) -> list[Cell]:
    """Every cell of the real providers here, and of the right answers on the shelf, that runs within a moment."""
    cells = []
    for op_name in ops():
        able = []
        for provider in providers_of(op_name):
            platform, status, _ = standing(provider, machine)
            if not status and _is_right(provider):
                able.append((provider, platform))
        small = set(preset_cases(folder, "smoke", op_name))
        for case in reachable(op_name, folder):
            # the interpreter, and samplers that draw by sorting, take a minute where the rest takes a moment
            cells += [cell(provider, case, platform) for provider, platform in able if case in small or provider.library.name == "torch"]
    for fault in FAULTS.values():
        if fault.status == "pass" and not fault.slow and not fault.swept and machine in fault.platforms:
            cells.append(cell(fault.made, fault.case, machine))
    return [chosen for chosen in {chosen.id: chosen for chosen in cells}.values() if not chosen.status]


def _is_right(provider: Provider) -> bool:
    """Whether it is one of the project's own providers of PyTorch and SGLang, or a clean control on the shelf."""
    if provider.name in FAULTS:
        return FAULTS[provider.name].status == "pass" and not FAULTS[provider.name].slow
    return provider.library.name in LIBRARIES and provider.source.startswith("harness.providers.")


def run_clean(count: int, seed: int, machine: str, folder: Path, plugins: tuple[str, ...], ledger: Ledger, workers: int) -> Clean:
    """Judges `count` cells drawn from all there are, each round of them with the inputs of another seed."""
    clean, known = Clean(), controls(machine, folder)
    draw = random.Random(seed)
    order: list[Cell] = []
    number = 0
    with Session(machine, plugins=plugins, limits=_LIMITS, rivals=True) as session:
        while clean.judged < count and known:
            session.seed = 1 + seed + 1_000_003 * number
            number += 1
            while len(order) < _ROUND:
                order += draw.sample(known, len(known))
            left = count - clean.judged
            chosen, order = order[: min(_ROUND, math.ceil(1.1 * left))], order[min(_ROUND, math.ceil(1.1 * left)) :]

            session.run_all(list({one.id: one for one in chosen}.values()), lambda _, result: clean.take(result, ledger), workers)
            known = _still(known, clean.errors)
    return clean


def _still(known: list[Cell], errors: Sequence[Result]) -> list[Cell]:
    """The cells without those whose inputs the harness could not make: they would come again."""
    broken = {result.cell for result in errors}
    return [chosen for chosen in known if chosen.id not in broken]
