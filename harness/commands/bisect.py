"""`kernel-parity bisect`: the version of a library at which a cell's verdict, kernels or time changed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import msgspec

from harness.commands.timing import refuse_without_device
from harness.commands.trying import Trial, timing_options
from harness.errors import UsageError
from harness.machine.platforms import machine_platform
from harness.offline.versions import Index, Untestable
from harness.plugins import load_plugins
from harness.report import bisected
from harness.search.grades import GRADES, Grade
from harness.search.versions import first_change
from harness.selection import Cell, find_cell, standing
from harness.store.results import Result

Row = dict[str, Any]


class Bisect:
    """The search over `order`, versions from the good end to the bad one; every version that is tried is a step, printed as it comes."""

    def __init__(self, trial: Trial, order: list[str], grade: Grade, say: Any) -> None:
        self.trial, self.order, self.grade, self.say = trial, order, grade, say
        self.steps: list[Row] = []
        self.results: dict[str, Result] = {}

    def end(self, version: str) -> Result:
        """The result of an end of the list. Raises UsageError where it cannot be tried."""
        try:
            result, kept = self.trial.result(version)
            if why := self.grade.without(result):
                raise Untestable(why)
        except Untestable as why:
            raise UsageError(f"{self.trial.index.package} {version} cannot be tried: {why}; give another version") from None
        self._step(version, "good" if version == self.order[0] else "bad", result, kept)
        return result

    def ask(self, place: int) -> bool | None:
        """Whether the cell ends otherwise than at the good end under that version; None where it cannot be tried."""
        version = self.order[place]
        try:
            result, kept = self.trial.result(version)
            if why := self.grade.without(result):
                raise Untestable(why)
        except Untestable as why:
            self.steps.append({"version": version, "how": "skipped", "said": str(why), "detail": "", "kept": False})
            self.say(bisected.step(version, str(why), "skipped"))
            return None
        changed = self.grade.changed(result)
        self._step(version, "bad" if changed else "good", result, kept)
        return changed

    def _step(self, version: str, how: str, result: Result, kept: bool) -> None:
        self.results[version] = result
        said, detail = self.grade.said(result), result.detail.partition("\n")[0] if result.status != "pass" else ""
        self.steps.append({"version": version, "how": how, "said": said, "detail": detail, "kept": kept})
        self.say(bisected.step(version, said + (" (kept)" if kept else ""), how))


def bisect_versions(**options: Any) -> int:
    """Finds the change and prints it; returns the exit code."""
    machine = machine_platform(options["platform"])
    load_plugins(options["plugins"])
    against = options["against"]
    provider, case = find_cell(options["cell"])
    package = options["package"] or provider.library.distribution
    platform, status, why = standing(provider, machine)
    brought = status == "absent" and package == provider.library.distribution  # by each version that is tried
    if reason := ("" if brought else why) or provider.declines(case, platform):
        raise UsageError(f"{options['cell']} cannot run here: {reason}")
    cell = Cell(provider.op, provider, case, platform)
    if against != "status":
        refuse_without_device(machine, f"--against {against}")
    if options["find_links"] and not Path(options["find_links"]).is_dir():
        raise UsageError(f"--find-links {options['find_links']} is no folder; give one that holds wheels of {package}")
    index = Index(package, options["index"] or "", options["find_links"] or "")
    limits = (f"--timeout={options['timeout']}", f"--build-timeout={options['build_timeout']}")
    trial = Trial(cell, index, machine, options["seed"], tuple(options["plugins"]), (*timing_options(against, options["runs"]), *limits), options["fresh"])
    listed = index.between(options["good"], options["bad"])
    order = listed if listed[0] == _named(listed, options["good"]) else listed[::-1]
    if len(order) == 1:
        raise UsageError(f"--good and --bad are both {order[0]}: give two versions")
    quiet = options["as_json"]
    if not quiet:
        click.echo(f"{cell.id} over {package}, {len(order)} versions from {listed[0]} to {listed[-1]}, by {against}; {machine}", err=True)
    search = Bisect(trial, order, GRADES[against](), (lambda line: None) if quiet else click.echo)
    began = time.monotonic()
    record = _searched(search, older="good" if order is listed else "bad")
    record = {"cell": cell.id, "package": package, "against": against, "seconds": round(time.monotonic() - began, 1), **record}
    click.echo(msgspec.json.encode(record) if quiet else "\n" + bisected.change(record))
    return 0


def _searched(search: Bisect, *, older: str) -> Row:
    """The record of a search, whose ends are tried first. Raises UsageError where they are alike, or the good one is the bad one."""
    good, bad = search.end(search.order[0]), search.end(search.order[-1])
    if why := search.grade.between(good, bad):
        raise UsageError(f"{search.trial.index.package} {search.order[0]} and {search.order[-1]}: {why}")
    last, first = first_change(len(search.order), search.ask)
    if older == "bad":  # told in the order of the versions: the first good one, after the last bad one
        last, first = first, last
    between = search.order[min(last, first) + 1 : max(last, first)]
    named = {"last": search.order[last], "first": search.order[first]}
    return {"older": older, **named, "between": between if older == "good" else between[::-1], "steps": search.steps, "results": _plain(search, named)}


def _plain(search: Bisect, named: dict[str, str]) -> Row:
    return {version: msgspec.to_builtins(search.results[version]) for version in named.values()}


def _named(listed: list[str], text: str) -> str:
    from packaging.version import Version

    return next(version for version in listed if Version(version) == Version(text))
