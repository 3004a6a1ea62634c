"""`run --timing`: cells that are right are timed, in runs that are each a process of their own over the whole list."""

from __future__ import annotations

from collections.abc import Callable

from harness import report
from harness.contracts import op
from harness.errors import UsageError
from harness.machine.platforms import device_count
from harness.selection import Cell
from harness.session import Session
from harness.speed.roofline import ceilings, fraction
from harness.store.results import Result

Step = Callable[[Result], None]
_PROFILED = 64  # cells in one session of the profiler


def refuse_without_device(machine: str) -> None:
    """Raises UsageError where a time would mean nothing."""
    if machine == "cpu":
        raise UsageError("--timing needs a GPU: on a CPU and in Triton's interpreter no time says anything about a kernel")


def timeable(cells: list[Cell], results: dict[str, Result], runs: int) -> list[list[Cell]]:
    """The cells that each run still has to time: those that passed on a device in one plain call, and have fewer runs yet."""
    right = [cell for cell in cells if cell.case is not None and cell.id in results and _right(results[cell.id])]
    return [[cell for cell in right if len(results[cell.id].timings) <= run] for run in range(runs)]


def _right(result: Result) -> bool:
    return result.status == "pass" and result.evidence == "measured" and result.values.get("relation", "direct") == "direct"


def take(session: Session, cells: list[Cell], results: dict[str, Result], *, runs: int, step: Step) -> list[Result]:
    """Times the cells; `step` gets the row of a cell, with its times so far, after every run. What could not be timed, with the reason."""
    failed: list[Result] = []

    def done(cell: Cell, timed: Result) -> None:
        if timed.timings:
            results[cell.id].timings += timed.timings
            step(results[cell.id])
        else:
            failed.append(timed)

    for left in timeable(cells, results, runs):
        lost = {result.cell for result in failed}
        session.time_all([cell for cell in left if cell.id not in lost], done, device_count(session.machine))
    name(session, [cell for cell in cells if cell.id in results and results[cell.id].timings], results, step)
    return failed


def name(session: Session, cells: list[Cell], results: dict[str, Result], step: Step) -> None:
    """Adds to each cell's last run which kernels a plain call launches, in a pass that is not timed, where that is not known yet."""
    unknown = [cell for cell in cells if not results[cell.id].timings[-1].kernels]
    for start in range(0, len(unknown), _PROFILED):
        for place, kernels in session.kernels(unknown[start : start + _PROFILED]).items():
            results[place].timings[-1].kernels = kernels
            step(results[place])


def table(results: list[Result]) -> str:
    """The times, with the share of the roofline that the controls of these runs gave."""
    measured = ceilings((timing.control, timing.control_us) for result in results for timing in result.timings)

    def share(result: Result, us: float) -> float | None:
        work = op(result.op).impl.work(op(result.op).axes.parse(result.case))
        return fraction(us, measured.least(work.flops, work.bytes))

    return report.timed(results, share)
