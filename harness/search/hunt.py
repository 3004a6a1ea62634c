"""One search: examples of an op on a provider, judged as any cell; each kind of failure once, made as small as it gets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings, target
from hypothesis.errors import Unsatisfiable

from harness.contracts import Case
from harness.search.descent import smallest
from harness.search.kept import Kept
from harness.search.space import Space
from harness.store.ledger import Ledger, Verdict
from harness.store.results import QUIET, Result

COSTLY = ("crash", "hang", "out-of-memory", "build-failed", "error")  # each takes a process, a compiler or a time limit
_HANGS = 3  # that end the search on a provider
Ask = Callable[[Case, int], Result]
Kind = tuple[str, str]


@dataclass
class Finding:
    """A kind of failure (status and reason) of one provider.

    result   the smallest cell found that ends so, `first` the one it was made from
    how      in words: found now, or kept from an earlier run
    alone    how the smallest cell ends in a process of its own: status and reason
    cells    how many cells of the search ended so
    """

    result: Result
    verdict: Verdict
    first: Result
    how: str
    alone: str = ""
    cells: int = 1


@dataclass
class Tally:
    """What a search did: different cells run, how many of them passed, ended as the ledger says, or were not judged (refused,
    unsupported, too slow for the interpreter or for the reference), the greatest error of one that passed as a share of its tolerance and the cell it was
    at, and why the search ended early."""

    ran: int = 0
    passed: int = 0
    known: int = 0
    unjudged: int = 0
    worst: float = 0.0
    worst_cell: str = ""
    why_ended: str = ""


@dataclass
class Clock:
    """When no further example is begun, and how long a failure may be made smaller, in seconds; no limit where examples are counted."""

    end: float = math.inf
    shrink: float = 60.0


class _Wrong(Exception):
    """An example that fails: what hypothesis makes smaller."""

    def __init__(self, case: Case, seed: int, result: Result, verdict: Verdict) -> None:
        super().__init__(result.cell)
        self.case, self.seed, self.result, self.verdict = case, seed, result, verdict

    @property
    def kind(self) -> Kind:
        return _kind(self.result)


class _Abort(BaseException):
    """An error of the harness, on its way past hypothesis, which would take it for a failing example."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(eq=False)
class Hunt:
    """The search on one provider of one op. `ask` gives a cell's result, `alone` the same from a fresh process."""

    space: Space
    ask: Ask
    alone: Ask
    ledger: Ledger
    kept: Kept
    clock: Clock
    tally: Tally = field(default_factory=Tally)
    found: dict[Kind, Finding] = field(default_factory=dict)
    tell: Callable[[Finding], None] = lambda finding: None

    def __post_init__(self) -> None:
        self._results: dict[tuple[str, int], Result] = {}
        self._aside: dict[Kind, _Wrong] = {}  # met first, or while another was made smaller: taken up at the end if nothing better is found
        self._hangs = 0

    def again(self) -> None:
        """Tries what earlier runs found."""
        for case, seed in self.kept.of(self.space.provider):
            if self.space.possible(self.space.point_of(case)) is None:  # not taken here any more, or too dear here
                continue
            if (wrong := self._wrong(case, seed)) is None:
                self.kept.drop(self.space.provider, case, seed)
            elif wrong.kind not in self.found:
                self._take(wrong, wrong.result, "kept from an earlier run")

    def search(self, examples: int, seed: int) -> bool:
        """So many examples, drawn by the seed; past each failure the same search goes on. False where there is no case to draw."""
        while not self._over():
            try:
                failure = self._pass(examples, seed)
            except Unsatisfiable:
                return False
            if failure is None:
                break
            first, wrong = failure
            self._take(self._smaller(wrong), first.result, "found")
        return True

    def finish(self, *, rerun: bool = True) -> None:
        """Takes up failures that were met by the way and not found again, and counts the cells of each kind; `rerun` False: runs
        nothing more."""
        for kind, wrong in self._aside.items():
            if kind not in self.found:
                self._take(wrong, wrong.result, "met by the way, not made smaller", rerun=rerun)
        for kind, finding in self.found.items():
            finding.cells = sum(_kind(result) == kind for result in self._results.values())

    def _over(self) -> bool:
        return bool(self.tally.why_ended) or time.monotonic() > self.clock.end

    def _pass(self, examples: int, seed: int) -> tuple[_Wrong, _Wrong] | None:
        """Runs hypothesis once. The first failure of a new kind, and what it was shrunk to where runs are cheap."""
        first: list[_Wrong] = []
        end = self.clock.end

        def judged(case: Case, seed: int) -> None:
            nonlocal end
            new = (case.id, seed) not in self._results
            if new and (self.tally.why_ended or time.monotonic() > end or (first and first[0].result.status in COSTLY)):
                return
            wrong = self._wrong(case, seed)
            if new and not first:
                self._watch(self._results[case.id, seed])
            if wrong is None:
                if (height := _height(self._results[case.id, seed])) is not None:
                    target(height, label="error as a share of its tolerance")
            elif first and wrong.kind != first[0].kind:
                self._aside.setdefault(wrong.kind, wrong)
            elif wrong.kind not in self.found:
                if not first:
                    first.append(wrong)
                    self._aside.setdefault(wrong.kind, wrong)
                    end = time.monotonic() + self.clock.shrink
                raise wrong

        try:
            _explore(self.space, judged, examples, seed)
        except _Wrong as wrong:
            return first[0], wrong
        return None

    def _wrong(self, case: Case, seed: int) -> _Wrong | None:
        """What is wrong with a cell, which runs once: nothing where the ledger lists it. That a listed deviation does not show is a
        matter of presets, and that Triton's interpreter is slow is none: it takes programs, and elements of a reduction, one by one."""
        result = self._results.get((case.id, seed))
        if result is None:
            result = self._results[case.id, seed] = self.ask(case, seed)
            self._count(result)
        verdict = self.ledger.judge(result)
        if _slow(result):
            return None
        return _Wrong(case, seed, result, verdict) if verdict.kind in ("finding", "error") else None

    def _count(self, result: Result) -> None:
        tally = self.tally
        tally.ran += 1
        tally.passed += result.status == "pass"
        tally.known += self.ledger.judge(result).kind == "known"
        tally.unjudged += result.status in QUIET or _slow(result)
        height = _height(result)
        if height is not None and height > tally.worst and result.status == "pass":
            tally.worst, tally.worst_cell = height, result.cell

    def _watch(self, drawn: Result) -> None:
        """Ends the search after so many examples that did not return."""
        self._hangs += drawn.status == "hang"
        if self._hangs >= _HANGS:
            self.tally.why_ended = f"after {_HANGS} examples that did not return in time"

    def _smaller(self, wrong: _Wrong) -> _Wrong:
        """The failure at the smallest case that bisection finds in time."""
        end = time.monotonic() + self.clock.shrink

        def fails(case: Case) -> bool:
            if time.monotonic() > end:
                return False
            other = self._wrong(case, wrong.seed)
            return other is not None and other.kind == wrong.kind

        return self._wrong(smallest(self.space, wrong.case, fails), wrong.seed) or wrong

    def _take(self, wrong: _Wrong, first: Result, how: str, *, rerun: bool = True) -> None:
        finding = self.found[wrong.kind] = Finding(wrong.result, wrong.verdict, first, how)
        self.kept.keep(self.space.provider, wrong.case, wrong.seed)
        if rerun:
            finding.alone = ": ".join(filter(None, _kind(self.alone(wrong.case, wrong.seed))))
        self.tell(finding)


def _explore(space: Space, judged: Callable[[Case, int], None], examples: int, seed: int) -> None:
    """Hypothesis over the space: raises what `judged` raises on the simplest example. No decision of it depends on the time."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.target, Phase.shrink),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    @given(space.strategy())
    def look(example: tuple[Case, int]) -> None:
        try:
            judged(*example)
        except _Wrong:
            raise
        except Exception as error:
            raise _Abort(error) from error

    try:
        look()
    except _Abort as abort:
        raise abort.error from None


def _slow(result: Result) -> bool:
    """Whether a limit passed that says nothing of the provider: in Triton's interpreter, or before the provider began."""
    return (result.status, result.platform) == ("hang", "interpret") or (result.status, result.reason) == ("error", "time limit")


def _kind(result: Result) -> Kind:
    return result.status, result.reason


def _height(result: Result) -> float | None:
    """The greatest error of a result as a share of its tolerance; None for draws, whose figure says how unlikely they were."""
    if any("p_value" in figures for figures in result.figures.values()):
        return None
    finite = [float(error) for error in result.errors.values() if isinstance(error, (int, float)) and math.isfinite(error)]
    return min(max(finite), 1e9) if finite else None
