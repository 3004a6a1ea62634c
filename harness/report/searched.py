"""What a search found, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

from harness.words import plural, trimmed

Row = Mapping[str, Any]


def found(row: Row) -> str:
    """A failure as `run` explains it, then where it came from and its line of the regressions."""
    ended = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
    if not row["alone"]:
        again = "not run again"
    else:
        again = "the same in a process of its own" if row["alone"] == ended else f"in a process of its own: {row['alone']}"
    first = f", first {row['first']} with seed {row['first_seed']}" if row["first"] != row["cell"] else ""
    return f"{row['text']}\n{row['how']}{first}; {plural(row['cells'], 'cell')} ended so; {again}\nfor cases/regressions:\n{row['regression']}"


def searched(rows: Sequence[Row]) -> str:
    """A line an op and provider: cells run, how they ended, and the greatest error of one that passed as a share of its tolerance."""
    head = ["op", "provider", "cells", "passed", "known", "not judged", "findings", "error / tolerance", "at", "notes"]
    lines = [
        [
            row["op"],
            row["provider"],
            row["ran"],
            row["passed"],
            row["known"] or "",
            row["unjudged"] or "",
            row["findings"] or "",
            f"{row['worst']:.3g}" if row["worst_cell"] else "",
            row["worst_cell"].partition("[")[2].removeprefix(f"{row['provider']}-").rstrip("]"),
            f"ended {row['why_ended']}" if row["why_ended"].startswith("after") else row["why_ended"],
        ]
        for row in rows
    ]
    head, lines = trimmed(head, lines)
    return tabulate(lines, headers=head, tablefmt="simple", disable_numparse=True)
