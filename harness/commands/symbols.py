"""`kernel-parity symbols`: names that one platform leaves unbound or None, from the sources alone."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import click

from harness.errors import UsageError
from harness.offline.sources import Source, find_source
from harness.offline.symbols.accepted import Entry, Judged, judge, load_accepted, short
from harness.offline.symbols.facts import Scenario, load_config, load_scenarios, scenarios_of
from harness.offline.symbols.package import Report, as_json, scan_source
from harness.offline.symbols.scan import Hit
from harness.selection import cases_folder, names

_NOT_CONFIGS = ("scenarios", "accepted")


def scan(**options: Any) -> int:
    """Scans, prints and judges; returns the exit code."""
    folder = cases_folder(options["cases_dir"]) / "symbols"
    source, config_path = _find(options["spec"], folder)
    scenarios = scenarios_of(list(names(options["platforms"])), load_scenarios(folder / "scenarios.toml"), load_config(config_path))
    report = _scan(source, config_path, folder, scenarios, options)
    if options["diff"]:
        other, other_config = _find(options["diff"], folder)
        return _print_diff(_scan(other, other_config, folder, scenarios, options), report, options["as_json"])
    usual = [scenario.name for scenario in scenarios] == list(load_config(config_path).scenarios)
    judged = judge(report, _entries(options["ledger"], folder), whole=usual and options["ledger"] != "none")
    if options["as_json"]:
        click.echo(json.dumps({**as_json(report), **_verdicts(judged)}, indent=2))
    else:
        _print(report, judged)
    return 1 if judged.new or judged.gone else 0


def _scan(source: Source, config_path: Path, folder: Path, scenarios: list[Scenario], options: dict[str, Any]) -> Report:
    return scan_source(source, config_path, folder / "scenarios.toml", scenarios, everything=options["everything"], fresh=options["fresh"])


def _find(spec: str, folder: Path) -> tuple[Source, Path]:
    """The sources that a spec names, and the configuration of their package: by name, or by what a path holds."""
    configs = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.stem not in _NOT_CONFIGS}
    named = spec.partition("==")[0]
    if named in configs:
        return find_source(spec, named), configs[named]
    for package in sorted(configs, reverse=True):
        try:
            return find_source(spec, package), configs[package]
        except UsageError:
            continue
    raise UsageError(f"{spec!r} is no package with a configuration in {folder} ({', '.join(configs)}), and no path that holds one")


def _entries(given: str | None, folder: Path) -> list[Entry]:
    if given == "none":
        return []
    entries = load_accepted(Path(given) if given else folder / "accepted.toml")
    for entry in entries:
        if entry.expired(date.today()):
            click.echo(f"warning: {entry.place} expired on {entry.expires}: review it", err=True)
    return entries


def _verdicts(judged: Judged) -> dict[str, Any]:
    return {
        "new": [list(hit.key) for hit in judged.new],
        "gone": [{"entry": entry.place, "symbol": symbol} for entry, symbol in judged.gone],
        "labels": [{"hit": list(hit.key), "label": entry.label, "why": entry.why} for hit, entry in judged.known],
        "precision": round(judged.precision, 3),
    }


def _print(report: Report, judged: Judged) -> None:
    entries = dict(judged.known)
    for tier in ("default", "explicit-flag"):
        hits = [hit for hit in report.hits if hit.tier == tier and hit.failure != "no kernel"]
        if hits:
            click.echo(f"{'reached by default' if tier == 'default' else 'only with a server flag that no server has by itself'}:\n")
        for file, function in dict.fromkeys((hit.file, hit.function) for hit in hits):
            _print_function([hit for hit in hits if (hit.file, hit.function) == (file, function)], entries)
    lone = [hit for hit in report.hits if hit.failure == "no kernel"]
    if lone:
        fresh = [hit.symbol for hit in judged.new if hit.failure == "no kernel"]
        click.echo(f"registered kernels without one for this platform: {len(lone)} operators" + (f", new: {', '.join(fresh)}" if fresh else ", all accepted"))
        click.echo("  " + ", ".join(hit.symbol for hit in lone) + "\n")
    for entry, symbol in judged.gone:
        click.echo(f"gone: {symbol} of {entry.function} is listed ({entry.place}) and no longer happens: take it out, or end its versions\n")
    when = "kept from an earlier run" if report.kept else f"{report.seconds:g} s"
    counts = f"{len(report.functions)} functions; new {len(judged.new)}, accepted {len(judged.known)}, gone {len(judged.gone)}"
    click.echo(f"{report.label}, {', '.join(report.scenarios)} ({when}): {counts}. Read from source, nothing was run.")


def _print_function(hits: list[Hit], entries: dict[Hit, Entry]) -> None:
    first = hits[0]
    click.echo(f"{first.file}:{first.line} {first.function}")
    for failure in dict.fromkeys(hit.failure for hit in hits):
        uses = ", ".join(f"{short(hit.symbol)} (line {hit.line})" for hit in hits if hit.failure == failure)
        click.echo(f"  {failure}: {uses}")
    if first.note:
        click.echo(f"  {first.note}, without a word in the log")
    if first.needs:
        click.echo(f"  with {'; '.join(first.needs)}")
    if first.chain:
        click.echo(f"  from {' > '.join(first.chain[-4:])}")
    entry = entries.get(first)
    click.echo(f"  in {', '.join(first.scenarios)}; " + (f"accepted ({entry.label}): {entry.why}" if entry else "NEW") + "\n")


def _print_diff(old: Report, new: Report, plain: bool) -> int:
    """What came and what went between two versions; a hit is the same where file, function, symbol and failure are."""
    before, after = {hit.key: hit for hit in old.hits}, {hit.key: hit for hit in new.hits}
    came = [hit for key, hit in after.items() if key not in before]
    went = [hit for key, hit in before.items() if key not in after]
    if plain:
        rows = {"came": [list(hit.key) for hit in came], "went": [list(hit.key) for hit in went]}
        click.echo(json.dumps({"from": old.label, "to": new.label, **rows}, indent=2))
        return 1 if came else 0
    for word, hits in (("came", came), ("went", went)):
        for hit in hits:
            flags = f", with {'; '.join(hit.needs)}" if hit.needs else ""
            click.echo(f"{word}: {hit.file}:{hit.line} {hit.function}: {hit.failure}, {short(hit.symbol)}{flags}")
    click.echo(f"{old.label} to {new.label}: {len(came)} came, {len(went)} went, {len(after) - len(came)} stayed. Read from source, nothing was run.")
    return 1 if came else 0
