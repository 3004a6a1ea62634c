"""The table of served cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tabulate import tabulate

_SHOWN = ("class", "kv splits", "kernels", "launch")


@dataclass
class ServedLine:
    """One back end at one cell. us: microseconds, 0 where nothing was timed; ratio: to the fastest with the same answer in the same mode, 0 where it
    is the only one; chosen: by step; here: it can be driven on this machine."""

    mode: str
    context: int
    op: str
    backend: str
    status: str
    default: bool = False
    error: str = ""
    us: float = 0.0
    ratio: float = 0.0
    verdict: str = ""
    detail: str = ""
    chosen: Mapping[str, str] = field(default_factory=dict)
    here: bool = True


def served(lines: Iterable[ServedLine]) -> str:
    """A row a line, below it what the verdicts say and what cannot be driven here; the default back end carries a star."""
    known = list(lines)
    rows = [row for row in known if row.here]
    timed = any(row.us for row in rows)
    head = ["mode", "context", "op", "back end", "status", "of budget", *(["us", "to fastest"] if timed else []), "chosen"]
    table = [[*_cells(row), *(_times(row) if timed else []), _chosen(row)] for row in rows]
    parts = [tabulate(table, headers=head, tablefmt="simple", disable_numparse=True)] if table else []
    told: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.detail:
            told[row.backend, row.verdict or row.status, row.detail].append(f"{row.mode}, context {row.context}")
    parts += [f"{backend}, {'; '.join(where)}: {said}: {detail}" for (backend, said, detail), where in told.items()]
    parts += dict.fromkeys(f"not driven here: {row.backend} ({row.detail})" for row in known if not row.here)
    return "\n".join(parts)


def _cells(row: ServedLine) -> list[str]:
    status = f"{row.status}, {row.verdict}" if row.verdict and row.verdict != row.status else row.status
    return [row.mode, str(row.context), row.op, f"{row.backend}{' *' if row.default else ''}", status, row.error]


def _times(row: ServedLine) -> list[str]:
    return [f"{row.us:.1f}" if row.us else "-", f"{row.ratio:.2f}" if row.ratio else "-"]


def _chosen(row: ServedLine) -> str:
    return "; ".join(row.chosen[name] if name in ("class", "kernels") else f"{name} {row.chosen[name]}" for name in _SHOWN if row.chosen.get(name))
