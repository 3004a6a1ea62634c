"""`kernel-parity run`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence, Set
from datetime import date
from pathlib import Path
from typing import Any

import click
import msgspec

from harness import regressions, report
from harness.commands import timing
from harness.errors import UsageError
from harness.machine.platforms import device_count, machine_platform
from harness.machine.pool import Limits
from harness.plugins import load_plugins
from harness.providers import versions
from harness.selection import Cell, Selection, cases_folder, names, select, selection_words, uncovered
from harness.session import Session
from harness.store.ledger import Ledger, Verdict, load_ledger
from harness.store.results import Result, ResultLog, read
from harness.words import plural

Row = tuple[Result, Verdict]
SERVED = "harness.served.attention.providers"  # loaded where one of its providers is named: no preset runs them


def selection_of(options: dict[str, Any]) -> Selection:
    """The selection that command-line options describe; loads the plugins first."""
    options["plugins"] = with_served(options["plugins"], (*options["providers"], *options.get("cells", ())))
    load_plugins(options["plugins"])
    if options["tp"] != 1 and options["model"] is None:
        raise UsageError("--tp goes with --model: a preset's shapes are those of one rank already")
    return Selection(
        preset=options["preset"],
        ops=names(options["ops"]),
        providers=names(options["providers"]),
        cells=tuple(options.get("cells", ())),
        model=options["model"],
        tp=options["tp"],
        machine=machine_platform(options["platform"]),
        shard=options["shard"],
        cases_dir=cases_folder(options["cases_dir"]),
    )


def with_served(plugins: Sequence[str], named: Iterable[str]) -> tuple[str, ...]:
    """The plugins, and that of the served back ends where one of the names, of providers or cells, is theirs."""
    return (*plugins, SERVED) if SERVED not in plugins and any("served_" in name for name in named) else tuple(plugins)


def ledger_of(path: str | None, cases_dir: Path) -> Ledger:
    """The ledger named on the command line, `none` for an empty one, or the cases folder's own if there is one; warns of expired entries."""
    own = cases_dir / "ledger.toml"
    if path == "none" or not (path or own.exists()):
        return Ledger()
    ledger = load_ledger(Path(path) if path else own)
    for entry in ledger.entries:
        if entry.expired(date.today()):
            click.echo(f"warning: {entry.place} expired on {entry.expires}: review it", err=True)
    return ledger


def run_cells(**options: Any) -> int:
    """Runs the selection; returns the exit code."""
    selection = selection_of(options)
    ledger = ledger_of(options["ledger"], selection.cases_dir)
    began = time.monotonic()
    rows, left = rows_of(selection, ledger, options)
    _print(rows, selection, options)
    if left and not options["as_json"]:
        elapsed = time.monotonic() - began
        click.echo(f"{plural(left, 'row')} in {elapsed:.1f} s, {60 * left / elapsed:.0f} a minute, {plural(_workers(selection, options), 'worker')}")
    return code_of([verdict for _, verdict in rows])


def rows_of(selection: Selection, ledger: Ledger, options: dict[str, Any]) -> tuple[list[Row], int]:
    """Runs the selection into the results file, with times where the options ask for them: every row with its verdict, in order, and how
    many had not been run before. Progress goes to stderr."""
    if options["timing"]:
        timing.refuse_without_device(selection.machine)
    cells = select(selection)
    with ResultLog(Path(options["results"]), resume=options["resume"]) as log, opened(selection, options) as session:
        rows, left = sweep(session, log, cells, selection, ledger, options)
        if options["timing"]:
            rows += _timed(session, cells, {result.cell: result for result, _ in rows}, ledger, log, options)
    return in_order(rows, cells), left


def opened(selection: Selection, options: dict[str, Any]) -> Session:
    """The workers that the options ask for."""
    limits = Limits(options["timeout"], options["build_timeout"])
    return Session(selection.machine, plugins=tuple(options["plugins"]), limits=limits, seed=options["seed"])


def _workers(selection: Selection, options: dict[str, Any]) -> int:
    return options["workers"] or (os.cpu_count() or 1 if selection.machine == "cpu" else device_count(selection.machine))


def sweep(session: Session, log: ResultLog, cells: list[Cell], selection: Selection, ledger: Ledger, options: dict[str, Any]) -> tuple[list[Row], int]:
    """Runs each cell that the log does not have yet, judges it, and writes its row as it ends: all rows, and how many were run."""
    before = _finished(log.path, cells, options["seed"], session) if options["resume"] else {}
    rows = [(result, ledger.judge(result)) for result in before.values()]
    left = [cell for cell in cells if cell.id not in before]
    if not options["as_json"]:
        _header(selection, cells, len(cells) - len(left))
    progress = Progress(len(left))

    def done(cell: Cell, result: Result) -> None:
        result.notes += regressions.notes(selection.cases_dir, result.op, result.case)
        log.append(result)
        verdict = ledger.judge(result)
        rows.append((result, verdict))
        progress.step(verdict)

    session.run_all(left, done, _workers(selection, options))
    progress.end()
    return rows, len(left)


def in_order(rows: list[Row], cells: list[Cell]) -> list[Row]:
    """The rows in the order of the cells."""
    place = {cell.id: number for number, cell in enumerate(cells)}
    return sorted(rows, key=lambda row: place[row[0].cell])


def _timed(session: Session, cells: list[Cell], results: dict[str, Result], ledger: Ledger, log: ResultLog, options: dict[str, Any]) -> list[Row]:
    """Times what is right. What then ends otherwise than the ledger says, as rows of their own."""
    runs, devices = options["runs"], options.get("devices") or device_count(session.machine)
    left = timing.timeable(cells, results, runs)
    progress = Progress(sum(map(len, left)) + len(left[-1]))

    def step(result: Result) -> None:
        log.append(result)
        progress.step(ledger.judge(result))

    failed = timing.take(session, cells, results, runs=runs, step=step, devices=devices)
    keep(failed, results, log)
    progress.end()
    return unlike(failed, ledger)


def keep(failed: list[Result], results: dict[str, Result], log: ResultLog) -> None:
    """Writes the rows of what could not be timed, with the runs before it: what goes on from the log does not run into it again."""
    for result in failed:
        before = results[result.cell]
        log.append(msgspec.structs.replace(result, timings=before.timings, values=before.values))


def unlike(failed: list[Result], ledger: Ledger) -> list[Row]:
    """Of what could not be timed, the rows that are not as the ledger says."""
    judged = [(result, ledger.judge(result)) for result in failed]
    return [(result, verdict) for result, verdict in judged if verdict.bad or verdict.kind == "error"]


def _finished(path: Path, cells: list[Cell], seed: int, session: Session) -> dict[str, Result]:
    """The results in the log that stand for the selected cells: of this platform and this seed; no errors.

    Raises UsageError where the log holds results of another device or of other library versions: they are not to be mixed.
    """
    logged = list(read(path)) if path.is_file() else []
    device = session.hello()[0] if any(result.device for result in logged) else {}
    for result in logged:
        _same(path, "versions", result.versions, versions(), versions().keys() | result.versions.keys())
        _same(path, "device", result.device, device, device.keys() & result.device.keys())  # older results say less of it
    platforms = {cell.id: cell.platform for cell in cells}
    return {r.cell: r for r in logged if r.status != "error" and r.seed == seed and r.platform == platforms.get(r.cell)}


def _same(path: Path, what: str, then: dict[str, str], now: dict[str, str], keys: Set[str]) -> None:
    for key in sorted(keys):
        if then.get(key) != now.get(key):
            change = f"{key} {then.get(key, 'absent')}, now {now.get(key, 'absent')}"
            raise UsageError(f"{path} holds results of {'other versions' if what == 'versions' else 'another device'} ({change}); give another --results")


def code_of(verdicts: list[Verdict]) -> int:
    if any(verdict.kind == "error" for verdict in verdicts):
        return 3
    return 1 if any(verdict.bad for verdict in verdicts) else 0


def _header(selection: Selection, cells: list[Cell], kept: int) -> None:
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items())
    again = f", {kept} of them already done" if kept else ""
    click.echo(f"{selection_words(selection)} on {selection.machine}: {plural(len(cells), 'cell')}{again}; {libraries}", err=True)


def _print(rows: list[Row], selection: Selection, options: dict[str, Any]) -> None:
    if options["as_json"]:
        for result, verdict in rows:
            line = {**msgspec.to_builtins(result), "verdict": verdict.kind, "verdict_why": verdict.why}
            click.echo(msgspec.json.encode(line))
        return
    bad = [(result, verdict) for result, verdict in rows if verdict.bad or verdict.kind == "error"]
    for result, verdict in bad[: options["show"]]:
        click.echo(report.explain(result, verdict, plugins=options["plugins"], ledger=options["ledger"]) + "\n")
    if len(bad) > options["show"]:
        click.echo(f"... and {len(bad) - options['show']} more findings in {options['results']} (--show N)\n")
    click.echo(report.summary(rows))
    click.echo(report.totals(rows))
    if missing := uncovered(selection):
        click.echo(missing)
    if options["timing"]:
        click.echo("\n" + timing.tables([result for result, _ in rows]))
    if options["show_power"]:
        click.echo("\n" + report.power(result for result, _ in rows))
        click.echo("\n" + report.least(result for result, _ in rows))
    if options["profile_harness"]:
        click.echo("\n" + report.harness_share(result for result, _ in rows))


class Progress:
    """A counter on stderr: rewritten in place on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.count, self.found = total, 0, 0
        self._live = bool(sys.stderr and sys.stderr.isatty())  # none where it is closed
        self._last = time.monotonic()

    def step(self, verdict: Verdict) -> None:
        """Counts one cell."""
        self.count += 1
        self.found += verdict.bad
        now = time.monotonic()
        if now - self._last > (0.1 if self._live else 10.0):
            self._last = now
            self._say("\r" if self._live else "\n")

    def _say(self, start: str) -> None:
        text = f"{self.count}/{plural(self.total, 'cell')}, {plural(self.found, 'finding')}"
        click.echo(f"\r{text}" if start == "\r" else text, err=True, nl=start != "\r")

    def end(self) -> None:
        """Ends the line that was rewritten."""
        if self._live and self.count:
            self._say("\r")
            click.echo(err=True)
