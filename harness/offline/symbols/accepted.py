"""The hits that were looked at and accepted, each with its label: strict both ways, like the ledger of cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness import toml
from harness.errors import UsageError
from harness.offline.symbols.package import Report
from harness.offline.symbols.scan import Hit


@dataclass(frozen=True)
class Entry:
    """One reviewed hit, or several symbols of one function.

    package, file, function, failure: of the hits (file empty: any, for operators that move); symbols: the last name of each
    label      `true` (it does fail there), `false` (it does not; `why` says what the scan cannot see)
    versions   of the package, as a specifier
    """

    package: str
    function: str
    failure: str
    symbols: tuple[str, ...]
    label: str
    why: str
    versions: str
    file: str = ""
    scenarios: tuple[str, ...] = ()
    link: str = ""
    expires: str = ""
    place: str = ""

    def covers(self, hit: Hit) -> bool:
        return (self.function, self.failure) == (hit.function, hit.failure) and self.file in ("", hit.file) and short(hit.symbol) in self.symbols

    def speaks_of(self, version: str) -> bool:
        """Whether the entry is about this version of the package; a checkout without a version is never expected to show it."""
        try:
            return Version(version) in SpecifierSet(self.versions, prereleases=True)
        except InvalidVersion:
            return False

    def expired(self, today: date) -> bool:
        return bool(self.expires) and date.fromisoformat(self.expires) < today


@dataclass(frozen=True)
class Judged:
    """A report against the accepted hits: what is new, what is known with its entry, and what is listed and gone."""

    new: list[Hit]
    known: list[tuple[Hit, Entry]]
    gone: list[tuple[Entry, str]]

    @property
    def precision(self) -> float:
        """The share of hits, by function, that are true; a new one counts as false until somebody has looked."""
        places = {(hit.file, hit.function): entry.label == "true" for hit, entry in self.known if hit.failure != "no kernel"}
        places |= {(hit.file, hit.function): False for hit in self.new if hit.failure != "no kernel"}
        return sum(places.values()) / len(places) if places else 1.0


def short(symbol: str) -> str:
    """The last name of a symbol, or all of it for an operator and a choice."""
    return symbol.rpartition(":")[2] if ":" in symbol else symbol


def judge(report: Report, entries: Iterable[Entry], *, whole: bool = True) -> Judged:
    """Holds a report against the entries; `whole`: every scenario and the whole scope were scanned, so that what is missing is gone."""
    mine = [entry for entry in entries if entry.package == report.package]
    known: list[tuple[Hit, Entry]] = []
    new: list[Hit] = []
    for hit in report.hits:
        entry = next((e for e in mine if e.covers(hit) and (e.speaks_of(report.version) or not report.version)), None)
        if entry:
            known.append((hit, entry))
        else:
            new.append(hit)
    seen = {(entry.place, short(hit.symbol)) for hit, entry in known}
    expected = [(entry, symbol) for entry in mine if whole and entry.speaks_of(report.version) for symbol in entry.symbols]
    expected = [pair for pair in expected if not pair[0].scenarios or set(pair[0].scenarios) & set(report.scenarios)]
    return Judged(new, known, [(entry, symbol) for entry, symbol in expected if (entry.place, symbol) not in seen])


_FIELDS: dict[str, Any] = {f.name: list[str] if f.name in ("symbols", "scenarios") else str for f in fields(Entry) if f.name != "place"}
_NEEDED = ("package", "function", "failure", "symbols", "label", "why", "versions")


def load_accepted(path: Path) -> list[Entry]:
    """The entries of a TOML file with `[[hit]]` tables. Raises UsageError naming file, entry and what is wrong with it."""
    data = toml.read(path, "the accepted hits")
    toml.check(str(path), data, {"hit": list[dict[str, Any]]})
    return [_entry(path, number, raw) for number, raw in enumerate(data.get("hit", []), 1)]


def _entry(path: Path, number: int, raw: dict[str, Any]) -> Entry:
    place = f"{path} hit {number} ({raw.get('function', '?')})"
    toml.check(place, raw, _FIELDS, _NEEDED)
    if raw["label"] not in ("true", "false"):
        raise UsageError(f"{place}: label is true or false, not {raw['label']!r}")
    try:
        SpecifierSet(raw["versions"])
        if raw.get("expires"):
            date.fromisoformat(raw["expires"])
    except (InvalidSpecifier, ValueError) as error:
        raise UsageError(f"{place}: {error}") from error
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    return Entry(**values, place=place)
