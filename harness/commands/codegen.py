"""`kernel-parity codegen`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.commands.run import ledger_of
from harness.errors import UsageError
from harness.offline.codegen import baseline as base
from harness.offline.codegen import telling
from harness.offline.codegen.cells import Listed, chosen, load_cells
from harness.offline.codegen.keeping import version_of
from harness.offline.codegen.ledger import Judged, judge
from harness.offline.codegen.rows import Row
from harness.offline.codegen.rules import jumps, of_row
from harness.offline.codegen.sweep import Sweep, compiled, wanted
from harness.offline.sources import find_source
from harness.offline.targets import Target, choose, load_targets
from harness.plugins import load_plugins
from harness.selection import cases_folder, names
from harness.words import plural

PRESETS = ("pr", "nightly")


@dataclass
class Outcome:
    """A finished sweep: rows in the order of targets and list, what was found in them, how they differ from the baselines."""

    rows: list[tuple[Row, Listed]]
    judged: Judged
    changes: list[base.Change]
    library: str
    triton: str
    seconds: float


def compile_cells(**options: Any) -> int:
    """Compiles the selection; returns the exit code."""
    load_plugins(options["plugins"])
    folder = cases_folder(options["cases_dir"])
    described = load_targets(folder / "targets.toml")
    targets = choose(described, options["targets"])
    accept = _accepted(options["accept"])
    if accept and not options["refresh"]:
        raise UsageError("--accept goes with --refresh: it lets the refreshed baseline become worse")
    if not options["timeout"] > 0:
        raise UsageError(f"--timeout {options['timeout']:g} is no number of seconds")
    listed = load_cells(folder / "codegen" / f"{options['preset']}.txt", described)
    cells = chosen(listed, names(options["ops"]), options["cells"])
    sweep = Sweep(
        find_source(options["sglang"]),
        targets,
        cells,
        options["timeout"],
        workers=options["workers"] or 0,
        keep=not options["fresh"],
        plugins=tuple(options["plugins"]),
    )
    if sweep.source.package != "sglang":
        raise UsageError(f"--sglang {options['sglang']} is {sweep.source.package}: give sglang, sglang==VERSION or a path of it")
    baselines = _baselines(options["baselines"], folder)
    _possible(sweep, baselines, accept, refresh=options["refresh"])
    outcome = _run(sweep, ledger_of(options["ledger"], folder), baselines, quiet=options["as_json"])
    _named(outcome, names(options["kernels"]))
    if options["refresh"] and baselines:
        whole = [cell.id for cell in listed] if options["preset"] == PRESETS[-1] and len(cells) == len(listed) else None
        outcome.changes = _refresh(outcome, baselines, accept, whole)
    if options["as_json"]:
        click.echo(msgspec.json.encode(telling.as_json(outcome)))
    else:
        click.echo(telling.as_text(outcome, targets, kernels=names(options["kernels"]), in_full=options["rows"]))
    return 1 if outcome.judged.fresh or outcome.judged.gone or any(change.bad for change in outcome.changes) else 0


def _possible(sweep: Sweep, baselines: Path | None, accept: Mapping[str, str], *, refresh: bool) -> None:
    """Raises UsageError, before anything is compiled, for what cannot be done with the rows."""
    pairs = wanted(sweep)
    if not pairs:
        raise UsageError(f"none of the cells is for {', '.join(target.id for target in sweep.targets) or 'a target: targets.toml describes none'}")
    strange = sorted(accept.keys() - {cell.id for _, cell in pairs})
    if strange:
        raise UsageError(f"--accept {strange[0]}: no such cell is compiled")
    if refresh and baselines is None:
        raise UsageError("--refresh writes the baselines: give their folder, not none")
    if baselines is not None:
        for target in sweep.targets:
            base.load(baselines, target.id, version_of("triton"))


def _named(outcome: Outcome, kernels: Sequence[str]) -> None:
    """Raises UsageError for a kernel's name that nothing compiled has."""
    known = sorted({kernel.name.partition("#")[0] for row, _ in outcome.rows for kernel in row.kernels})
    for name in kernels:
        if not any(name in kernel for kernel in known):
            raise UsageError(f"--kernel {name}: no kernel that was compiled has it in its name; compiled: {', '.join(known) or 'none'}")


def _run(sweep: Sweep, ledger: Any, baselines: Path | None, *, quiet: bool) -> Outcome:
    began = time.monotonic()
    pairs = wanted(sweep)
    if not quiet:
        label = f"{sweep.source.label}, triton {version_of('triton')}"
        click.echo(f"{plural(len(pairs), 'cell')} for {', '.join(target.id for target in sweep.targets)}; {label}; compiled, not run", err=True)
    found = {(row.target, row.cell): row for row in compiled(sweep)}
    rows = [(found[target.id, cell.id], cell) for target, cell in pairs]
    by_id: Mapping[str, Target] = {target.id: target for target in sweep.targets}
    between, judgeable = jumps((row, cell.case) for row, cell in rows)
    findings = [finding for row, _ in rows for finding in of_row(row, by_id[row.target])] + between
    versions = {sweep.source.package: sweep.source.version, "triton": version_of("triton")}
    judged = judge(rows, findings, ledger, versions, judgeable)
    changes = _changes([row for row, _ in rows], baselines, versions["triton"])
    return Outcome(rows, judged, changes, sweep.source.label, versions["triton"], time.monotonic() - began)


def _baselines(given: str | None, cases: Path) -> Path | None:
    return None if given == "none" else Path(given) if given else cases.parent / "baselines"


def _changes(rows: Sequence[Row], folder: Path | None, triton: str) -> list[base.Change]:
    """Every difference from the baselines; a target without one has none."""
    made: list[base.Change] = []
    kept = {name: base.load(folder, name, triton) for name in {row.target for row in rows}} if folder else {}
    for row in rows:
        old = kept.get(row.target)
        if old is not None and row.cell in old.rows:
            made += base.compare(row, old.rows[row.cell])
        elif old is not None:
            made.append(base.Change(row.target, row.cell, "", "new", "a cell that the baseline has not"))
    return made


def _accepted(given: Sequence[str]) -> dict[str, str]:
    """Cell -> reason. Raises UsageError for one without a reason."""
    made = {}
    for text in given:
        cell, _, why = text.partition("]=")
        if not why.strip():
            raise UsageError(f"--accept {text!r}: give CELL=REASON; the reason stands in the baseline")
        made[cell + "]"] = why.strip()
    return made


def _refresh(outcome: Outcome, folder: Path, accept: Mapping[str, str], whole: Sequence[str] | None) -> list[base.Change]:
    """Writes the baselines; returns what is left of the changes, which is what was worse and not accepted."""
    rows = [row for row, _ in outcome.rows]
    unstable = [row for row in rows if row.status in ("timeout", "crash")]
    if unstable:
        raise UsageError(f"{unstable[0].cell} ended with {unstable[0].status} for {unstable[0].target}: a baseline is not made of that; raise --timeout")
    for target in dict.fromkeys(row.target for row in rows):
        mine = [row for row in rows if row.target == target]
        old = base.load(folder, target, outcome.triton)
        base.save(folder, base.refreshed(old, mine, triton=outcome.triton, library=outcome.library, accept=accept, listed=whole))
        click.echo(f"wrote {os.path.relpath(base.path_of(folder, target, outcome.triton))}", err=True)
    return _changes(rows, folder, outcome.triton)
