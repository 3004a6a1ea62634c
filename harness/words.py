"""Words for people: plurals, and tables without an empty last column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def plural(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`; `1 query`, `2 queries`."""
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else many}"


def trimmed(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """A table's heads and rows without the last column where that is empty in every row."""
    kept = len(head) - (not any(row[-1] for row in rows))
    return list(head[:kept]), [list(row[:kept]) for row in rows]
