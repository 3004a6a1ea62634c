"""The accepted figures of a target and Triton version: baselines/codegen/<target>/triton-<version>.json, reviewed like code; refreshing is a ratchet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.errors import UsageError
from harness.offline.codegen.rows import Kernel, Row
from harness.store.files import write_whole

Figures = dict[str, Any]
Entry = dict[str, Figures] | str  # kernels by name, or why there are none
_DROPPED = {"name", "place", "arch", "digest", "tried", "seconds"}
# by how much a figure may grow before it is worse, and the least step that counts; what is not listed here is only a change
GROWTH = {"vector_spills": (1.0, 1), "scratch": (1.0, 1), "registers": (1.1, 8), "shared": (1.1, 1024), "code": (1.25, 1024), "scalar_spills": (1.5, 16)}


class Change(NamedTuple):
    """How a kernel of a cell differs from the baseline: `verdict` is worse, gone, better, changed or new."""

    target: str
    cell: str
    kernel: str
    verdict: str
    text: str

    @property
    def bad(self) -> bool:
        return self.verdict in ("worse", "gone")


@dataclass
class Baseline:
    """The file: versions, rows by cell, and the reasons given for what was accepted although it was worse."""

    target: str
    triton: str
    library: str
    rows: dict[str, Entry]
    accepted: dict[str, str]


def path_of(folder: Path, target: str, triton: str) -> Path:
    """The baseline's file under a folder of baselines."""
    return folder / "codegen" / target / f"triton-{triton}.json"


def load(folder: Path, target: str, triton: str) -> Baseline | None:
    """The baseline, or None where nobody accepted one. Raises UsageError for a broken file, or one of another target or Triton."""
    path = path_of(folder, target, triton)
    if not path.is_file():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Baseline)
        for entry in found.rows.values():
            for figures in () if isinstance(entry, str) else entry.values():
                msgspec.convert({**figures, "name": "", "place": ""}, Kernel)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} is no codegen baseline ({type(error).__name__}: {error}); restore it, or remove it and refresh") from error
    if (found.target, found.triton) != (target, triton):
        raise UsageError(f"{path} holds the figures of {found.target} and triton {found.triton}; restore it, or remove it and refresh")
    return found


def save(folder: Path, baseline: Baseline) -> None:
    """Writes the file whole: sorted, a line a cell."""

    def lines(mapping: Mapping[str, Any]) -> str:
        made = [f"  {json.dumps(key)}: {json.dumps(mapping[key], sort_keys=True, separators=(',', ':'))}" for key in sorted(mapping)]
        return "{\n" + ",\n".join(made) + "\n }" if made else "{}"

    head = {"library": baseline.library, "target": baseline.target, "triton": baseline.triton}
    parts = [f' "accepted": {lines(baseline.accepted)}', *(f' "{key}": {json.dumps(value)}' for key, value in head.items()), f' "rows": {lines(baseline.rows)}']
    write_whole(path_of(folder, baseline.target, baseline.triton), "{\n" + ",\n".join(parts) + "\n}\n")


def entry_of(row: Row) -> Entry:
    """What the baseline keeps of a row: figures that are not zero, or why nothing was compiled."""
    if row.status != "compiled":
        return f"{row.status}: {row.detail}"[:160]
    return {kernel.name: _figures(kernel) for kernel in row.kernels}


def _figures(kernel: Kernel) -> Figures:
    plain = msgspec.json.decode(msgspec.json.encode(kernel))  # as a file gives it back
    return {name: value for name, value in plain.items() if name not in _DROPPED and value}


def compare(row: Row, old: Entry) -> list[Change]:
    """How a row differs from its accepted entry."""
    new = entry_of(row)

    def change(kernel: str, verdict: str, text: str) -> Change:
        return Change(row.target, row.cell, kernel, verdict, text)

    if isinstance(new, str) or isinstance(old, str):
        if new == old:
            return []
        verdict = "worse" if isinstance(new, str) and not isinstance(old, str) else "better" if isinstance(old, str) and not isinstance(new, str) else "changed"
        return [change("", verdict, f"{old if isinstance(old, str) else 'compiled'} -> {new if isinstance(new, str) else 'compiled'}")]
    changes = [change(name, "gone", "this kernel is no longer compiled for the cell") for name in old.keys() - new.keys()]
    changes += [change(name, "new", "a kernel that the baseline has not") for name in new.keys() - old.keys()]
    for name in old.keys() & new.keys():
        worse, better, other = _compared(old[name], new[name])
        if worse or better or other:
            verdict = "worse" if worse else "better" if better else "changed"
            changes.append(change(name, verdict, ", ".join([*worse, *better, *other])))
    return sorted(changes)


def _compared(old: Figures, new: Figures) -> tuple[list[str], list[str], list[str]]:
    """What is worse, better and merely other, in words."""
    worse: list[str] = []
    better: list[str] = []
    other: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, 0), new.get(name, 0)
        if before == after:
            continue
        text = f"{name} {_words(before)} -> {_words(after)}"
        if name in GROWTH:
            (worse if _grown(before, after, name) else better if _grown(after, before, name) else other).append(text)
        elif name == "limit":  # what the loader refuses
            (worse if after else better).append(text)
        elif name == "matrix" and isinstance(before, dict):  # the best kind of instruction is listed first
            lost = set(before) - set(after or {})
            (worse if lost else other).append(text)
        else:
            other.append(text)
    return worse, better, other


def _grown(before: int, after: int, name: str) -> bool:
    share, least = GROWTH[name]
    return after > before * share and after - before >= least


def _words(value: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in value.items()) or "none" if isinstance(value, dict) else str(value or "none")


def refreshed(old: Baseline | None, rows: Sequence[Row], *, triton: str, library: str, accept: Mapping[str, str], listed: Iterable[str] | None) -> Baseline:
    """The baseline after these rows: what is new, better or merely changed is taken; what is worse only with a reason in `accept` (by cell).
    `listed`: the whole list of cells, where all of it was compiled; others are then dropped."""
    target = rows[0].target
    made = Baseline(target, triton, library, dict(old.rows) if old else {}, dict(old.accepted) if old else {})
    for row in rows:
        bad = row.cell in made.rows and any(change.bad for change in compare(row, made.rows[row.cell]))
        if bad and row.cell not in accept:
            continue
        if row.cell in accept and bad:
            made.accepted[row.cell] = accept[row.cell]
        elif row.cell in made.rows and made.rows[row.cell] != entry_of(row):
            made.accepted.pop(row.cell, None)
        made.rows[row.cell] = entry_of(row)
    if listed is not None:
        kept = set(listed)
        made.rows = {cell: entry for cell, entry in made.rows.items() if cell in kept}
        made.accepted = {cell: why for cell, why in made.accepted.items() if cell in kept}
    return made
