"""`run --timing`: cells that are right are timed, in runs that are each a process of their own over the whole list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from harness import report
from harness.contracts import Case, op
from harness.contracts.relations.heads import padded_heads
from harness.errors import UsageError
from harness.selection import Cell
from harness.session import Session
from harness.speed.cliffs import Cliff, Place, cliffs, doubtful
from harness.speed.gaps import Gap, gaps
from harness.speed.roofline import Ceilings, ceilings, fraction
from harness.store.results import Result
from harness.store.timing import Kernel, Remedy

Step = Callable[[Result], None]
PADDED = "padheads"  # the law that is a remedy
_PROFILED = 64  # cells in one session of the profiler


def refuse_without_device(machine: str, option: str = "--timing") -> None:
    """Raises UsageError where a time would mean nothing; `option` is what asked for one."""
    if machine == "cpu":
        raise UsageError(f"{option} needs a GPU: on a CPU and in Triton's interpreter no time says anything about a kernel")


def timeable(cells: list[Cell], results: dict[str, Result], runs: int) -> list[list[Cell]]:
    """The cells that each run still has to time: those awaited that passed on a device in one plain call, and have fewer runs yet."""
    sound = [cell for cell in cells if cell.awaited and cell.id in results and right(cell, results[cell.id])]
    return [[cell for cell in sound if len(results[cell.id].timings) <= run] for run in range(runs)]


def right(cell: Cell, result: Result) -> bool:
    """Whether the cell passed on a device in one plain call."""
    return cell.case is not None and result.status == "pass" and result.evidence == "measured" and result.values.get("relation", "direct") == "direct"


def take(session: Session, cells: list[Cell], results: dict[str, Result], *, runs: int, step: Step, devices: int = 1) -> list[Result]:
    """Times the cells over so many devices; `step` gets the row of a cell, with its times so far, after every run. What could not be
    timed, with the reason."""
    failed: list[Result] = []
    for left in timeable(cells, results, runs):
        once(session, left, results, failed, step, devices=devices)
    tried = [cliff.small.cell for cliff in steps([result for result in results.values() if result.timings]) if cliff.axis == "heads"]
    remedies(session, cells, results, tried, runs=runs, step=step)
    name(session, cells, results, step)
    return failed


def once(session: Session, cells: list[Cell], results: dict[str, Result], failed: list[Result], step: Step, *, devices: int = 1) -> None:
    """One run over the cells on so many devices, without those in `failed`; what cannot be timed is added to it."""

    def done(cell: Cell, timed: Result) -> None:
        if timed.timings:
            result = results[cell.id]
            result.timings += timed.timings
            result.seconds |= {share: round(result.seconds.get(share, 0.0) + spent, 6) for share, spent in timed.seconds.items()}
            step(result)
        else:
            failed.append(timed)

    lost = {result.cell for result in failed}
    if left := [cell for cell in cells if cell.id not in lost]:
        session.time_all(left, done, devices)


def name(session: Session, cells: list[Cell], results: dict[str, Result], step: Step) -> None:
    """Adds to each timed cell's last run which kernels a plain call launches, in a pass that is not timed, where no run knows it yet."""
    unknown = [cell for cell in cells if cell.id in results and results[cell.id].timings and not any(one.kernels for one in results[cell.id].timings)]
    for place, kernels in shown(session, unknown).items():
        results[place].timings[-1].kernels = kernels
        step(results[place])


def shown(session: Session, cells: list[Cell]) -> dict[str, tuple[Kernel, ...]]:
    """By cell the kernels that the profiler shows, so many cells a session of it."""
    found: dict[str, tuple[Kernel, ...]] = {}
    for start in range(0, len(cells), _PROFILED):
        found |= session.kernels(cells[start : start + _PROFILED])
    return found


def remedies(session: Session, cells: list[Cell], results: dict[str, Result], tried: Iterable[str], *, runs: int, step: Step) -> None:
    """Tries for cells, by their ids, what padding the heads gives: whether the cut output is right, and its time."""
    known = {cell.id: cell for cell in cells}
    for place in tried:
        cell = known[place]
        if cell.case is None or PADDED not in op(cell.op).relations:
            continue
        padded = replace(cell, case=op(cell.op).axes.case(**{**cell.case.point, "relation": PADDED}))
        judged = session.run(padded)
        times = [timing.median for _ in range(runs) for timing in session.time(padded).timings] if judged.status == "pass" else []
        heads = padded_heads(cell.case)
        flops = op(cell.op).impl.work(Case(cell.op, cell.case.id, {**cell.case.point, "heads": heads})).flops / max(1, _work(cell.op, cell.case.id)[0])
        results[cell.id].remedy = Remedy(PADDED, judged.status, times, round(flops, 4))
        step(results[cell.id])


def steps(timed: list[Result]) -> list[Cliff]:
    """The cliffs among results that were timed."""
    measured = _ceilings(timed)
    cases = {result.cell: result.case for result in timed}
    return cliffs(_cells(timed), lambda small, neighbour: _pad(small, neighbour, cases, measured))


def suspects(timed: list[Result], accepted: Callable[[Place], bool]) -> set[str]:
    """The cells of steps that fewer runs than a claim needs show; `accepted`: whether the smaller cell is held against something else."""
    measured = _ceilings(timed)
    cases = {result.cell: result.case for result in timed}
    return doubtful(_cells(timed), lambda small, neighbour: _pad(small, neighbour, cases, measured), accepted)


def beside(timed: list[Result]) -> list[Gap]:
    """Every provider of a case beside the fastest."""
    return gaps(_cells(timed))


def roofline(timed: list[Result]) -> Callable[[Result, float], float | None]:
    """The share of the roofline that a result's microseconds are, by the controls of these results."""
    measured = _ceilings(timed)
    return lambda result, us: fraction(us, measured.least(*_work(result.op, result.case)))


def tables(results: list[Result]) -> str:
    """The times with their share of the roofline, steps between neighbours, and providers that are far behind another."""
    timed = [result for result in results if result.timings]
    if not timed:
        return "no cell was timed: none of those whose time is asked for (docs/timing.md) passed on the device"
    parts = [report.timed(timed, roofline(timed))]
    parts.append(report.cliffs(steps(timed), {result.cell: result.remedy for result in timed if result.remedy}))
    parts.append(report.gaps(beside(timed)))
    return "\n\n".join(filter(None, parts))


def _ceilings(timed: list[Result]) -> Ceilings:
    return ceilings((timing.control, timing.control_us) for result in timed for timing in result.timings)


def _cells(timed: list[Result]) -> list[Place]:
    return [Place(result.cell, result.op, result.provider, result.values, *times(result)) for result in timed]


def times(result: Result) -> tuple[str, list[float]]:
    """The mode of the last run, and the medians of the runs in that mode."""
    mode = result.timings[-1].mode
    return mode, [timing.median for timing in result.timings if timing.mode == mode]


def _work(name: str, case: str) -> tuple[int, int]:
    work = op(name).impl.work(op(name).axes.parse(case))
    return work.flops, work.bytes


def _pad(small: Place, neighbour: Place, cases: dict[str, str], measured: Ceilings) -> float:
    """Microseconds in which what grows with the axis is copied into the greater shape and sliced off again, at the bandwidth measured."""
    (axis,) = (name for name in small.point if small.point[name] != neighbour.point[name])
    if measured.bandwidth is None or not isinstance(small.point[axis], int):
        return 0.0
    mine, its = (_work(one.op, cases[one.cell])[1] for one in (small, neighbour))
    grows = (its - mine) / (neighbour.point[axis] - small.point[axis]) * neighbour.point[axis]
    return 1e6 * 2 * grows / measured.bandwidth
