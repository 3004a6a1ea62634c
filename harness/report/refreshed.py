"""What a refresh did to the baselines: by machine start a table of what changed, counts of the rest, and what needs a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from harness.store.measured import Measured
from harness.store.ratchet import APPENDED, KEPT, REFUSED, Change
from harness.words import plural, trimmed

Starts = Sequence[tuple[Measured, Sequence[Change]]]
_QUIET = (APPENDED, KEPT)  # told by their number alone
_MOST = 20  # objections that are shown


def refreshed(starts: Starts, objections: Sequence[str], files: Sequence[str], *, dry_run: bool, again: str) -> str:
    """For people. `again`: the options that name the runs."""
    if objections:
        shown = [f"  {line}" for line in objections[:_MOST]]
        more = [f"  ... and {len(objections) - _MOST} more"] if len(objections) > _MOST else []
        return "\n".join(["nothing is refreshed:", *shown, *more])
    parts = [_table(one, changes) for one, changes in starts]
    refused = [change for _, changes in starts for change in changes if change.what == REFUSED]
    if refused:
        lines = [f"  --accept '{change.cell}=REASON'   # {change.why}" for change in {change.cell: change for change in refused}.values()]
        parts.append("\n".join([f"left as they were; to take them from the same runs, give the same options, {again} and (* stands for any text)", *lines]))
    verb = "would write" if dry_run else "wrote"
    parts.append(f"{verb} {', '.join(files)}" if files else "nothing to write: the baselines hold this already")
    return "\n\n".join(parts)


def _table(one: Measured, changes: Sequence[Change]) -> str:
    counts = Counter(change.what for change in changes)
    said = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    head = f"machine start {one.start} ({one.described.at}, driver {one.described.driver or 'unknown'}): {plural(len(changes), 'cell')}: {said}"
    rows = [[change.cell, change.what, change.was or "-", change.now or "-", _share(change), change.why] for change in changes if change.what not in _QUIET]
    columns, kept = trimmed(["cell", "is", "was", "now", "change", "why"], rows)
    table = tabulate(kept, headers=columns, tablefmt="simple", disable_numparse=True, colalign=["left"] * 4 + ["right"] + ["left"] * (len(columns) - 5))
    return f"{head}\n\n{table}" if rows else head


def _share(change: Change) -> str:
    return "" if change.share is None else f"{100 * change.share:+.2f} %"


def refreshed_record(starts: Starts, objections: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    """The same for programs; every cell, also what is unchanged."""
    told = [
        {
            "start": one.start,
            "at": one.at,
            "driver": one.described.driver,
            "versions": one.described.versions,
            "changes": [asdict(change) for change in changes],
        }
        for one, changes in starts
    ]
    return {"starts": told, "objections": list(objections), "files": list(files)}
