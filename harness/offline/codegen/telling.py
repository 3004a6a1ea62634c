"""A finished sweep as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from tabulate import tabulate

from harness.offline.codegen.baseline import Change
from harness.offline.codegen.rows import Kernel, Row
from harness.offline.codegen.rules import Finding
from harness.offline.targets import Target
from harness.words import trimmed

_COLUMNS = ("registers", "agpr", "vector_spills", "scalar_spills", "scratch", "shared", "dots", "code")


def as_text(outcome: Any, targets: Sequence[Target], *, kernels: tuple[str, ...] = (), in_full: bool = False) -> str:
    """Findings, differences from the baseline, and a line a target; with `in_full` or `kernels` a line a kernel too."""
    parts = [f"finding, {_words(finding)}" for finding in outcome.judged.fresh]
    parts += [f"gone, {target} {cell}: the ledger lists {entry.status} ({entry.why}), it is no longer there" for target, cell, entry in outcome.judged.gone]
    parts += [f"baseline, {_place(change)}: {change.verdict}: {change.text}" for change in outcome.changes if change.bad]
    other = Counter((change.target, change.verdict) for change in outcome.changes if not change.bad)
    parts += [f"{count} {verdict} for {target}: --refresh takes them into the baseline" for (target, verdict), count in sorted(other.items())]
    if in_full or kernels:
        parts.append(_kernels([row for row, _ in outcome.rows], kernels))
    parts.append(_summary(outcome, targets))
    if outcome.judged.known:
        parts.append("known findings stand in the ledger (--ledger none shows them)")
    parts.append(f"{outcome.library}, triton {outcome.triton}: compiled, not run; {outcome.seconds:.1f} s")
    return "\n".join(parts)


def _words(finding: Finding) -> str:
    at = f" {finding.kernel} ({finding.place})" if finding.kernel else ""
    return f"{finding.target} {finding.cell}{at}: {finding.kind}: {finding.text}"


def _place(change: Change) -> str:
    return " ".join(filter(None, [change.target, change.cell, change.kernel]))


def _summary(outcome: Any, targets: Sequence[Target]) -> str:
    table = []
    for target in targets:
        rows = [row for row, _ in outcome.rows if row.target == target.id]
        statuses = Counter(row.status for row in rows)
        distinct = {kernel.digest for row in rows for kernel in row.kernels if kernel.digest}
        known = sum(finding.target == target.id for finding, _ in outcome.judged.known)
        fresh = sum(finding.target == target.id for finding in outcome.judged.fresh)
        ended = ", ".join(f"{count} {status}" for status, count in statuses.items())
        table.append([target.id, ended, len(distinct), known, fresh, f"{sum(row.seconds for row in rows):.0f}"])
    return tabulate(table, headers=["target", "cells", "binaries", "known findings", "findings", "s when compiled"], tablefmt="simple", disable_numparse=True)


def _kernels(rows: Iterable[Row], wanted: tuple[str, ...]) -> str:
    table = [
        [
            row.target,
            row.cell,
            kernel.name,
            *(getattr(kernel, name) or "" for name in _COLUMNS),
            _matrix(kernel),
            kernel.error or (kernel.limit and "over") or "",
        ]
        for row in rows
        for kernel in row.kernels
        if not wanted or any(name in kernel.name for name in wanted)
    ]
    head, shown = trimmed(["target", "cell", "kernel", *_COLUMNS, "matrix", "notes"], table)
    return tabulate(shown, headers=head, tablefmt="simple", disable_numparse=True)


def _matrix(kernel: Kernel) -> str:
    return ", ".join(f"{count} {name}" for name, count in kernel.matrix.items())


def as_json(outcome: Any) -> dict[str, Any]:
    """Everything, plain."""
    judged = outcome.judged
    return {
        "library": outcome.library,
        "triton": outcome.triton,
        "seconds": round(outcome.seconds, 2),
        "rows": [msgspec.to_builtins(row) for row, _ in outcome.rows],
        "findings": [msgspec.to_builtins(finding) | {"verdict": "finding"} for finding in judged.fresh]
        + [msgspec.to_builtins(finding) | {"verdict": "known", "why": entry.why} for finding, entry in judged.known],
        "gone": [{"target": target, "cell": cell, "status": entry.status, "why": entry.why} for target, cell, entry in judged.gone],
        "changes": [change._asdict() for change in outcome.changes],
    }
