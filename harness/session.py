"""Runs cells through workers: the one way from a cell to a result line, shared by the command line and pytest."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from harness.errors import HarnessError
from harness.machine.nursery import Zygote
from harness.machine.pool import Limits, Worker
from harness.machine.worker import Request
from harness.pile import Pile
from harness.providers import versions
from harness.selection import Cell
from harness.store.results import Result
from harness.store.timing import NO_GRAPH, Kernel

T = TypeVar("T")
_JOIN = 5.0  # how long a thread may take to see that its worker is gone, seconds


def unrun(cell: Cell, seed: int = 0) -> Result:
    """The row of a cell that is known without a run: a provider that cannot run here, or a case it declines."""
    return Result(
        cell=cell.id,
        op=cell.op,
        provider=cell.provider.name,
        case=cell.case.id if cell.case else "",
        values=dict(cell.case.point) if cell.case else {},
        status=cell.status,
        platform=cell.platform,
        seed=seed,
        reason="declined" if cell.case else "not here",
        detail=cell.why,
        versions=versions(),
    )


def same_bits(first: Result, second: Result, promises: frozenset[str]) -> Result:
    """The verdict over one cell in two processes: the first result, `nondeterministic` where a hash differs that the provider promises."""
    if first.status != "pass" or second.status != "pass":
        return first if first.status != "pass" else second
    other = [name for name, figures in first.figures.items() if figures.get("bits") != second.figures.get(name, {}).get("bits")]
    if other and "process" in promises:
        first.status, first.reason = "nondeterministic", "process"
        said = ", ".join(f"{name!r} {first.figures[name].get('bits')} and {second.figures.get(name, {}).get('bits')}" for name in other)
        first.detail = f"Two processes with the same inputs and seed gave other bits (hashes of the outputs: {said})"
    return first


class Session:
    """Workers on this machine's devices, started when the first cell needs one."""

    def __init__(
        self, machine: str, *, plugins: tuple[str, ...] = (), limits: Limits | None = None, seed: int = 0, first_device: int = 0, rivals: bool = False
    ) -> None:
        """`seed` is that of the inputs, and may be changed between cells; `rivals`: the rules of others judge too."""
        self.machine = machine
        self.seed = seed
        self._rivals = rivals
        self._plugins = plugins
        self._limits = limits
        self._first = first_device
        self._zygote: Zygote | None = None
        self._workers: dict[int, Worker] = {}
        self._threads: list[threading.Thread] = []
        self._starting, self._lock = threading.Lock(), threading.Lock()
        self._closed = False
        self._uncaptured: dict[tuple[str, str], str] = {}  # op and provider -> why no graph takes its call

    def _worker(self, slot: int) -> Worker:
        with self._starting:
            if self._zygote is None:
                self._zygote = Zygote(self.machine)
        if slot not in self._workers:
            self._workers[slot] = Worker(self._zygote, self.machine, index=self._first + slot, plugins=self._plugins, limits=self._limits)
        return self._workers[slot]

    def hello(self) -> tuple[dict[str, str], dict[str, str]]:
        """The device's facts and the libraries' versions, from a worker."""
        worker = self._worker(0)
        return worker.hello.device, worker.hello.versions

    def run(self, cell: Cell, slot: int = 0, *, gates: bool = True, seed: int | None = None) -> Result:
        """One cell's result; `seed` instead of the session's."""
        seed = self.seed if seed is None else seed
        if cell.case is None or cell.status:
            return unrun(cell, seed)
        request = Request(cell.op, cell.case.id, cell.provider.name, cell.platform, seed, gates, self._rivals)
        result = self._worker(slot).run(request)
        if cell.case.point.get("relation") == "process" and result.status == "pass":
            self._worker(slot).renew()
            result = same_bits(result, self._worker(slot).run(request), cell.provider.promises)
        if not result.values:  # of a cell whose worker could not say: the ledger reads the axes
            result.values = dict(cell.case.point)
        return result

    def run_alone(self, cell: Cell, slot: int = 0, *, seed: int | None = None) -> Result:
        """One cell's result from a process that has run no other, with what the library's dispatch refuses tried all the same."""
        self._renew(slot)
        result = self.run(cell, slot, gates=False, seed=seed)
        self._renew(slot)
        return result

    def time(self, cell: Cell, slot: int = 0, *, delay: float = 0.0) -> Result:
        """One run of a cell that was found right, with the clock, and a delay in microseconds in each launch. Once a call of an op and
        provider could not be captured in a graph, all their cells are timed by plain calls, so that they can be compared."""
        assert cell.case is not None
        place = cell.op, cell.provider.name
        for _ in range(2):
            why = self._uncaptured.get(place, "")
            mode = "eager" if why else "graph"
            request = Request(cell.op, cell.case.id, cell.provider.name, cell.platform, self.seed, task=mode, why=why, delay=delay)
            result = self._worker(slot).run(request)
            if result.reason != NO_GRAPH:
                break
            self._uncaptured[place] = result.detail
        return result

    def time_all(self, cells: Sequence[Cell], done: Callable[[Cell, Result], None], devices: int = 1, *, delays: Mapping[str, float] | None = None) -> None:
        """One run of every cell, with the clock: a fresh process on each device goes over its share of the list, alone on the device.
        `delays`: microseconds by cell that each launch is to take longer."""
        self.renew()
        self._each(cells, done, devices, lambda cell, slot: self.time(cell, slot, delay=(delays or {}).get(cell.id, 0.0)))

    def renew(self) -> None:
        """Ends all processes: what comes next runs in fresh ones."""
        for slot in list(self._workers):
            self._renew(slot)

    def kernels(self, cells: Sequence[Cell], slot: int = 0) -> dict[str, tuple[Kernel, ...]]:
        """By cell what a plain call of it launches, under the profiler; without those whose call fails there."""
        requests = [Request(cell.op, cell.case.id, cell.provider.name, cell.platform, self.seed) for cell in cells if cell.case is not None]
        if found := self._worker(slot).kernels(requests):
            return {cell.id: kernels for cell, kernels in zip(cells, found, strict=True)}
        half = len(cells) // 2
        return {**self.kernels(cells[:half], slot), **self.kernels(cells[half:], slot)} if half else {}

    def _renew(self, slot: int) -> None:
        if slot in self._workers:
            self._workers[slot].renew()

    def run_all(self, cells: Sequence[Cell], done: Callable[[Cell, Result], None], workers: int = 1) -> None:
        """Every cell, case by case over `workers` workers; `done` is called once a cell, never by two threads at once."""
        self._each(cells, done, workers, self.run)

    def _each(self, cells: Sequence[Cell], done: Callable[[Cell, Result], None], workers: int, run: Callable[[Cell, int], Result]) -> None:
        def work(case: list[Cell], slot: int) -> None:
            for cell in case:
                result = run(cell, slot)
                with self._lock:
                    if self._closed:  # interrupted: what ended this cell was its worker's end
                        return
                    done(cell, result)

        self._drain(Pile(cells, workers).take, work, workers)

    def share(self, tasks: Sequence[T], work: Callable[[T, int], None], workers: int = 1) -> None:
        """Calls `work(task, slot)` for every task, in order, over `workers` threads: each has its slot, and so its worker, to itself."""
        waiting = deque(tasks)

        def take(_: int) -> T | None:
            with contextlib.suppress(IndexError):
                return waiting.popleft()
            return None

        self._drain(take, work, workers)

    def _drain(self, take: Callable[[int], T | None], work: Callable[[T, int], None], workers: int) -> None:
        """Calls `work(task, slot)` with what `take(slot)` gives until that is None, each slot in its thread."""
        failures: list[BaseException] = []

        def drain(slot: int) -> None:
            try:
                while not (failures or self._closed) and (task := take(slot)) is not None:
                    work(task, slot)
            except BaseException as error:
                failures.append(error)

        if workers == 1:
            drain(0)
        else:
            self._threads = [threading.Thread(target=drain, args=(slot,), daemon=True) for slot in range(workers)]
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                thread.join()
        if failures:
            raise failures[0]

    def kill(self, slot: int) -> None:
        """Kills the slot's process where it stands: its cell becomes a crash. For a worker that outlasts every limit."""
        if slot in self._workers and self._workers[slot].pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._workers[slot].pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the workers and the zygote; a cell that still runs is given up."""
        with self._lock:
            self._closed = True
        if self._zygote is not None:
            self._zygote.close()
        for thread in self._threads:
            thread.join(timeout=_JOIN)
        for worker in self._workers.values():
            worker.close()
        self._workers, self._zygote = {}, None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except (OSError, HarnessError):
            if error is None:
                raise
