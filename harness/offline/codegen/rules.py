"""What in compiled rows is a finding. The rules are spelled out in docs/codegen.md."""

from __future__ import annotations

import operator
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from harness.contracts import Case
from harness.offline.codegen.rows import Kernel, Row
from harness.offline.targets import Target
from harness.store.results import COMPILED
from harness.words import plural

KINDS = (*COMPILED, "refused", "build-failed", "crash")
JUMP = 1.25  # a figure this many times its median over the head counts is a jump
_LEAST = {"registers": 16, "shared": 4096, "code": 4096}  # and by this much at least


class Finding(msgspec.Struct, frozen=True):
    """What is wrong with a cell on a target: `kernel` (empty for the whole cell) and its `place` in the sources, `kind`, and `text`."""

    cell: str
    target: str
    kind: str
    text: str
    kernel: str = ""
    place: str = ""


def of_row(row: Row, target: Target) -> list[Finding]:
    """The findings that a row shows by itself."""
    if row.status not in ("compiled", "unsupported") and not (row.kernels and row.kernels[-1].limit):
        at = next((kernel for kernel in row.kernels if kernel.error), None)
        return [Finding(row.cell, row.target, row.status, row.detail, *((at.name, at.place) if at else ()))]
    return [
        Finding(row.cell, row.target, kind, text, kernel.name, kernel.place) for kernel in row.kernels for kind, text in _of_kernel(kernel, target, row.kernels)
    ]


def _of_kernel(kernel: Kernel, target: Target, others: Sequence[Kernel]) -> Iterable[tuple[str, str]]:
    if kernel.limit:
        smaller = [other.shared for other in others if other.place == kernel.place and not other.limit]
        then = f"the library then took a smaller tile ({smaller[-1]:,} B)" if smaller else "no smaller tile followed"
        yield "over-limit", f"asks for {kernel.shared:,} B of shared memory, {target.id} has {kernel.limit:,}; {then}"
        return
    if kernel.vector_spills:
        yield "spill", f"{kernel.vector_spills} vector registers spilled, {kernel.scratch} B of scratch a lane ({kernel.registers} registers)"
    elif kernel.scratch:
        yield "scratch", f"{kernel.scratch} B of {'scratch' if target.hip else 'stack'} a thread ({kernel.registers} registers)"
    if kernel.dots and not kernel.matrix:
        yield "no-matrix", f"{kernel.dots} dot operations, but no matrix instruction"
    foreign = [flavour for flavour in kernel.fp8 if flavour.startswith("e4m3") and flavour != target.fp8]
    if foreign:
        yield "foreign-fp8", f"reads {', '.join(foreign)}; the matrix instructions of {target.id} are {target.fp8}, so it is converted by hand"


def jumps(rows: Iterable[tuple[Row, Case]]) -> tuple[list[Finding], set[tuple[str, str]]]:
    """Figures that change between head counts where nothing else does, and the (target, cell) pairs that could be judged: three head counts at least."""
    groups: dict[tuple[str, ...], dict[int, Row]] = defaultdict(dict)
    for row, case in rows:
        if row.status == "compiled" and "heads" in case.point:
            rest = sorted((axis, str(value)) for axis, value in case.point.items() if axis != "heads")
            groups[row.target, row.cell.partition("-")[0], str(rest)][case.point["heads"]] = row
    found: list[Finding] = []
    judged: set[tuple[str, str]] = set()
    for group in groups.values():
        if len(group) >= 3:
            judged |= {(row.target, row.cell) for row in group.values()}
            found += _of_group(dict(sorted(group.items())))
    return found, judged


def _of_group(group: Mapping[int, Row]) -> Iterable[Finding]:
    names = {heads: tuple(kernel.name for kernel in row.kernels) for heads, row in group.items()}
    usual = Counter(names.values()).most_common(1)[0][0]
    for heads, row in group.items():
        if names[heads] != usual:
            here, there = (", ".join(name for name in one if name not in other) or "nothing" for one, other in ((names[heads], usual), (usual, names[heads])))
            yield Finding(row.cell, row.target, "jump", f"at {plural(heads, 'head')} {here} instead of {there}")
            continue
        for kernel in row.kernels:
            peers = [other for at, peer in group.items() if names[at] == usual for other in peer.kernels if other.name == kernel.name]
            text = ", ".join(_outlying(kernel, peers))
            if text:
                yield Finding(row.cell, row.target, "jump", f"at {plural(heads, 'head')} {text}", kernel.name, kernel.place)


def _outlying(kernel: Kernel, peers: Sequence[Kernel]) -> Iterable[str]:
    for name, least in _LEAST.items():
        figure = operator.attrgetter(name)
        here, usual = figure(kernel), statistics.median_low([figure(peer) for peer in peers])
        if here > JUMP * usual and here - usual >= least:
            yield f"{name} {here:,} (median {usual:,})"
