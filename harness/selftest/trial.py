"""A selftest: faults, mutants and clean controls one after the other, and what came of them as one plain record."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.checks.rivals import CANNOT, FAILS, PASSES, RULES
from harness.errors import unknown
from harness.faults import FAULTS, Fault
from harness.reasons import CHECKS
from harness.selftest.clean import Clean, bound, run_clean
from harness.selftest.planted import Bench, Trial
from harness.store.ledger import Ledger
from harness.store.results import Result

KILLED = 0.95  # share of the mutants that must be killed


@dataclass(frozen=True)
class Plan:
    """What a selftest runs: how many clean cells and mutants, and the seed of inputs and choices.

    checks  only the faults of these checks, and those that name none; empty: all
    faults  only the faults of these names; empty: all
    """

    machine: str
    folder: Path
    ledger: Ledger
    plugins: tuple[str, ...] = ()
    seed: int = 0
    clean: int = 1000
    mutants: int = 300
    checks: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    workers: int = 2


PRESETS: dict[str, dict[str, int]] = {"full": {"clean": 1000, "mutants": 320}, "ci": {"clean": 150, "mutants": 40}}


def run(plan: Plan, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The record of a selftest, as `--json` gives it: docs/selftest.md names its fields."""
    began = time.monotonic()
    bench = Bench(plan.machine, plan.folder, ("harness.faults", *plan.plugins), plan.seed)
    faults = _chosen(plan)
    trials: list[Trial] = []

    def take(trial: Trial) -> None:
        trials.append(trial)
        if not trial.caught:  # an interrupted run has said so
            told = _fault(trial)
            say(f"missed {told['fault']} ({told['op']}): wanted {told['wanted'] or told['check'] or 'a finding'}, got {told['got']}")

    bench.quick(faults, take, plan.workers)
    waiting, failures = _beside(lambda: bench.slow(faults, take))
    say(f"{len(trials)} faults tried, {sum(not trial.caught for trial in trials)} missed ({time.monotonic() - began:.0f} s)")
    outcomes = _mutants(plan, say) if plan.mutants else []
    clean = run_clean(plan.clean, plan.seed, plan.machine, plan.folder, bench.plugins, plan.ledger, plan.workers) if plan.clean else Clean()
    waiting.join()
    if failures:
        raise failures[0]
    say(f"{clean.judged} clean cells, {len(clean.alarms)} alarms ({time.monotonic() - began:.0f} s)")
    place = {fault.provider: number for number, fault in enumerate(faults)}
    trials.sort(key=lambda trial: place[trial.fault.provider])
    return _record(plan, trials, outcomes, clean, time.monotonic() - began)


def _chosen(plan: Plan) -> list[Fault]:
    """The faults that the plan asks for. Raises UsageError for a name that nobody declared, or a check that there is not."""
    for name in plan.faults:
        if name not in FAULTS:
            raise unknown("fault", name, FAULTS)
    for name in plan.checks:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    chosen = [fault for fault in FAULTS.values() if plan.machine in fault.platforms and (fault.status != "pass" or fault.slow)]
    return [fault for fault in chosen if (not plan.checks or fault.check in ("", *plan.checks)) and (not plan.faults or fault.provider in plan.faults)]


def _beside(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread, failures


def _mutants(plan: Plan, say: Callable[[str], None]) -> list[Any]:
    mutants = importlib.import_module("harness.faults.mutants")  # when it is wanted: it imports what it mutates
    began = time.monotonic()
    outcomes: list[Any] = mutants.run(count=plan.mutants, seed=plan.seed, workers=plan.workers)
    say(f"{len(outcomes)} mutants in {time.monotonic() - began:.0f} s")
    return outcomes


def _record(plan: Plan, trials: Sequence[Trial], outcomes: Sequence[Any], clean: Clean, seconds: float) -> dict[str, Any]:
    alive = [outcome for outcome in outcomes if not outcome.equivalent]
    killed = sum(outcome.killed for outcome in alive)
    planted = [trial for trial in trials if trial.fault.status != "pass"]
    alarms = [_cell(result) for result in clean.alarms]
    alarms += [_cell(trial.result) for trial in trials if trial.fault.status == "pass" and not trial.caught and trial.result]
    judged = clean.judged + sum(trial.fault.status == "pass" for trial in trials)
    caught = sum(trial.caught for trial in planted)
    passed = caught == len(planted) and not alarms and not clean.errors and (not alive or killed / len(alive) >= KILLED)
    return {
        "passed": passed,
        "seed": plan.seed,
        "seconds": round(seconds, 1),
        "planted": len(planted),
        "caught": caught,
        "mutants": len(alive),
        "killed": killed,
        "equivalent": len(outcomes) - len(alive),
        "clean": judged,
        "false_alarms": len(alarms),
        "false_alarm_rate_upper_95": bound(len(alarms), judged),
        "checks": {check: _count([trial for trial in planted if (trial.fault.check or "any") == check]) for check in (*CHECKS, "any")},
        "kernels": _kernels(alive),
        "rivals": {rule: _rule(rule, planted, clean) for rule in RULES},
        "faults": [_fault(trial) for trial in planted],
        "survivors": [_mutant(outcome) for outcome in alive if not outcome.killed],
        "alarms": alarms,
        "errors": [_cell(result) for result in clean.errors],
        "providers": clean.providers,
    }


def _count(trials: Sequence[Trial]) -> dict[str, int]:
    return {"planted": len(trials), "caught": sum(trial.caught for trial in trials)}


def _rule(rule: str, planted: Sequence[Trial], clean: Clean) -> dict[str, int]:
    words = [trial.rivals.get(rule, CANNOT) for trial in planted]
    said = clean.rivals.get(rule, {})
    return {
        "caught": words.count(FAILS),
        "missed": words.count(PASSES),
        "cannot_judge": words.count(CANNOT),
        "alarms": said.get(FAILS, 0),
        "clean": said.get(FAILS, 0) + said.get(PASSES, 0),
    }


def _fault(trial: Trial) -> dict[str, Any]:
    fault, result = trial.fault, trial.result
    return {
        "fault": fault.provider,
        "op": fault.op,
        "check": fault.check,
        "wanted": " ".join(filter(None, (fault.status, fault.reason))),
        "caught": trial.caught,
        "got": " ".join(filter(None, (result.status, result.reason))) if result else "no result",
        "cell": result.cell if result else "",
        "detail": result.detail if result and not trial.caught else "",
        "bug": fault.bug,
        "source": fault.source,
        "cells": trial.cells,
        "seconds": round(trial.seconds, 2),
        "rivals": {rule: trial.rivals.get(rule, CANNOT) for rule in RULES},
    }


def _kernels(outcomes: Sequence[Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        line = found.setdefault(outcome.kernel, {"mutants": 0, "killed": 0})
        line["mutants"] += 1
        line["killed"] += bool(outcome.killed)
    return dict(sorted(found.items()))


def _mutant(outcome: Any) -> dict[str, Any]:
    names = ("key", "kernel", "operator", "file", "line", "before", "after", "cell")
    return {name: getattr(outcome, name) for name in names}


def _cell(result: Result) -> dict[str, Any]:
    return {"cell": result.cell, "status": result.status, "reason": result.reason, "seed": result.seed, "detail": result.detail}
