"""What a gate holds a measurement against, and the word that each cell gets: baselines, kernel names, neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

from harness.commands import timing
from harness.contracts import op
from harness.selection import DEFAULT_CASES, Cell
from harness.speed.cliffs import Cliff, Place
from harness.speed.identity import Identity, identify
from harness.speed.ladder import Called, climb
from harness.speed.regression import GONE
from harness.speed.suite import Judged, Timed, judge
from harness.store import baselines
from harness.store.families import Families, load_families
from harness.store.measured import CONTROL, CONTROLS, controls_of
from harness.store.results import Result
from harness.store.timing import HOST_BOUND

Accepted = Mapping[str, baselines.Cell]


def accepted_of(folder: Path, facts: Mapping[str, str], cells: Iterable[Cell]) -> dict[str, baselines.Cell]:
    """What is accepted on the device with these facts for the families of the cells, and of the control kernels. Raises UsageError for a
    file that is no baseline of this device."""
    names = dict.fromkeys([CONTROLS, *(op(cell.op).family for cell in cells)])
    found = [baselines.load(baselines.place_of(folder, facts, name), facts) for name in names]
    return {name: cell for baseline in found if baseline for name, cell in baseline.cells.items()}


def families_of(cases_dir: Path) -> Families:
    """The kernel families of a cases folder, else the project's own. Raises UsageError for a broken file."""
    own = cases_dir / "kernels.toml"
    return load_families(own if own.exists() else DEFAULT_CASES / "kernels.toml")


class Bar:
    """What measurements are held against."""

    def __init__(self, accepted: Accepted, families: Families, cells: Iterable[Cell], *, all_cells: bool = False) -> None:
        """`all_cells`: what has no baseline is timed too."""
        self.accepted = accepted
        self._all = all_cells or all(name.startswith(CONTROL) for name in accepted)
        self.cells = {cell.id: cell for cell in cells}
        self._families = families

    def path(self, kernel: str) -> str:
        """`fast`, `generic`, `either`, or nothing for a kernel of no known family."""
        found = self._families.of(kernel)
        return found.path if found else ""

    def times(self, name: str) -> bool:
        """Whether a cell is to be timed: one with a baseline, and every one on a device that has none at all."""
        return self._all or name in self.accepted

    def against(self, accepted: Accepted) -> Bar:
        """The same bar with other baselines."""
        return Bar(accepted, self._families, self.cells.values())

    def judged(self, results: Mapping[str, Result]) -> tuple[dict[str, Judged], float]:
        """The times of all results against the baselines, and by which share the device moved."""
        timed = {name: self._timed(result) for name, result in results.items() if result.timings}
        verdicts, shift = judge({**timed, **self._controls(results.values())})
        return {name: verdicts[name] for name in timed}, shift

    def _timed(self, result: Result) -> Timed:
        mode, runs = timing.times(result)
        old = self._old(result.cell, mode)
        host = median(one.host_bound for one in result.timings) >= HOST_BOUND or (old is not None and old.host)
        beside = (old.beside if old else 0.0, baselines.beside(result.timings))
        return Timed(mode, old.runs if old else {}, runs, result.timings[-1].start, host, beside=beside)

    def _old(self, name: str, mode: str) -> baselines.Cell | None:
        """What is accepted of a cell in this mode: times of two modes are not compared."""
        old = self.accepted.get(name)
        return old if old and old.mode == mode else None

    def _controls(self, results: Iterable[Result]) -> dict[str, Timed]:
        """The control kernels, by the median over the cells of each run."""
        timed = [result for result in results if result.timings]
        start = timed[-1].timings[-1].start if timed else ""
        known = {name: (self.accepted[name], new) for name, new in controls_of(timed).items() if name in self.accepted}
        return {name: Timed(new.mode, old.runs, new.runs[""], start, control=True) for name, (old, new) in known.items()}

    def accepts(self, small: Place) -> bool:
        """Whether the cell has a baseline that it is held against: its step to a neighbour is then accepted, or shows as `slow`; a
        neighbour that became faster is no fault of it."""
        return self._old(small.cell, small.mode) is not None

    def ran(self, result: Result) -> Identity:
        """Which kernels a result says that ran, against the baseline's and those that the provider must and must not launch."""
        cell, old = self.cells[result.cell], self.accepted.get(result.cell)
        must = cell.provider.expected_kernels(cell.case, result.device.get("arch", "")) if cell.case else ()
        names = [kernel.name for one in result.timings for kernel in one.kernels]
        return identify(names, old.kernels if old else (), self.path, must=must, never=cell.provider.never)

    def called(self, results: Mapping[str, Result]) -> tuple[dict[str, Called], float]:
        """The word of every cell that was timed, and by which share the device moved."""
        verdicts, shift = self.judged(results)
        timed = [result for result in results.values() if result.timings]
        steps = {cliff.small.cell: cliff for cliff in timing.steps(timed) if not self.accepts(cliff.small)}
        ran = {result.cell: self.ran(result) for result in timed}
        found = {}
        for result in timed:
            judged, step, identity = verdicts[result.cell], steps.get(result.cell), ran[result.cell]
            mode, runs = timing.times(result)
            old, same = self.accepted.get(result.cell), self._old(result.cell, mode)
            moved = f"timed by {mode} now, by {old.mode} in the baseline ({result.timings[-1].why or 'no reason given'})" if old and not same else ""
            said = _said(step, identity, ran[step.neighbour.cell]) if step else ""
            word, why = climb(judged, identity, cliff=said, mode=moved)
            us, was = median(runs), median(one for many in same.runs.values() for one in many) if same else 0.0
            ratio, bound = (step.ratio, step.bound) if word == "cliff" and step else (1 + judged.change if was else 0.0, 1 + judged.margin if was else 0.0)
            found[result.cell] = Called(result.cell, word, why, us, was, ratio, bound, judged.chance, identity)
        return found, shift

    def gone(self, results: Mapping[str, Result], settled: Iterable[str]) -> dict[str, Called]:
        """Cells of the baselines that were to run and were not timed, without those in `settled`, whose rows say so already."""
        said, found = set(settled), {}
        for name, old in self.accepted.items():
            row = results.get(name) or next((results[one] for one, cell in self.cells.items() if cell.case is None and name.startswith(f"{one[:-1]}-")), None)
            if row is not None and not row.timings and row.cell not in said:
                why = f"{row.status}: {row.detail.splitlines()[0]}" if row.detail else row.status
                found[name] = Called(name, GONE, why, was=old.accepted, identity=Identity(then=tuple(old.kernels)))
        return found


def _said(step: Cliff, ran: Identity, beside: Identity) -> str:
    """A step in words, with the kernels of the neighbour where they are others."""
    small, neighbour = (f"{step.axis} {one.point[step.axis]}" for one in (step.small, step.neighbour))
    told = f"{small} takes {step.ratio:.2f} times what {neighbour} takes with the pad ({median(step.neighbour.medians):.4g} us)"
    return told + (f", which runs {', '.join(beside.now)}" if beside.now and set(beside.now) != set(ran.now) else "")
