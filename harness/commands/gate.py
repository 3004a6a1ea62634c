"""`kernel-parity gate`: parity, the ledger, times and kernels in one verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import click
import msgspec

from harness import report
from harness.commands.gating import Bar, accepted_of, families_of
from harness.commands.measuring import measure, needed
from harness.commands.powercheck import try_itself
from harness.commands.probe import BASELINES
from harness.commands.run import Progress, Row, code_of, in_order, keep, ledger_of, opened, selection_of, sweep, unlike
from harness.errors import UsageError
from harness.report.gate import Night, markdown, power, text
from harness.report.junit import junit
from harness.selection import Cell, Selection, select
from harness.session import Session
from harness.store.files import write_whole
from harness.store.ledger import Ledger
from harness.store.results import Result, ResultLog

_UNJUDGED = "no GPU here: parity and the ledger were judged, speed and kernels were not"


def hold(**options: Any) -> int:
    """Runs the gate; returns the exit code: 1 where anything is wrong, slower, gone, not as the ledger says, or not seen in the power check."""
    selection = selection_of(options)
    ledger = ledger_of(options["ledger"], selection.cases_dir)
    cells = select(selection)
    _writable(options)
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(opened(selection, options))
        bar = _bar(session, cells, selection, options) if selection.machine != "cpu" else None
        log = stack.enter_context(ResultLog(Path(options["results"]), resume=options["resume"]))
        stack.push(session)  # interrupted, the workers end before the log closes
        rows, _ = sweep(session, log, cells, selection, ledger, options)
        night = _timed(session, bar, cells, rows, ledger, log, options) if bar else Night(rows, unjudged=_UNJUDGED)
    today = date.today()
    expired = [f"{entry.place} on {entry.expires}" for entry in ledger.entries if entry.expired(today)]
    night = dataclasses.replace(night, rows=in_order(list(night.rows), cells), expired=expired)
    code = code_of([verdict for _, verdict in night.rows]) or int(bool(night.failing or night.blind or night.expired))
    _tell(night, code, options)
    return code


def _writable(options: dict[str, Any]) -> None:
    """What cannot be written is to show before hours of work. Raises UsageError, for one file under two options too."""
    given = {f"--{name}": Path(options[name]) for name in ("results", "summary", "junitxml") if options[name]}
    step = os.environ.get("GITHUB_STEP_SUMMARY")
    places: dict[Path, str] = {}
    for option, path in (*given.items(), *([("$GITHUB_STEP_SUMMARY", Path(step))] if step else [])):
        real = path.resolve()
        if real in places and not real.is_char_device():
            raise UsageError(f"{places[real]} and {option} are both {path}: give each a file of its own")
        places[real] = option
    for option, path in given.items():
        if option != "--results":
            write_whole(path, "")
    if step:
        _append(Path(step), "")


def _bar(session: Session, cells: list[Cell], selection: Selection, options: dict[str, Any]) -> Bar:
    """The baselines of the device at hand, before anything runs."""
    given = options["baselines"] or os.environ.get("KERNEL_PARITY_BASELINES")
    folder = Path(given or BASELINES)
    if given and not folder.is_dir():
        raise UsageError(f"{'--baselines' if options['baselines'] else '$KERNEL_PARITY_BASELINES'} {folder} is no folder; give one, or leave it out")
    return Bar(accepted_of(folder, session.hello()[0], cells), families_of(selection.cases_dir), cells, all_cells=options["time_all"])


def _timed(session: Session, bar: Bar, cells: list[Cell], rows: list[Row], ledger: Ledger, log: ResultLog, options: dict[str, Any]) -> Night:
    """Times what is right, and tries the gate itself. What fails only when it is timed is a row of its own."""
    results = {result.cell: result for result, _ in rows}
    settled = [result.cell for result, verdict in rows if verdict.kind != "ok"]
    passed = [result for result in results.values() if result.status == "pass" and bar.times(result.cell)]
    progress = Progress(sum(needed(bar, result.cell, options["runs"]) + 1 for result in passed))  # and once under the profiler

    def step(result: Result) -> None:
        log.append(result)
        progress.total = max(progress.total, progress.count + 1)  # reruns show as they come
        progress.step(ledger.judge(result))

    measured = measure(session, bar, cells, results, runs=options["runs"], step=step)
    keep(measured.failed, results, log)
    lost = unlike(measured.failed, ledger)
    ended = {**{result.cell: result for result in measured.failed}, **{name: one for name, one in results.items() if one.timings}}
    called = measured.called | bar.gone({**results, **ended}, [*settled, *(result.cell for result, _ in lost)])
    trials = try_itself(session, bar, results, measured.called, options["power"])
    progress.end()
    return Night(rows + lost, called, trials, measured.shift, untimed=measured.untimed)


def _tell(night: Night, code: int, options: dict[str, Any]) -> None:
    """Prints, and writes the summary and the JUnit file."""
    if options["summary"] or os.environ.get("GITHUB_STEP_SUMMARY"):
        page = markdown(night, red=code != 0)
        if options["summary"]:
            write_whole(Path(options["summary"]), page)
        if place := os.environ.get("GITHUB_STEP_SUMMARY"):
            _append(Path(place), page)
    if options["junitxml"]:
        write_whole(Path(options["junitxml"]), junit(night))
    if options["as_json"]:
        for line in _lines(night):
            click.echo(msgspec.json.encode(line))
        return
    bad = [(result, verdict) for result, verdict in night.rows if verdict.bad or verdict.kind == "error"]
    for result, verdict in bad[: options["show"]]:
        click.echo(report.explain(result, verdict, plugins=options["plugins"], ledger=options["ledger"]) + "\n")
    if len(bad) > options["show"]:
        click.echo(f"... and {len(bad) - options['show']} more findings in {options['results']} (--show N)\n")
    click.echo(report.summary(night.rows) + "\n")
    click.echo(text(night))


def _append(path: Path, page: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise UsageError(f"cannot write $GITHUB_STEP_SUMMARY ({path}): {error.strerror}; set it to a writable file, or unset it") from error


def _lines(night: Night) -> Iterator[dict[str, Any]]:
    """A line a cell, then one of the whole."""
    shown = set()
    for result, verdict in night.rows:
        shown.add(result.cell)
        line = {"cell": result.cell, "op": result.op, "provider": result.provider, "case": result.case, "status": result.status, "reason": result.reason}
        called = night.called.get(result.cell)
        yield line | {"verdict": verdict.kind, "verdict_why": verdict.why, "speed": msgspec.to_builtins(called) if called else None}
    for name, called in night.called.items():
        if name not in shown:
            yield {"cell": name, "status": "", "verdict": "", "speed": msgspec.to_builtins(called)}
    yield {"power": power(night), "trials": msgspec.to_builtins(night.trials), "shift": night.shift, "expired": night.expired, "unjudged": night.unjudged}
