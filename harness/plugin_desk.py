"""`pytest cases/ --benchmark-only`: the cells in pytest's own process, timed by pytest-benchmark. Nothing else imports this module."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from harness.contracts import op
from harness.errors import UsageError
from harness.machine.platforms import machine_platform, worker_environment
from harness.providers import versions
from harness.selection import Cell
from harness.session import unrun

if TYPE_CHECKING:
    from harness.machine.desk import Desk
    from harness.machine.timed import Ready
    from harness.store.results import Result

_MOST = 1000  # rounds of an op that overwrites its inputs
_WARM = 3  # rounds of it before


class DeskMode:
    """The hooks of desk mode, and what it does with a cell."""

    def __init__(self, config: pytest.Config) -> None:
        """Raises UsageError with pytest-xdist, whose processes would time each other, and for an unknown platform."""
        if config.getoption("dist", "no") != "no":
            raise UsageError("--benchmark-only does not go with -n: its calls run in pytest's own process, one after another")
        self._rounds_at_least = int(config.getoption("benchmark_min_rounds"))
        self._seconds = float(config.getoption("benchmark_max_time"))
        self._machine = machine_platform(config.getoption("--platform"))
        self._seed = config.getoption("--input-seed")
        self._desk: Desk | None = None
        os.environ.update(worker_environment(self._machine))  # before torch and triton are imported, which read it then

    @property
    def desk(self) -> Desk:
        """The device, opened when the first cell needs it. Raises HarnessError."""
        if self._desk is None:
            from harness.machine.desk import Desk

            self._desk = Desk(self._machine)
        return self._desk

    def run(self, cell: Cell) -> Result:
        """The cell's result, judged in this process. Skips what has no time of its own; raises HarnessError where the device is lost."""
        if cell.case is None or cell.status:
            return unrun(cell, self._seed)
        if cell.platform == "interpret":
            pytest.skip("Triton's interpreter: its time says nothing")
        if cell.case.point.get("relation", "direct") != "direct":
            pytest.skip("a law between calls: it has no time of its own")
        return self.desk.run(cell.case, cell.provider, cell.platform, self._seed)

    def measure(self, cell: Cell, result: Result, benchmark: Any) -> None:
        """Times plain calls of a cell that is right. What an op overwrites is put back before each of its rounds, outside their time."""
        assert cell.case is not None
        benchmark.extra_info.update(cell=cell.id, evidence=result.evidence, device=result.device)
        ready = self.desk.ready(cell.case, cell.provider, self._seed)
        if op(cell.op).mutates:
            benchmark.pedantic(ready.run, setup=ready.restore, rounds=self._rounds(ready), warmup_rounds=_WARM)
        else:
            benchmark(ready.run)

    def _rounds(self, ready: Ready) -> int:
        """As many as pytest-benchmark's options ask for."""
        ready.restore()
        clock = self._clock()
        began = clock()
        ready.run()
        took = clock() - began
        return min(_MOST, max(self._rounds_at_least, math.ceil(self._seconds / max(took, 1e-9))))

    def _clock(self) -> Any:
        if self._machine == "cpu":
            return time.perf_counter
        from harness.machine.desk import settled_seconds

        return settled_seconds

    def pytest_itemcollected(self, item: Any) -> None:
        """Gives each cell pytest-benchmark's fixture, a table an op, and on a device its clock."""
        cell = getattr(item, "callspec", None) and item.callspec.params.get("cell")
        if not isinstance(cell, Cell):
            return
        if "benchmark" not in item.fixturenames:
            item.fixturenames.append("benchmark")
        clock = {} if self._machine == "cpu" else {"timer": self._clock()}
        item.add_marker(pytest.mark.benchmark(group=cell.op, **clock))

    def pytest_report_header(self) -> str:
        """What these numbers are not."""
        return (
            "kernel-parity: desk mode: calls in this process, no isolation (a crash or a hang ends pytest), plain calls, warm cache; "
            "compare with desk runs alone (--timing: fresh processes, graphs, cold cache)"
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """The libraries under test, so that --benchmark-compare says when they differ. It asks before any device is open: what is known
        of that goes with each benchmark."""
        machine_info["kernel_parity"] = versions()
