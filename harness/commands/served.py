"""`kernel-parity served`: the attention of a model through SGLang's own back ends."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from harness.commands import timing
from harness.commands.run import SERVED, code_of, keep, ledger_of, sweep, unlike
from harness.contracts.models import find_model, load_models
from harness.errors import UsageError, unknown
from harness.machine.platforms import CHOICES, device_count, machine_platform
from harness.machine.pool import Limits
from harness.offline.routes.judge import Route
from harness.plugins import load_plugins
from harness.providers.registry import providers_of
from harness.report.served import ServedLine, served
from harness.selection import Cell, Selection, cases_folder, cell, names, standing
from harness.served.attention.backends import BACKENDS, Backend, serving, why_not
from harness.served.attention.cases import MODES, Asked, ModeCase, cases_of
from harness.served.attention.choosing import backend_for, defaults, targets_of, words
from harness.served.attention.sizes import refuse_too_large
from harness.session import Session
from harness.speed.behind import ahead, ratios
from harness.speed.names import family
from harness.store.ledger import Verdict
from harness.store.results import Result, ResultLog

_DIGITS = 9  # of a context or batch; the tables that kernels read are int32


@dataclass
class Point:
    """One back end at one mode and context: its cell, and those that hold a flag against its absence."""

    of: ModeCase
    backend: Backend
    cell: Cell
    batch: int
    default: bool
    asked: bool
    here: bool = True
    flags: list[Cell] = field(default_factory=list)


def serve(**options: Any) -> int:
    """Runs, prints the table, returns the exit code. Raises UsageError, one line, for what cannot be asked."""
    folder = cases_folder(options["cases_dir"])
    model = find_model(load_models(folder / "models.toml"), options["model"])
    geometry = model.rank(options["tp"])
    if not math.isfinite(options["soft_cap"]):
        raise UsageError(f"--soft-cap is a number, 0 for none, not {options['soft_cap']}")
    flags = _flags(options, model.kind)
    modes = _modes(options)
    routed = options["platform"] if options["platform"] in targets_of(folder) else ""
    if routed:
        return _say(defaults(model, options["tp"], [routed], folder), [], options, note=f"{routed} is routed: nothing ran")
    if options["platform"] and options["platform"] not in CHOICES:
        raise UsageError(f"unknown platform {options['platform']!r}; it is one of {', '.join((*CHOICES, *targets_of(folder)))}")
    machine = machine_platform(options["platform"])
    if options["timing"]:
        timing.refuse_without_device(machine)
    load_plugins((SERVED,))
    limits = Limits(options["timeout"], options["build_timeout"])
    with Session(machine, plugins=(SERVED,), limits=limits, seed=options["seed"]) as session:
        facts = session.hello()[0] if machine != "cpu" else {}
        here = facts.get("arch", "")
        known = here in targets_of(folder)
        targets = dict.fromkeys([*([here] if known else []), *(names(options["targets"]) or (targets_of(folder) if machine == "cpu" else ()))])
        routes = defaults(model, options["tp"], targets, folder) if targets else []
        route = routes[0] if known else None
        points = _points(geometry, modes, flags, route, machine, options)
        refuse_too_large({point.of.case: f"{point.of.mode} of --context {point.of.context} and --batch {point.batch}" for point in points}, facts)
        lines, code = _run(session, points, folder, machine, options, route)
    note = "" if machine != "cpu" else "on a CPU nothing is timed and there is no speed verdict; a device has a default of its own"
    return max(code, _say(routes, lines, options, note=note))


def _flags(options: dict[str, Any], kind: str) -> list[str]:
    """The back ends asked for. Raises UsageError for one that is not driven, or not for this kind of attention."""
    asked = list(dict.fromkeys(names(options["backends"])))
    for flag in asked:
        if flag not in {backend.flag for backend in BACKENDS.values()}:
            raise unknown("attention back end", flag, {backend.flag for backend in BACKENDS.values()})
        if serving(flag, "mla" if kind == "mla" else "mha") is None:
            raise UsageError(f"--attention-backend {flag} does not serve {options['model']}, whose attention is {kind}; try triton or torch_native")
    return asked


def _modes(options: dict[str, Any]) -> list[str]:
    asked = list(dict.fromkeys(names(options["modes"]))) or list(MODES)
    for mode in asked:
        if mode not in MODES:
            raise UsageError(f"unknown mode {mode!r}; it is one of {', '.join(MODES)}")
    return asked


def _numbers(given: tuple[str, ...], option: str, default: int) -> list[int]:
    """Comma-separated numbers of an option, or the default. Raises UsageError."""
    words_given = names(given)
    if not all(word.isdecimal() and 0 < int(word[: _DIGITS + 1]) < 10**_DIGITS for word in words_given):
        raise UsageError(f"{option} takes numbers from 1 to {'9' * _DIGITS}, separated by commas, not {','.join(words_given)!r}")
    return [int(word) for word in words_given] or [default]


def _points(geometry: Any, modes: list[str], flags: list[str], route: Route | None, machine: str, options: dict[str, Any]) -> list[Point]:
    kind = "mla" if geometry.model.kind == "mla" else "mha"
    small = machine == "cpu"
    points = []
    for mode in modes:
        default = backend_for(route, mode) if route else ""
        every = options["every"] or not (default or flags)
        wanted = [b for b in BACKENDS.values() if b.kind in ("both", kind) and (every or b.flag in (*flags, default))]
        for context in _numbers(options["contexts"], "--context", 32 if small else 4096):
            for batch in _numbers(options["batches"], "--batch", 2 if small else 8):
                for backend in wanted:
                    asked = Asked(
                        context,
                        batch,
                        options["dtype"] or ("fp16" if small else "bf16"),
                        backend.page or options["page"],
                        4 if small else 512,
                        options["soft_cap"],
                    )
                    marks = {"default": backend.flag == default, "asked": backend.flag in flags}
                    points += [_point(one, backend, batch, machine, **marks) for one in cases_of(geometry, mode, asked)]
    return points


def _point(one: ModeCase, backend: Backend, batch: int, machine: str, *, default: bool, asked: bool) -> Point:
    provider = next(provider for provider in providers_of(one.case.op) if provider.name == backend.provider)
    platform, status, why = standing(provider, machine)
    if not status and (lacking := why_not(backend, machine)):
        status, why = "absent", lacking
    if status:
        return Point(one, backend, Cell(one.case.op, provider, one.case, platform, status, why), batch, default, asked, here=False)
    flags = [cell(provider, case, platform) for case in one.flags]
    return Point(one, backend, cell(provider, one.case, platform), batch, default, asked, flags=flags)


def _run(session: Session, points: list[Point], folder: Path, machine: str, options: dict[str, Any], route: Route | None) -> tuple[list[ServedLine], int]:
    """Judges every cell in the ordinary session, times what is right where asked, and makes the lines: they and the exit code."""
    ledger = ledger_of(options["ledger"], folder)
    selection = Selection(model=options["model"], tp=options["tp"], machine=machine, cases_dir=folder)
    cells = list({one.id: one for point in points for one in (point.cell, *point.flags)}.values())
    settings = {"resume": options["resume"], "seed": options["seed"], "as_json": options["as_json"], "workers": 1 if machine == "cpu" else None}
    with ResultLog(Path(options["results"]), resume=options["resume"]) as log, session:  # interrupted, the workers end before the log closes
        rows, _ = sweep(session, log, cells, selection, ledger, settings)
        results = {result.cell: result for result, _ in rows}
        plain = [point.cell for point in points]
        if options["timing"]:
            failed = timing.take(session, plain, results, runs=options["runs"], step=log.append, devices=device_count(machine))
            keep(failed, results, log)
            rows += unlike(failed, ledger)
        _name(session, plain, results, log)
    verdicts = {result.cell: verdict for result, verdict in rows}
    lines = [_line(point, results, verdicts) for point in points]
    slow = compare(points, lines, route)
    return lines, max(code_of([verdict for _, verdict in rows]), int(slow))


def _name(session: Session, cells: list[Cell], results: dict[str, Result], log: ResultLog) -> None:
    """Says in the rows of what is right on a device which kernels it launched, from the profiler."""
    sound = [one for one in cells if timing.right(one, results[one.id])]
    unknown = [one for one in sound if not results[one.id].timings or not results[one.id].timings[-1].kernels]
    found = timing.shown(session, unknown) | {one.id: results[one.id].timings[-1].kernels for one in sound if one not in unknown}
    for place, kernels in found.items():
        results[place].chosen = {**results[place].chosen, "kernels": ", ".join(dict.fromkeys(family(kernel.name) for kernel in kernels))}
        log.append(results[place])


def _line(point: Point, results: dict[str, Result], verdicts: dict[str, Verdict]) -> ServedLine:
    result = results[point.cell.id]
    line = ServedLine(f"{point.of.mode}, batch {point.batch}", point.of.context, point.of.case.op, point.backend.flag, result.status, default=point.default)
    line.chosen, line.here = dict(result.chosen), point.here
    error = result.errors.get("o")
    line.error = f"{float(error):.2f}" if error is not None else ""
    ignored = [results[one.id] for one in point.flags if results[one.id].reason == "ignored-flag"]
    told = ignored[0] if ignored else result
    line.verdict = "ignored-flag" if ignored else ""
    if told.status != "pass":
        known = verdicts[told.cell]
        line.detail = f"{'known, ' + known.why if known.kind == 'known' else told.detail.splitlines()[0] if told.detail else told.reason}"
    if result.timings:
        mode, medians = timing.times(result)
        line.us = sorted(medians)[len(medians) // 2]
        line.chosen = {**line.chosen, "launch": mode}
    return line


def _place(line: ServedLine) -> tuple[str, int, str]:
    """What is held against each other: times of one launch mode at one cell."""
    return line.mode, line.context, line.chosen.get("launch", "")


def compare(points: list[Point], lines: list[ServedLine], route: Route | None) -> bool:
    """Fills in ratios and the verdict `fallback`; whether there is one. What is judged is what the server takes: the back end it is given, else its default."""
    slow = False
    given = any(point.asked for point in points)
    for point, line in zip(points, lines, strict=True):
        beside = [one for one in lines if _place(one) == _place(line) and one.us and one.status == "pass"]
        times = {one.backend: one.us for one in beside}
        line.ratio = ratios(times).get(line.backend, 0.0) if len(times) > 1 else 0.0
        found = ahead(times, line.backend) if (point.asked if given else point.default) else None
        if found:
            line.verdict, slow = "fallback", True
            why = "asked for by --attention-backend" if point.asked else words(route) if route else ""
            line.detail = f"{found[1]:.2f} times the time of {found[0]}, which gives the same answer; {why}"
    return slow


def _say(routes: list[Route], lines: list[ServedLine], options: dict[str, Any], *, note: str) -> int:
    if options["as_json"]:
        body = {"routes": [dataclasses.asdict(route) for route in routes], "cells": [dataclasses.asdict(line) for line in lines], "note": note}
        click.echo(json.dumps(body, indent=2))
        return 0
    for route in routes:
        click.echo(f"routed  {words(route)}")
    if lines:
        click.echo("\n" + served(lines))
    if any(line.default for line in lines):
        click.echo("* the default here")
    if note:
        click.echo(note)
    return 0
