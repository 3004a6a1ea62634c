"""The cells of a run, as workers take them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from harness.selection import Cell

_CASES = 16  # of one op, that a worker takes at a time


class Pile:
    """Cells by case, each handed out once, to any thread. A case is never split, because its providers share inputs and golden result.

    A worker takes some cases of one op at a time, ops in turn, so that each meets few libraries and no two wait for the same just-in-time
    build. Where none are left it takes over, one by one, the last cases of the worker that has the most: a build may hold that one up for
    minutes.
    """

    def __init__(self, cells: Sequence[Cell], workers: int) -> None:
        self._waiting = deque(_chunks(cells, workers))
        self._taken: dict[int, deque[list[Cell]]] = {}
        self._lock = threading.Lock()

    def take(self, slot: int) -> list[Cell] | None:
        """The next case for the worker of a slot: its cells; None when none is left."""
        with self._lock:
            mine = self._taken.setdefault(slot, deque())
            if not mine and self._waiting:
                mine.extend(self._waiting.popleft())
            if mine:
                return mine.popleft()
            most = max(self._taken.values(), key=len)
            return most.pop() if most else None


def _chunks(cells: Sequence[Cell], workers: int) -> list[list[list[Cell]]]:
    """Some cases of one op at a time; with several workers, the first of every op before the second of any."""
    cases: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        cases.setdefault(cell.op, {}).setdefault(cell.case.id if cell.case else "", []).append(cell)
    chunks: list[tuple[int, list[list[Cell]]]] = []
    for groups in cases.values():
        pending = list(groups.values())
        chunks += [(turn, pending[start : start + _CASES]) for turn, start in enumerate(range(0, len(pending), _CASES))]
    if workers > 1:
        chunks.sort(key=lambda chunk: chunk[0])
    return [chunk for _, chunk in chunks]
