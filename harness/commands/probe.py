"""`kernel-parity probe`: how each value of an axis ends on a provider, each in a process of its own, against the accepted support map."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.commands.run import selection_of
from harness.contracts import Axis, Case, op
from harness.errors import HarnessError, UsageError, unknown
from harness.machine.platforms import device_count
from harness.machine.pool import Limits
from harness.providers import Provider, providers_of
from harness.report.mapped import in_words, ran
from harness.selection import Cell, Selection, preset_cases, presets, standing
from harness.session import Session
from harness.store import support
from harness.store.results import Result
from harness.words import plural

BASELINES = Path(__file__).resolve().parent.parent.parent / "baselines"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_MOST = 4096  # cells of one map

Row = dict[str, Any]


def probe_axes(target: str, **options: Any) -> int:
    """Probes PROVIDER.OP; returns the exit code: 1 where a value ends otherwise than the baseline says, 3 where no value ran."""
    selection = selection_of({**options, "preset": "smoke", "model": None, "tp": 1, "shard": "", "ops": (), "providers": (), "cells": ()})
    chosen = _providers(target)
    axes = _axes(chosen[0].op, options["axes"])
    folder = Path(options["baselines"] or os.environ.get("KERNEL_PARITY_BASELINES") or BASELINES)
    limits = Limits(options["timeout"], options["build_timeout"])
    with Session(selection.machine, plugins=tuple(options["plugins"]), limits=limits, seed=options["seed"]) as session:
        reports = [_one(provider, axes, selection, session, folder, options) for provider in chosen]
    if options["as_json"]:
        click.echo(json.dumps(reports, indent=2))
    elif any(report["values"] for report in reports):
        click.echo("\n\n".join(in_words(report) for report in reports))
    if not any(ran(report["values"]) for report in reports):
        click.echo(f"kernel-parity: no value of {target} ran{_why_none(reports)}; kernel-parity doctor says what works here", err=True)
        return HarnessError.exit_code
    return 1 if any(report["changed"] for report in reports) else 0


def _why_none(reports: list[Row]) -> str:
    """Why nothing was probed, each reason once; nothing where the tables say it."""
    reasons = dict.fromkeys(f"{report['status']}: {report['why']}" for report in reports if not report["values"])
    return f" ({'; '.join(reasons)})" if reasons else ""


def _providers(target: str) -> list[Provider]:
    """The provider of PROVIDER.OP, or every one of a library's where no provider has that name."""
    name, dot, op_name = target.rpartition(".")
    if not dot:
        raise UsageError(f"{target!r} is not PROVIDER.OP, for example aiter_persistent.mla_decode (kernel-parity list providers)")
    known = providers_of(op(op_name).name)
    exact = [provider for provider in known if provider.name == name]
    found = exact or [provider for provider in known if provider.library.name == name]
    if not found:
        raise unknown("provider", name, [provider.name for provider in known])
    return found


def _axes(op_name: str, texts: tuple[str, ...]) -> dict[str, list[Any]]:
    """The values by axis. Raises UsageError for an axis given twice and for more points than one map holds."""
    axes: dict[str, list[Any]] = {}
    for name, values in (_values(op_name, text) for text in texts):
        if name in axes:
            raise UsageError(f"--axis {name} is given twice; write its values in one: {name}=8,16..24")
        axes[name] = values
    if (points := math.prod(map(len, axes.values()))) > _MOST:
        raise UsageError(f"{points} points are more than {_MOST}: probe fewer values at once")
    return axes


def _values(op_name: str, text: str) -> tuple[str, list[Any]]:
    """(axis, values) of `heads=1..128`, `heads=1,2,16..32` or `dtype=bf16,fp16`. Raises UsageError."""
    name, equals, listed = text.partition("=")
    axis = op(op_name).axes.by_name.get(name)
    if axis is None or not equals:
        known = ", ".join(op(op_name).axes.by_name)
        raise UsageError(f"--axis {text!r} is not of the form AXIS=1..128 or AXIS=a,b for an axis of {op_name!r}; its axes are {known}")
    return name, list(dict.fromkeys(itertools.chain.from_iterable(_span(axis, part) for part in listed.split(","))))


def _span(axis: Axis, part: str) -> Iterator[Any]:
    if axis.words:
        if part not in axis.words:
            raise UsageError(f"axis {axis.name!r} is one of {', '.join(axis.words)}, not {part!r}")
        yield part
        return
    try:
        if match := _RANGE.fullmatch(part):
            low, high = int(match[1]), int(match[2])
            if low > high or high - low >= _MOST:
                raise ValueError
            yield from range(low, high + 1)
        else:
            yield float(part) if axis.real else int(part)
    except ValueError:
        raise UsageError(f"axis {axis.name!r} takes numbers or ranges such as 1..128 (at most {_MOST} values), not {part!r}") from None


def _one(provider: Provider, axes: dict[str, list[Any]], selection: Selection, session: Session, folder: Path, options: Row) -> Row:
    """The report of one provider: its map, what changed against the baseline, and what was written."""
    platform, status, why = standing(provider, selection.machine)
    empty = {"provider": provider.name, "op": provider.op, "changed": [], "values": [], "written": "", "baseline": ""}
    if status:
        return {**empty, "status": status, "why": why}
    device, versions = session.hello()
    axis_names = [name for name in op(provider.op).axes.by_name if name in axes]
    map_ = support.SupportMap(provider.op, provider.name, axis_names, "", {}, device, platform, versions)
    path = support.place_of(folder, map_)
    before = _before(path, options["accept"])
    base = _base(provider, axes, options["case"] or (before.case if before else ""), selection)
    if base is None:
        return {**empty, "status": "unsupported", "why": "it takes none of the presets' cases with these values; give one with --case"}
    if before and before.case != base.id:
        raise UsageError(f"{path} is of case {before.case!r}, not {base.id!r}; give --case {before.case}, or --accept with that file removed")
    cells = _cells(provider, base, {name: axes[name] for name in axis_names}, platform)
    results = _run(cells, session, options["workers"] or _workers(selection.machine))
    rows = [_row(cell, axis_names, result, provider, device.get("arch", "")) for cell, result in zip(cells, results, strict=True)]
    map_ = msgspec.structs.replace(map_, case=base.id, statuses={row["value"]: row["said"] for row in rows})
    if broken := next((row for row in rows if row["status"] == "error"), None):
        raise HarnessError(f"{provider.name}.{provider.op} at {broken['value']}: {broken['detail']}")
    found = support.changes(before, map_) if before else []
    written = ""
    if (options["accept"] or options["refresh"]) and ran(rows):
        kept = map_ if options["accept"] and not before else support.refreshed(before, map_, () if options["accept"] else found)
        support.save(path, kept)
        written = str(path)
    changed = [] if options["accept"] else [change for change in found if change.worse or not options["refresh"]]
    return {
        "provider": provider.name,
        "op": provider.op,
        "case": base.id,
        "axes": axis_names,
        "platform": platform,
        "device": device,
        "versions": versions,
        "status": "probed",
        "why": "",
        "values": rows,
        "baseline": str(path) if before else "",
        "written": written,
        "changed": [msgspec.to_builtins(change) for change in changed],
    }


def _before(path: Path, replaced: bool) -> support.SupportMap | None:
    """The baseline; one that cannot be read is none where it is to be replaced."""
    try:
        return support.load(path)
    except UsageError:
        if replaced:
            return None
        raise


def _base(provider: Provider, axes: dict[str, list[Any]], asked: str, selection: Selection) -> Case | None:
    """The case to vary: the one asked for, else of the presets' cases that the provider takes at some of the values the plainest (fewest
    axes away from their defaults), and of these the cheapest."""
    declared = op(provider.op)
    if asked:
        return declared.axes.parse(asked)
    tried = [case for preset in presets(selection.cases_dir) for case in preset_cases(selection.cases_dir, preset, provider.op)]
    plain = {axis.name: axis.default for axis in declared.axes.axes if axis.default is not None}
    for case in sorted(
        dict.fromkeys(tried), key=lambda case: (sum(case.point.get(name, word) != word for name, word in plain.items()), declared.impl.work(case).flops)
    ):
        points = ({**case.point, **dict(zip(axes, values, strict=True))} for values in itertools.product(*axes.values()))
        if any(provider.why_not(declared.axes.case(**point)) is None for point in points):
            return case
    return None


def _cells(provider: Provider, base: Case, axes: dict[str, list[Any]], platform: str) -> list[Cell]:
    """A cell a point, gates open: what the library's own dispatch refuses is what is asked."""
    declared, cells = op(provider.op), []
    for values in itertools.product(*axes.values()):
        case = declared.axes.case(**{**base.point, **dict(zip(axes, values, strict=True))})
        why = provider.declines(case, platform)
        cells.append(Cell(provider.op, provider, case, platform, "unsupported" if why else "", why or ""))
    return cells


def _workers(machine: str) -> int:
    return os.cpu_count() or 1 if machine == "cpu" else device_count(machine)


def _run(cells: list[Cell], session: Session, workers: int) -> list[Result]:
    """Every cell in a process of its own, over so many at a time; how far it is, on stderr: at the start, and every ten seconds."""
    slots: list[int] = list(range(workers))
    provider = cells[0].provider
    click.echo(f"{provider.name}.{provider.op}: {plural(len(cells), 'value')}", err=True)

    def run(cell: Cell) -> Result:
        slot = slots.pop()
        try:
            return session.run_alone(cell, slot)
        finally:
            slots.append(slot)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        results, last = [], time.monotonic()
        for result in pool.map(run, cells):
            results.append(result)
            if time.monotonic() - last > 10:
                last = time.monotonic()
                click.echo(f"{len(results)}/{len(cells)} values", err=True)
        return results


def _row(cell: Cell, axes: list[str], result: Result, provider: Provider, arch: str) -> Row:
    """A value's outcome, with what the library's gate tables say of it and which kernels it must lead to."""
    assert cell.case is not None
    value = ",".join(str(cell.case.point[name]) for name in axes)
    said = result.status if result.status == "pass" or not result.reason else f"{result.status}: {result.reason}"
    row: Row = {"value": value, "status": result.status, "reason": result.reason, "said": said, "detail": result.detail.split("\n")[0]}
    gate = provider.gated(cell.case, arch)
    kernels = provider.expected_kernels(cell.case, arch)
    return row | ({"gate": gate} if gate else {}) | ({"must_run": list(kernels)} if kernels else {})
