"""Findings against the ledger: strict both ways, over the cells that were compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.offline.codegen.cells import Listed
from harness.offline.codegen.rows import Row
from harness.offline.codegen.rules import KINDS, Finding
from harness.store.ledger import Entry, Ledger
from harness.store.results import Result


class Judged(NamedTuple):
    """`known`, with the entries that list them; `fresh`, findings nobody listed; `gone`, (target, cell, entry) listed and no longer found."""

    known: list[tuple[Finding, Entry]]
    fresh: list[Finding]
    gone: list[tuple[str, str, Entry]]


def judge(rows: Sequence[tuple[Row, Listed]], found: Iterable[Finding], ledger: Ledger, versions: Mapping[str, str], jumps: set[tuple[str, str]]) -> Judged:
    """Findings against the entries for their targets. An entry's `platforms` are targets; its `where` takes the case's axes, `kernel` (its name
    in the binary, without `#2`) and `triton` (the version). An entry whose kernel is not among those of a cell that it speaks of is gone too.
    `jumps`: the (target, cell) pairs whose jumps could be judged."""
    entries = [entry for entry in ledger.entries if entry.kind == "known" and entry.status in KINDS]
    of_cell: dict[tuple[str, str], list[Finding]] = {}
    for finding in found:
        of_cell.setdefault((finding.target, finding.cell), []).append(finding)
    result = Judged([], [], [])
    for row, cell in rows:
        here = {name: _as_result(row, cell, name, versions) for name in {"", *(kernel.name.partition("#")[0] for kernel in row.kernels)}}
        asked = {name: _as_result(row, cell, name, versions) for name in _named(entries)} | here
        covering = [entry for entry in entries if row.target in entry.platforms and any(entry.covers(shown) for shown in asked.values())]
        used: set[int] = set()
        for finding in of_cell.get((row.target, row.cell), ()):
            shown = here[finding.kernel.partition("#")[0]]
            said = next((entry for entry in covering if entry.status == finding.kind and entry.covers(shown)), None)
            if said is None:
                result.fresh.append(finding)
            else:
                result.known.append((finding, said))
                used |= {id(entry) for entry in covering if entry.status == finding.kind and entry.covers(shown)}
        for entry in covering:
            judgeable = (row.target, row.cell) in jumps if entry.status == "jump" else row.status == "compiled"
            if judgeable and id(entry) not in used and entry.happens == "always":
                result.gone.append((row.target, row.cell, entry))
    return result


def _named(entries: Iterable[Entry]) -> set[str]:
    """The kernels that entries name, compiled or not."""
    wanted = [entry.where.get("kernel", ()) for entry in entries]
    return {name for names in wanted for name in ([names] if isinstance(names, str) else names)}


def _as_result(row: Row, cell: Listed, kernel: str, versions: Mapping[str, str]) -> Result:
    values = {**cell.case.point, "kernel": kernel, "triton": versions["triton"]}
    return Result(row.cell, cell.op, cell.provider, cell.case.id, "pass", row.target, evidence=row.evidence, values=values, versions=dict(versions))
