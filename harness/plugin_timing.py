"""`pytest cases/ --timing`: once all cells are judged, what is right is timed as `kernel-parity run --timing` does."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from harness import report
from harness.commands import timing
from harness.errors import HarnessError, UsageError
from harness.machine.platforms import machine_platform
from harness.selection import Cell
from harness.session import Session
from harness.store.results import Result
from harness.words import plural

if TYPE_CHECKING:
    from harness.store.ledger import Ledger
    from harness.store.results import ResultLog


def refuse(config: pytest.Config) -> None:
    """Raises UsageError where there is no device, or another option leaves no way to time."""
    timing.refuse_without_device(machine_platform(config.getoption("--platform")))
    if config.getoption("--runs") < 1:
        raise UsageError(f"--runs is at least 1, not {config.getoption('--runs')}")
    if config.getoption("benchmark_only", False):
        raise UsageError("--timing and --benchmark-only are two ways to time: give one")
    if config.getoption("dist", "no") != "no":
        raise UsageError("--timing does not go with -n: a run is one process over the whole list, and takes every device by itself")


class TimedCells:
    """The cells of one pytest process that were judged, and their times."""

    def __init__(self, session: Session, ledger: Ledger, log: ResultLog | None, runs: int) -> None:
        self.session, self.ledger, self.log, self.runs = session, ledger, log, runs
        self.cells: list[Cell] = []
        self.results: dict[str, Result] = {}
        self.items: dict[str, pytest.Item] = {}

    def judged(self, item: pytest.Item, cell: Cell, result: Result) -> None:
        """Takes a cell's result, before it becomes an outcome."""
        self.cells.append(cell)
        self.results[cell.id], self.items[cell.id] = result, item

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Times the cells when every test has run; what then ends otherwise than the ledger says is a failure of its own."""
        done = yield
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        left = timing.timeable(self.cells, self.results, self.runs)
        if reporter and left[0]:
            reporter.ensure_newline()
            reporter.write_line(f"timing {plural(len(left[0]), 'cell')}: {plural(self.runs, 'run')}, each in a fresh process")
        try:
            failed = timing.take(self.session, self.cells, self.results, runs=self.runs, step=self._keep)
            for result in failed:
                self._keep(result)
        except HarnessError as error:
            pytest.exit(str(error), returncode=error.exit_code)
        for result in failed:
            self._tell(result)
        return done

    def _keep(self, result: Result) -> None:
        if self.log:
            self.log.append(result)

    def _tell(self, result: Result) -> None:
        """Reports a cell that was right and ended otherwise when it was timed."""
        verdict = self.ledger.judge(result)
        if not (verdict.bad or verdict.kind == "error"):
            return
        item = self.items[result.cell]
        text = report.explain(result, verdict, plugins=item.config.getoption("--plugin"), ledger=item.config.getoption("--ledger"))
        file, line, name = item.location
        told = pytest.TestReport(_timed(item.nodeid), (file, line, _timed(name)), {}, "failed", text, "call")
        item.ihook.pytest_runtest_logreport(report=told)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The tables of `run --timing`."""
        terminalreporter.section("times")
        terminalreporter.write_line(timing.tables(list(self.results.values())))


def _timed(name: str) -> str:
    """A test's name for what came of its cell under the clock: `test_merge_state[torch_eager-t3-h2-timed]`."""
    return f"{name.removesuffix(']')}-timed]"
