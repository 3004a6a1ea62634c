"""The gate tries itself: a few of the cells it just timed are run by a slow provider under their name, and a few with a delay on the device.
What it does not see then makes it red."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from harness.commands import timing
from harness.commands.gating import Bar
from harness.machine.platforms import device_count
from harness.selection import Cell
from harness.session import Session
from harness.speed.identity import GENERIC
from harness.speed.ladder import FALLBACK, Called, Tried
from harness.speed.regression import EAGER, FAST, GRAPH, NEW, RUNS, SAME, SLOW
from harness.store import baselines
from harness.store.results import Result
from harness.store.timing import HOST_BOUND, Timing

DELAYS = {GRAPH: 0.03, EAGER: 0.06}  # share of its time that a cell is delayed by: what the rule promises to find in the mode
_TONIGHT = "tonight"  # stands for the machine start of this gate


def try_itself(session: Session, bar: Bar, results: Mapping[str, Result], called: Mapping[str, Called], most: int) -> list[Tried]:
    """Forces providers and injects delays, over at most so many cells of each kind that were timed and right, in `RUNS` fresh processes."""
    timed = {name: result for name, result in results.items() if result.timings}
    forced = dict(_forced(bar, timed, called, most))
    late = {cell.id: cell for cell in _steady(bar, timed, called, most, without=[cell.id for cell in forced.values()])}
    delays = {name: DELAYS[timing.times(timed[name])[0]] * called[name].us for name in late}
    taken: dict[str, list[Timing]] = {}

    def done(cell: Cell, result: Result) -> None:
        taken.setdefault(cell.id, []).extend(result.timings)

    cells = list({cell.id: cell for cell in [*forced.values(), *late.values()]}.values())
    for _ in range(RUNS if cells else 0):
        session.time_all(cells, done, device_count(session.machine), delays=delays)
    kernels = timing.shown(session, list(forced.values()))
    lower = bar.against({**bar.accepted, **_as_baselines(bar, timed.values())})
    trials = []
    for name, cell in forced.items():
        shown = [msgspec.structs.replace(one, kernels=kernels.get(cell.id, ())) for one in taken.get(cell.id, [])]
        trials.append(Tried(name, FALLBACK, cell.provider.name, _word(lower, timed, name, shown)))
    for name in late:
        shown = [msgspec.structs.replace(one, kernels=timed[name].timings[-1].kernels) for one in taken.get(name, [])]
        got = _word(lower, timed, name, shown)
        added = f"{100 * (got.us / called[name].us - 1):+.1f} %" if got.us else "not timed"
        trials.append(Tried(name, SLOW, f"{delays[name]:.3g} us more ({added})", got))
    return trials


def _forced(bar: Bar, timed: Mapping[str, Result], called: Mapping[str, Called], most: int) -> Iterable[tuple[str, Cell]]:
    """Cells on a fast path, by name, each with the cell of the slowest provider of its case that runs generic kernels and takes longer; one an
    op first. A generic provider that is as fast (on an H200 SGLang's Triton argmax beats FlashInfer's top-k) would rightly be no fallback."""

    def generic(name: str) -> bool:
        return any(bar.path(kernel) == GENERIC for kernel in called[name].identity.now)

    pairs: dict[str, str] = {}
    for name, result in timed.items():
        others = [other.cell for other in timed.values() if (other.op, other.case) == (result.op, result.case) and generic(other.cell)]
        if called[name].identity.now and not generic(name) and others:
            slowest = max(others, key=lambda other: called[other].us)
            if called[slowest].us > called[name].us:
                pairs[name] = slowest
    return [(name, bar.cells[pairs[name]]) for name in _spread(pairs, timed, most)]


def _steady(bar: Bar, timed: Mapping[str, Result], called: Mapping[str, Called], most: int, *, without: Iterable[str]) -> list[Cell]:
    """Cells in which a delay must show: unchanged, timed on the device, in converged runs and by less than the delay apart on each machine start; the
    longest, in which the gap before one more kernel counts least, one an op first."""
    settled = [
        name
        for name, result in timed.items()
        if called[name].word in (SAME, NEW, FAST)
        and name not in set(without)
        and all(one.stop == "converged" and one.host_bound < HOST_BOUND for one in result.timings)
        and _still(bar, result)
    ]
    settled.sort(key=lambda name: (timing.times(timed[name])[0] != GRAPH, -called[name].us))
    return [bar.cells[name] for name in _spread(settled, timed, most)]


def _still(bar: Bar, result: Result) -> bool:
    """Whether the runs of each machine start lie closer together than the delay that is to be found in them."""
    mode, runs = timing.times(result)
    old = bar.accepted.get(result.cell)
    starts = [*(old.runs.values() if old and old.mode == mode else ()), runs]
    return all(max(start) / min(start) - 1 < DELAYS[mode] for start in starts)


def _spread(names: Iterable[str], timed: Mapping[str, Result], most: int) -> list[str]:
    """At most so many of the names: the first of each op before the second of any."""
    turn: dict[str, int] = {}
    numbered = []
    for name in names:
        turn[timed[name].op] = turn.get(timed[name].op, -1) + 1
        numbered.append((turn[timed[name].op], name))
    return [name for _, name in sorted(numbered, key=lambda pair: pair[0])[:most]]


def _as_baselines(bar: Bar, results: Iterable[Result]) -> dict[str, baselines.Cell]:
    """Tonight's level of each cell with the spread that its baseline has between runs: a delay adds to tonight, and what differs between
    machine starts has no part in it. A cell without a baseline has its runs of tonight."""
    found = {}
    for result in results:
        mode, runs = timing.times(result)
        level, old = median(runs), bar.accepted.get(result.cell)
        starts = old.runs.values() if old and old.mode == mode else []
        pooled = [us * level / median(start) for start in starts for us in start] or runs
        kernels = old.kernels if old and old.kernels else list(bar.ran(result).now)
        found[result.cell] = baselines.Cell(mode, {_TONIGHT: pooled}, level, kernels)
    return found


def _word(bar: Bar, timed: Mapping[str, Result], name: str, timings: list[Timing]) -> Called:
    """What the ladder says of a cell with these runs in place of its own."""
    if not timings:
        return Called(name, "not timed")
    marked = [msgspec.structs.replace(one, start=_TONIGHT) for one in timings]
    return bar.called({**timed, name: msgspec.structs.replace(timed[name], timings=marked)})[0][name]
