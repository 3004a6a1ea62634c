"""What a log of timed results says, machine start by machine start: cells, controls, and kernels that nobody has classified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec

from harness.errors import UsageError
from harness.speed.names import family as kernel_family
from harness.speed.regression import GRAPH
from harness.store.baselines import Cell, Start, device_key, measured, rounded
from harness.store.families import Families
from harness.store.results import Result
from harness.store.timing import THROTTLED, Timing

CONTROLS = "controls"  # the family of the control kernels
CONTROL = "control-"  # and how their cells begin


@dataclass(frozen=True)
class Measured:
    """One machine start.

    device        facts of the device; described: day, driver and versions; at: when its last run was taken
    cells         as `baselines.measured` gives them; controls: the same of the control kernels, a run the median over the run's cells
    unclassified  by cell the families of kernels that the reviewed file does not have
    results       all rows, each with the timings of this start alone; a row that was timed on another start alone is not among them
    """

    start: str
    described: Start
    device: Mapping[str, str]
    at: str
    cells: dict[str, Cell] = field(default_factory=dict)
    controls: dict[str, Cell] = field(default_factory=dict)
    unclassified: dict[str, list[str]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def expected(self, known: Iterable[str]) -> set[str]:
        """Which of the known cells were to run: those with a row, and all of a provider whose library is not there."""
        rows = {result.cell for result in self.results}
        whole = tuple(f"{result.op}[{result.provider}-" for result in self.results if not result.case and result.status == "absent")
        return {cell for cell in known if cell in rows or cell.startswith(whole)}


def newest(results: Iterable[Result]) -> list[Result]:
    """The rows that count: a cell's row is written anew after every run."""
    return list({result.cell: result for result in results}.values())


def untimed(rows: Sequence[Result], awaited: Callable[[Result], bool]) -> list[str]:
    """A line for each cell that was to be timed and was not, where others were: it is not gone, the run was broken off. `awaited`: whether
    somebody waits for the time of a row whose provider nobody named; where one of a provider's rows was timed, somebody did name it."""
    if not any(row.timings for row in rows):
        return []
    named = {row.provider for row in rows if row.timings}
    direct = [row for row in rows if row.status == "pass" and row.evidence == "measured" and row.values.get("relation", "direct") == "direct"]
    return [
        f"{row.cell} passed and was not timed: the run was broken off; go on with run --timing --resume"
        for row in direct
        if not row.timings and (row.provider in named or awaited(row))
    ]


def by_start(rows: Sequence[Result], place: str, families: Families, start: str = "") -> list[Measured]:
    """The machine starts of a log's newest rows, oldest first. `place`: the log, for errors; `start`: the name of a start that its runs do not say.

    Raises UsageError for results without times or without a start, of two devices, or of two sets of versions on one start.
    """
    timed = [result for result in rows if result.timings]
    if not timed:
        raise UsageError(f"{place} has no times; write it with kernel-parity run --timing --results {place}")
    if len({tuple(device_key(result.device).items()) for result in timed}) > 1:
        raise UsageError(f"{place} has times of two devices; refresh from one at a time")
    names = {timing.start or start for result in timed for timing in result.timings}
    if "" in names:
        raise UsageError(f"{place} does not say on which machine start it was taken; name it with --start, another name for every boot or lease")
    if start and names != {start}:
        raise UsageError(f"{place} says itself that it was taken on the machine start {min(names - {start})}; leave --start out")
    return sorted((_one(rows, name, place, families) for name in names), key=lambda one: one.at)


def _one(rows: Sequence[Result], start: str, place: str, families: Families) -> Measured:
    mine = [_of_start(result, start) for result in rows]
    kept = [one for one, result in zip(mine, rows, strict=True) if one.timings or not result.timings]
    timed = [result for result in kept if result.timings]
    described = {(result.device.get("driver", ""), tuple(sorted(result.versions.items()))) for result in timed}
    if len(described) > 1:
        raise UsageError(f"{place} has runs of the machine start {start} with two drivers or versions; refresh from one set at a time")
    ((driver, versions),) = described
    at = max(timing.at or result.at for result in timed for timing in result.timings)
    one = Measured(start, Start(at[:10], driver, dict(versions)), timed[0].device, at, results=kept)
    for result in timed:
        if result.status != "pass":  # a later run ended otherwise
            continue
        last = result.timings[-1].mode  # a call that a graph took until another of its op was refused has runs of both
        taken = [timing for timing in result.timings if timing.mode == last and timing.stop != THROTTLED]
        if cell := measured(msgspec.structs.replace(result, timings=taken)):
            one.cells[result.cell] = cell
        if strange := _unclassified(result.timings, families):
            one.unclassified[result.cell] = strange
    one.controls.update(controls_of(timed))
    return one


def _of_start(result: Result, start: str) -> Result:
    return msgspec.structs.replace(result, timings=[timing for timing in result.timings if timing.start in (start, "")])


def _unclassified(timings: Iterable[Timing], families: Families) -> list[str]:
    names = dict.fromkeys(kernel.name for timing in timings for kernel in timing.kernels)
    return list(dict.fromkeys(kernel_family(name) for name in names if families.of(name) is None))


def controls_of(timed: Iterable[Result]) -> dict[str, Cell]:
    """The controls as cells. Their mode is that of graphs: no host stands in their time, and graphs are what they are held beside."""
    found: dict[str, dict[int, list[float]]] = {}
    for result in timed:
        for run, timing in enumerate(result.timings):
            if timing.control:
                found.setdefault(timing.control, {}).setdefault(run, []).append(timing.control_us)
    cells: dict[str, Cell] = {}
    for name, runs in sorted(found.items()):
        medians = [rounded(median(runs[run])) for run in sorted(runs)]
        cells[CONTROL + name] = Cell(GRAPH, {"": medians}, rounded(median(medians)))
    return cells
