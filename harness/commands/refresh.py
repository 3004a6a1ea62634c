"""`kernel-parity refresh`: what was measured becomes the baseline, as far as the ratchet lets it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from harness import report
from harness.commands.probe import BASELINES
from harness.commands.run import ledger_of, rows_of, selection_of, with_served
from harness.contracts import op, ops
from harness.errors import UsageError, nearest
from harness.plugins import load_plugins
from harness.providers import providers
from harness.selection import Selection, awaited, cases_folder, find_cell
from harness.speed.suite import Timed
from harness.store import baselines as stored
from harness.store import ratchet
from harness.store.baselines import Baseline, Cell
from harness.store.families import Families, load_families
from harness.store.files import write_all
from harness.store.measured import CONTROL, CONTROLS, Measured, by_start, newest, untimed
from harness.store.results import Result, read

# what `run` has options for and a refresh decides by itself; `devices`: one, because a machine start is one device's
_RUN = {"timing": True, "workers": None, "seed": 0, "devices": 1, "model": None, "tp": 1, "shard": ""}


@dataclass
class Outcome:
    """A refresh: by machine start what became of every cell; why nothing may be refreshed; files written; those that would be (`--dry-run`)."""

    changes: list[tuple[Measured, list[ratchet.Change]]] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        return bool(self.objections) or any(change.what == ratchet.REFUSED for _, changes in self.changes for change in changes)


def refresh_baselines(**options: Any) -> int:
    """Measures or reads, refreshes and prints; returns the exit code: 1 where something was refused."""
    load_plugins(options["plugins"])
    cases = cases_folder(options["cases_dir"])
    accept, only = _reasons(options["accept"]), _only(options["only"])
    ledger, families = ledger_of(options["ledger"], cases), load_families(cases / "kernels.toml")
    if options["start"] and len(options["results"]) != 1:
        raise UsageError("--start names the machine start of one log: give one --results with it")
    if options["resume"] and options["results"]:
        raise UsageError("--resume goes on with a measurement, and with --results nothing is measured: leave one of them out")
    logs = options["results"] or (_measure(only, ledger, options),)
    rows = {log: newest(read(Path(log))) for log in logs}
    for log, mine in rows.items():
        load_plugins(with_served((), (row.provider for row in mine)))
        _declared(log, mine, only)
    outcome = Outcome()
    for mine in rows.values():
        chosen = [row for row in mine if _wanted(row.cell, only)]
        outcome.objections += ratchet.objections(chosen, ledger) + untimed(chosen, _awaited)
    if not outcome.objections:
        place = Path(options["baselines"] or os.environ.get("KERNEL_PARITY_BASELINES") or BASELINES)
        found = _starts(rows, families, only, options["start"])
        with _held(place / stored.folder_of(found[0].device), options["dry_run"]):
            _refresh(found, place, only, accept, outcome, append=options["append"], dry_run=options["dry_run"])
    if options["as_json"]:
        click.echo(msgspec.json.format(msgspec.json.encode(report.refreshed_record(outcome.changes, outcome.objections, outcome.files)), indent=1))
    else:
        again = " ".join(f"--results {log}" for log in logs)
        click.echo(report.refreshed(outcome.changes, outcome.objections, outcome.files, dry_run=options["dry_run"], again=again))
    return 1 if outcome.bad else 0


def _measure(only: Sequence[str], ledger: Any, options: dict[str, Any]) -> str:
    """Runs and times the preset on one device; the log's path."""
    cells = only if only and all("[" in name for name in only) else ()
    given = {**options, **_RUN, "results": f"results-{options['preset']}.jsonl", "ops": tuple(dict.fromkeys(_ops(only))), "providers": (), "cells": cells}
    selection: Selection = selection_of(given)
    rows_of(selection, ledger, given)
    return str(given["results"])


def _declared(log: str, rows: Sequence[Result], only: Sequence[str]) -> None:
    """Raises UsageError for a row of an op or provider that nobody declares here: no later night could be held against it."""
    remedy = "give --plugin with the file or module that does"
    for row in rows:
        if row.op not in ops():
            raise UsageError(f"{log} has rows of the op {row.op!r}, which nobody declares here: {remedy}")
        if _wanted(row.cell, only) and (row.op, row.provider) not in providers():
            what = f"the provider {row.provider!r} of {row.op}"
            raise UsageError(f"{log} has rows of {what}, which nobody declares here: {remedy}, or leave it out with --only")


def _ops(only: Sequence[str]) -> Iterator[str]:
    """The ops that must run for what was chosen; none at all: all of them."""
    for name in only:
        if _of_controls(name):  # they run beside every other
            return
        yield from [one.name for one in ops().values() if one.family == name] or [name.partition("[")[0]]


def _starts(rows: Mapping[str, Sequence[Result]], families: Families, only: Sequence[str], start: str) -> list[Measured]:
    """The machine starts of all logs, oldest first, of the chosen cells. Raises UsageError for logs of two devices, one start in two of
    them, and where nothing was chosen."""
    found = [one for log, mine in rows.items() for one in by_start(mine, log, families, start)]
    if len({stored.folder_of(one.device) for one in found}) > 1:
        raise UsageError("the logs are of several devices: refresh one device at a time")
    if len({one.start for one in found}) < len(found):
        raise UsageError("two of the logs are of one machine start: refresh from them one after the other")
    for one in found:
        one.results[:] = [row for row in one.results if _wanted(row.cell, only)]
    if not any(one.results for one in found) and not any(map(_of_controls, only)):
        raise UsageError(f"the logs have nothing of --only {','.join(only)}")
    return sorted(found, key=lambda one: one.at)


def _held(folder: Path, dry_run: bool) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if dry_run else stored.alone(folder)


def _refresh(found: Sequence[Measured], place: Path, only: Sequence[str], accept: Mapping[str, str], outcome: Outcome, *, append: bool, dry_run: bool) -> None:
    """Takes every machine start in turn, and writes all files when all are known: a mistake in any leaves every file as it was."""
    device = found[0].device
    concerned = {_family(result.cell) for one in found for result in one.results} | {CONTROLS}
    paths = {family: stored.place_of(place, device, family) for family in sorted(concerned)}
    before = {family: stored.load(path, device) or Baseline(family, stored.device_key(device)) for family, path in paths.items()}
    after, used = dict(before), set()
    for one in found:
        controls = _controls(after[CONTROLS], one)
        changes: list[ratchet.Change] = []
        for family in paths:
            after[family], made = _step(after[family], one, only, accept, controls, append=append)
            changes += made
        used |= {change.cell for change in changes if change.what == ratchet.TAKEN}
        outcome.changes.append((one, changes))
    for name in accept:
        if not any(_matches(name, cell) for cell in used):
            raise UsageError(f"--accept {name}: nothing of that name is slower, renamed, gone or unclassified here; leave it out")
    texts: dict[Path, bytes | str] = {paths[family]: stored.text(one) for family, one in after.items() if one != before[family]}
    if not dry_run:
        write_all(texts)
    outcome.files = [os.path.relpath(path) for path in texts]


def _step(
    before: Baseline, one: Measured, only: Sequence[str], accept: Mapping[str, str], controls: Mapping[str, Timed], *, append: bool
) -> tuple[Baseline, list[ratchet.Change]]:
    """One family's baseline after one machine start. What was refused is taken again with those reasons that speak of it."""
    family = before.family
    given = one.controls if family == CONTROLS else one.cells
    cells = {name: cell for name, cell in given.items() if _family(name) == family and _wanted(name, only)}
    expected = [] if family == CONTROLS else [name for name in one.expected(before.cells) if _wanted(name, only)]

    def attempt(reasons: Mapping[str, str]) -> tuple[Baseline, list[ratchet.Change]]:
        return ratchet.refresh(
            before,
            cells,
            one.start,
            one.described,
            accept=reasons,
            append=append,
            expected=expected,
            controls={} if family == CONTROLS else controls,
            unclassified=one.unclassified,
        )

    after, changes = attempt({})
    refused = [change.cell for change in changes if change.what == ratchet.REFUSED]
    reasons = {cell: reason for cell in refused for name, reason in accept.items() if _matches(name, cell)}
    return attempt(reasons) if reasons else (after, changes)


def _controls(baseline: Baseline, one: Measured) -> dict[str, Timed]:
    """The controls as the suite compares them, to tell a device that moved from a kernel."""
    pairs: dict[str, tuple[Cell, Cell]] = {name: (baseline.cells[name], cell) for name, cell in one.controls.items() if name in baseline.cells}
    return {name: Timed(new.mode, old.runs, new.runs[""], one.start, control=True) for name, (old, new) in pairs.items()}


def _of_controls(name: str) -> bool:
    return name == CONTROLS or name.startswith(CONTROL)


def _family(cell: str) -> str:
    return CONTROLS if _of_controls(cell) else op(cell.partition("[")[0]).family


def _wanted(cell: str, only: Sequence[str]) -> bool:
    return not only or any(name in (cell, cell.partition("[")[0], _family(cell)) for name in only)


def _only(given: Sequence[str]) -> tuple[str, ...]:
    """What --only names. Raises UsageError for what is no family, op or cell."""
    chosen = tuple(name for text in given for name in text.split(",") if name)
    families = {one.family for one in ops().values()} | {CONTROLS}
    for name in chosen:
        if "[" in name:
            find_cell(name)
        elif name not in families and name not in ops() and not _of_controls(name):
            raise UsageError(f"--only {name}: no family, op or cell; nearest: {', '.join(nearest(name, [*families, *ops()]))}")
    return chosen


def _awaited(row: Result) -> bool:
    return awaited(row.provider, op(row.op).axes.parse(row.case))


def _reasons(given: Sequence[str]) -> dict[str, str]:
    """Cell, or cells written with `*` for any text -> reason. Raises UsageError for one without a reason."""
    made = {}
    for text in given:
        cell, _, why = text.partition("=")
        if not cell.strip() or not why.strip():
            raise UsageError(f"--accept {text!r}: give CELL=REASON; the reason stands in the baseline")
        made[cell.strip()] = why.strip()
    return made


def _matches(name: str, cell: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, name.split("*"))), cell) is not None
