"""Routes held against the reviewed departures of cases/routes.toml: strict both ways."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.offline.routes.facts import Known
from harness.offline.routes.judge import Route
from harness.offline.routes.survey import Survey


@dataclass(frozen=True)
class Finding:
    """kind: `new` (off the fast path and not listed), `gone` (listed and no longer so), `unknown` (the code stopped at something undescribed).
    An unknown decision that is of no model has the question in `model` and TP 0."""

    kind: str
    model: str
    target: str
    tp: int
    text: str


def hold(rows: Iterable[Route], known: Iterable[Known], version: str) -> list[Finding]:
    """The findings. A source without a version is held against every entry, and nothing is `gone` in it."""
    entries = [entry for entry in known if _covers(entry, version)]
    found = []
    for row in rows:
        listed = [entry for entry in entries if row.model == entry.model and row.target in entry.targets and row.tp in entry.tp]
        if row.stopped:
            found.append(Finding("unknown", row.model, row.target, row.tp, row.stopped))
        elif row.fast is False and row.backend not in [entry.backend for entry in listed]:
            found.append(Finding("new", row.model, row.target, row.tp, f"{row.backend}, not {' or '.join(row.fast_backends)}"))
        elif version and row.fast is not False and listed:
            now = row.backend if row.served else "a version that does not serve it"
            found.append(Finding("gone", row.model, row.target, row.tp, f"{listed[0].place} lists {listed[0].backend}, it is {now}"))
    return found


def unknowns(found: Survey) -> list[Finding]:
    """The decisions beside the routes that the code did not answer: sampling and head counts (of which one stands for all that stopped alike)."""
    stopped = [(row.question, row.target, row.stopped) for row in found.sampling if row.stopped]
    stopped += [(row.place, target, row.text) for target, row in found.heads if row.accepted is None and row.text.startswith("unknown")]
    return [Finding("unknown", question, target, 0, text.removeprefix("unknown: ")) for question, target, text in dict.fromkeys(stopped)]


def _covers(entry: Known, version: str) -> bool:
    if not version or not entry.versions:
        return True
    try:
        return Version(version) in SpecifierSet(entry.versions, prereleases=True)
    except InvalidVersion:
        return True
