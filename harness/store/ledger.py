"""The ledger: the reviewed file of what is known. What it lists is no finding; what it lists and no longer happens is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness import toml
from harness.errors import UsageError
from harness.store import conditions
from harness.store.results import COMPILED, FINDINGS, QUIET, STATUSES, Result

KINDS = ("known", "required")


@dataclass(frozen=True)
class Entry:
    """One reviewed fact about some cells.

    kind      `known`: the cells end with `status` (and `reason`, when given); `required`: they must run and pass, so that a
              refusal, an absence or a missing symbol is a finding
    op, provider; where: axis -> value, list of values or a condition (all must hold; see conditions.py); platforms, arch: where it was seen (empty: anywhere)
    library, versions: a version specifier of that library, for example sglang >=0.5.16,<0.6
    happens   `always` or `sometimes`
    why, link, expires: the reason, where it is discussed, and the day after which it must be reviewed
    """

    op: str
    provider: str
    why: str
    kind: str = "known"
    status: str = ""
    reason: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    platforms: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    library: str = ""
    versions: str = ""
    happens: str = "always"
    link: str = ""
    expires: str = ""
    place: str = ""

    def covers(self, result: Result) -> bool:
        """Whether this entry speaks of that cell."""
        if (self.op, self.provider) != (result.op, result.provider):
            return False
        if (self.platforms and result.platform not in self.platforms) or (self.arch and result.device.get("arch", "") not in self.arch):
            return False
        if not result.case and (self.where or self.kind == "known"):
            return False
        for axis, wanted in self.where.items():
            if not conditions.holds(result.values.get(axis), wanted):
                return False
        return self._version_holds(result.versions)

    def _version_holds(self, versions: Mapping[str, str]) -> bool:
        if not self.versions:
            return True
        try:
            return Version(versions.get(self.library, "")) in SpecifierSet(self.versions, prereleases=True)
        except InvalidVersion:
            return False

    def explains(self, result: Result) -> bool:
        """Whether the cell ended as this `known` entry says."""
        return self.kind == "known" and result.status == self.status and self.reason in ("", result.reason)

    def expired(self, today: date) -> bool:
        return bool(self.expires) and date.fromisoformat(self.expires) < today


@dataclass(frozen=True)
class Verdict:
    """A result against the ledger: `kind` is ok, known, finding, gone (listed, no longer happens), error; `entry` what said so."""

    kind: str
    entry: Entry | None = None
    why: str = ""

    @property
    def bad(self) -> bool:
        return self.kind in ("finding", "gone")


class Ledger:
    """The entries of a ledger file, indexed by op and provider."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)
        self._index: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries:
            self._index.setdefault((entry.op, entry.provider), []).append(entry)

    def judge(self, result: Result) -> Verdict:
        """The verdict on one result: strict both ways."""
        entries = [entry for entry in self._index.get((result.op, result.provider), ()) if entry.covers(result)]
        known = [entry for entry in entries if entry.kind == "known"]
        if result.status == "error":
            return Verdict("error", why=result.reason)
        for entry in known:
            if entry.explains(result):
                return Verdict("known", entry, entry.why)
        if result.status in FINDINGS:
            return Verdict("finding", why=result.reason)
        # a law between calls that a machine cannot show (streams, a large pool) is no op that is not there
        unshown = result.status == "unsupported" and "relation" in result.values
        required = None if unshown else next((entry for entry in entries if entry.kind == "required"), None)
        if required and result.status in QUIET:
            return Verdict("finding", required, f"required, but {result.status}: {required.why}")
        if result.status == "pass" or (known and result.status == "refused"):
            gone = next((entry for entry in known if entry.happens == "always"), None)
            if gone:
                return Verdict("gone", gone, f"the ledger lists {gone.status} ({gone.why}), the cell gave {result.status}")
        return Verdict("ok")


_TYPES: dict[str, type] = {"where": dict, "platforms": list, "arch": list}
_WORDS = {"dict": "table of axes", "list": "list of words", "str": "text"}
_FIELDS = {f.name for f in fields(Entry)} - {"place"}


def load_ledger(path: Path) -> Ledger:
    """The ledger of a TOML file with `[[entry]]` tables. Raises UsageError naming file, entry and what is wrong with it."""
    data = toml.read(path, "the ledger")
    if set(data) - {"entry"} or not isinstance(data.get("entry", []), list):
        raise UsageError(f"{path}: the ledger holds [[entry]] tables alone, not {', '.join(sorted(set(data) - {'entry'})) or 'a plain entry'}")
    return Ledger(_entry(path, number, raw) for number, raw in enumerate(data.get("entry", []), 1))


def _entry(path: Path, number: int, raw: Any) -> Entry:
    if not isinstance(raw, dict):
        raise UsageError(f"{path} entry {number} is not a table; write [[entry]]")
    place = f"{path} entry {number} ({raw.get('op', '?')}, {raw.get('provider', '?')})"
    unknown = sorted(raw.keys() - _FIELDS)
    if unknown:
        raise UsageError(f"{place}: {toml.unknown_field(unknown[0], _FIELDS)}")
    missing = [name for name in ("op", "provider", "why") if not raw.get(name)]
    if missing:
        raise UsageError(f"{place}: needs {', '.join(missing)}")
    for name, value in raw.items():
        wanted = _TYPES.get(name, str)
        if name == "expires" and isinstance(value, date):
            raw = {**raw, "expires": value.isoformat()}
        elif not isinstance(value, wanted):
            raise UsageError(f"{place}: {name} is a {_WORDS[wanted.__name__]}, not {value!r}")
    lists: dict[str, Any] = {name: tuple(raw[name]) for name in ("platforms", "arch") if name in raw}
    values: dict[str, Any] = {**raw, **lists, "place": place}
    entry = Entry(**values)
    for axis, wanted in entry.where.items():
        if why := conditions.mistake(wanted):
            raise UsageError(f"{place}: where {axis}: {why}")
    if entry.kind not in KINDS or entry.happens not in ("always", "sometimes"):
        raise UsageError(f"{place}: kind is one of {', '.join(KINDS)}, happens is always or sometimes")
    if (entry.kind == "known") != (entry.status in (*STATUSES, *COMPILED) and entry.status != "pass"):
        raise UsageError(f"{place}: a known entry gives the status it ends with ({', '.join((*FINDINGS, *QUIET, *COMPILED))}), a required one gives none")
    if bool(entry.versions) != bool(entry.library):
        raise UsageError(f"{place}: library and versions go together")
    try:
        SpecifierSet(entry.versions)
        if entry.expires:
            date.fromisoformat(entry.expires)
    except (InvalidSpecifier, ValueError) as error:
        raise UsageError(f"{place}: {error}") from error
    return entry
