"""The timed part of a gate: one run over all cells, reruns of what is new, doubtful or slow, the kernels, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from harness import report
from harness.commands import timing
from harness.commands.gating import Bar
from harness.machine.platforms import device_count
from harness.selection import Cell
from harness.session import Session
from harness.speed.gaps import Gap
from harness.speed.ladder import CLIFF, FALLBACK, UNCLASSIFIED, Called
from harness.speed.regression import RUNS, SLOW
from harness.store.results import Result

_NEAR = 1.05  # another provider is named as a remedy from here on
_TILE = 16  # heads that kernels take: padding is tried for counts between


@dataclass
class Measured:
    """What was timed: the word of each cell, what could not be timed, by which share the device moved, and how many right cells were not
    timed because the device's baselines do not have them."""

    called: dict[str, Called]
    failed: list[Result]
    shift: float
    untimed: int


def measure(session: Session, bar: Bar, cells: list[Cell], results: dict[str, Result], *, runs: int, step: timing.Step) -> Measured:
    """Times the cells that are right as often as each needs, and gives each its word. `results` get their times; `step` gets each row
    that changed."""
    awaited = [cell for cell in cells if cell.awaited or cell.id in bar.accepted]  # what a baseline has, whoever asked for it then
    sound = [cell for cell in awaited if cell.id in results and timing.right(cell, results[cell.id])]
    right = [cell for cell in sound if bar.times(cell.id)]
    failed: list[Result] = []
    for _ in range(max(runs, RUNS)):
        wanted = _wanted(bar, right, results, runs)
        left = [cell for cell in right if len(results[cell.id].timings) < wanted[cell.id]]
        timing.once(session, left, results, failed, step, devices=device_count(session.machine))
    timing.name(session, right, results, step)
    _look_again(session, bar, results, step)
    called, shift = bar.called(results)
    known = {cell.id for cell in right}
    helped = [
        name
        for name, one in called.items()
        if name in known and one.word in (FALLBACK, SLOW, CLIFF) and _uneven(bar.cells[name]) and results[name].remedy is None
    ]
    timing.remedies(session, right, results, helped, runs=runs, step=step)
    fastest = {gap.slow.cell: gap for gap in timing.beside([result for result in results.values() if result.timings])}
    told = {name: replace(one, remedy=_remedy(bar, results[name], fastest.get(name))) if one.fails else one for name, one in called.items()}
    return Measured(told, failed, shift, sum(not results[cell.id].timings for cell in sound if not bar.times(cell.id)))


def _wanted(bar: Bar, cells: list[Cell], results: Mapping[str, Result], runs: int) -> dict[str, int]:
    """Runs that each cell needs: those asked for, and `RUNS` for one that is new, doubtful, or at an end of a step that nothing accepts."""
    timed = [result for result in results.values() if result.timings]
    verdicts, _ = bar.judged(results)
    more = {name for name, one in verdicts.items() if one.rerun} | timing.suspects(timed, bar.accepts)
    return {cell.id: max(runs, RUNS) if cell.id in more else needed(bar, cell.id, runs) for cell in cells}


def needed(bar: Bar, name: str, runs: int) -> int:
    """Runs that a cell needs at least: so many, or `RUNS` where nothing is accepted of it."""
    return runs if name in bar.accepted else max(runs, RUNS)


def _look_again(session: Session, bar: Bar, results: dict[str, Result], step: timing.Step) -> None:
    """Asks a fresh process which kernels ran where that alone would fail a cell: only what is seen twice counts."""
    called, _ = bar.called(results)
    doubted = [bar.cells[name] for name, one in called.items() if one.word in (FALLBACK, UNCLASSIFIED)]
    if doubted:
        session.renew()
    for name, kernels in timing.shown(session, doubted).items():
        for one in results[name].timings:
            one.kernels = ()
        results[name].timings[-1].kernels = kernels
        step(results[name])


def _uneven(cell: Cell) -> bool:
    """Whether the cell has a number of heads that kernels may not take."""
    return cell.case is not None and int(cell.case.point.get("heads", 0)) % _TILE != 0


def _remedy(bar: Bar, result: Result, beside: Gap | None) -> str:
    """What would bring the time back: padded heads as they were tried, a provider that is faster here, the gate that refuses the case."""
    cell, parts = bar.cells[result.cell], []
    if result.remedy:
        parts.append(report.padded(median(timing.times(result)[1]), result.remedy))
    if beside and beside.ratio >= _NEAR:
        parts.append(f"{beside.fast.provider} takes {median(beside.fast.medians):.4g} us here, {1 / beside.ratio:.2f} of it")
    if cell.case and (gate := cell.provider.gated(cell.case, result.device.get("arch", ""))):
        parts.append(f"the library's own gate: {gate}")
    return "; ".join(parts)
