"""`kernel-parity symbols`: names that one platform leaves unbound or None, from the sources alone."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import click

from harness.errors import UsageError
from harness.offline.sources import Source, find_source
from harness.offline.symbols import showing
from harness.offline.symbols.accepted import Entry, Judged, judge, load_accepted
from harness.offline.symbols.facts import Scenario, load_config, load_scenarios, scenarios_of
from harness.offline.symbols.package import Report, as_json, scan_source
from harness.selection import cases_folder, names

_NOT_CONFIGS = ("scenarios", "accepted")


def scan(**options: Any) -> int:
    """Scans, prints and judges; returns the exit code."""
    folder = cases_folder(options["cases_dir"]) / "symbols"
    source, config_path = _find(options["spec"], folder)
    scenarios = scenarios_of(list(names(options["platforms"])), load_scenarios(folder / "scenarios.toml"), load_config(config_path))
    entries = [] if options["diff"] else _entries(options["ledger"], folder)
    report = _scan(source, config_path, folder, scenarios, options)
    if options["diff"]:
        other, other_config = _find(options["diff"], folder)
        return _print_diff(_scan(other, other_config, folder, scenarios, options), report, options["as_json"])
    usual = [scenario.name for scenario in scenarios] == list(load_config(config_path).scenarios)
    judged = judge(report, entries, whole=usual and options["ledger"] != "none")
    if options["as_json"]:
        click.echo(json.dumps({**as_json(report), **_verdicts(judged)}, indent=2))
    else:
        ledger = "" if options["ledger"] == "none" else options["ledger"] or str(folder / "accepted.toml")
        click.echo("\n".join(showing.lines(report, judged, ledger)))
    return 1 if judged.new or judged.gone else 0


def _scan(source: Source, config_path: Path, folder: Path, scenarios: list[Scenario], options: dict[str, Any]) -> Report:
    return scan_source(source, config_path, folder / "scenarios.toml", scenarios, everything=options["everything"], fresh=options["fresh"])


def _find(spec: str, folder: Path) -> tuple[Source, Path]:
    """The sources that a spec names, and the configuration of their package: by name, or by what a path holds."""
    configs = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.stem not in _NOT_CONFIGS}
    named = spec.partition("==")[0]
    if named in configs:
        return find_source(spec, named), configs[named]
    if not Path(spec).exists():
        raise UsageError(f"{spec!r} is no package with a configuration ({', '.join(sorted(configs, reverse=True))}; in {folder}), and no path")
    for package in sorted(configs, reverse=True):
        try:
            return find_source(spec, package), configs[package]
        except UsageError:
            continue
    raise UsageError(f"{spec!r} holds no package with a configuration ({', '.join(sorted(configs, reverse=True))}; in {folder})")


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


def _print_diff(old: Report, new: Report, plain: bool) -> int:
    """What came and what went between two versions; a hit is the same where file, function, symbol and failure are."""
    before, after = {hit.key: hit for hit in old.hits}, {hit.key: hit for hit in new.hits}
    came = [hit for key, hit in after.items() if key not in before]
    went = [hit for key, hit in before.items() if key not in after]
    if plain:
        rows = {"came": [list(hit.key) for hit in came], "went": [list(hit.key) for hit in went]}
        click.echo(json.dumps({"from": old.label, "to": new.label, **rows}, indent=2))
        return 1 if came else 0
    click.echo("\n".join(showing.difference(old, new, came, went)))
    return 1 if came else 0
