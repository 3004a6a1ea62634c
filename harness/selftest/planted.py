"""Planted faults through real workers: which of them are caught by the check that must catch them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.contracts import Case, op
from harness.errors import HarnessError
from harness.faults import Fault
from harness.machine.pool import Limits
from harness.reasons import check_of
from harness.selection import Cell, preset_cases, standing
from harness.session import Session
from harness.store.results import FINDINGS, Result

# a provider on the shelf takes every case it is given, so that refusing one is a finding, as for a cell that the ledger requires
FOUND = (*FINDINGS, "refused")
QUICK = Limits(run=30.0)
HASTY = Limits(run=4.5, build=10.0)  # for faults that are found when a limit passes
_SLOTS = 6  # hasty workers: they wait, they do not work
_PATIENCE = 60.0  # seconds beyond every limit after which a worker is killed: the harness's own limit did not work
_SWEEP = 90.0  # seconds that the sweep of one fault may take
_BYTES, _FLOPS = 16 << 20, 2e8  # of a case that a sweep still runs


@dataclass(frozen=True)
class Trial:
    """A fault and how it ended: `result` is that of the cell that decided, None where none came back."""

    fault: Fault
    caught: bool
    result: Result | None = None
    seconds: float = 0.0
    cells: int = 0
    rivals: dict[str, str] = field(default_factory=dict)


def catches(fault: Fault, result: Result) -> bool:
    """Whether this is the verdict that the fault must get: its status and reason, or a finding of its check, or, if it names none, any."""
    if fault.status and (result.status, result.reason) != (fault.status, fault.reason or result.reason):
        return False
    named = not fault.check or fault.check in (check_of(result.status, result.reason, result.values), result.reason, result.status)
    return named and (bool(fault.status) or result.status in FOUND)


def cases_of(fault: Fault, folder: Path) -> list[Case]:
    """The cases a fault is tried on: its own, or those of the op in `smoke`, then the small ones of `pr`."""
    if not fault.swept:
        return [fault.case]
    return reachable(fault.op, folder)


def reachable(op_name: str, folder: Path) -> list[Case]:
    """The op's cases in `smoke`, then those in `pr` that a CPU computes in a moment."""
    cases = dict.fromkeys(preset_cases(folder, "smoke", op_name))
    for case in preset_cases(folder, "pr", op_name):
        work = op(op_name).impl.work(case)
        # a high page id takes gigabytes of pages that no request owns
        if work.bytes <= _BYTES and work.flops <= _FLOPS and not getattr(case, "top_page", 0):
            cases[case] = None
    return list(cases)


class Guard:
    """Kills a worker whose cell takes longer than every limit allows, so that a harness that does not notice still ends."""

    def __init__(self, session: Session, patience: float) -> None:
        self._session, self._patience = session, patience
        self._began: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @contextlib.contextmanager
    def over(self, slot: int) -> Iterator[None]:
        """The time of one cell."""
        self._began[slot] = time.monotonic()
        try:
            yield
        finally:
            self._began.pop(slot, None)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            for slot, began in list(self._began.items()):
                if time.monotonic() - began > self._patience:
                    self._session.kill(slot)

    def __enter__(self) -> Guard:
        self._thread.start()
        return self

    def __exit__(self, *gone: object) -> None:
        self._over.set()
        self._thread.join()


@dataclass(frozen=True)
class Bench:
    """Where faults are tried: machine, folder of the presets, plugins of the workers, seed of the inputs."""

    machine: str
    folder: Path
    plugins: tuple[str, ...]
    seed: int

    def quick(self, faults: Sequence[Fault], done: Callable[[Trial], None], workers: int) -> None:
        """Faults that show at once."""
        self._try([fault for fault in faults if not fault.slow], done, QUICK, workers)

    def slow(self, faults: Sequence[Fault], done: Callable[[Trial], None]) -> None:
        """Faults that show when a limit passes, side by side."""
        chosen = [fault for fault in faults if fault.slow]
        with tempfile.TemporaryDirectory() as folder, _environment("TORCH_EXTENSIONS_DIR", folder):
            self._try(chosen, done, HASTY, min(_SLOTS, max(1, len(chosen))))

    def _try(self, faults: list[Fault], done: Callable[[Trial], None], limits: Limits, workers: int) -> None:
        if not faults:
            return
        lock = threading.Lock()
        with (
            Session(self.machine, plugins=self.plugins, limits=limits, seed=self.seed, rivals=limits is QUICK) as session,
            Guard(session, limits.run + limits.build + _PATIENCE if limits is HASTY else 2 * limits.run + _PATIENCE) as guard,
        ):

            def one(fault: Fault, slot: int) -> None:
                trial = self._tried(fault, session, guard, slot)
                with lock:
                    done(trial)

            session.share(faults, one, workers)

    def _tried(self, fault: Fault, session: Session, guard: Guard, slot: int) -> Trial:
        platform, status, why = standing(fault.made, self.machine)
        if status:
            raise HarnessError(f"fault {fault.provider} cannot run on {self.machine}: {why}")
        began, told, cells = time.monotonic(), None, 0
        for case in cases_of(fault, self.folder):
            with guard.over(slot):
                result = session.run(Cell(fault.op, fault.made, case, platform), slot)
            cells += 1
            told = result if told is None or (told.status not in FOUND and result.status in FOUND) else told
            if catches(fault, result):
                return Trial(fault, True, result, time.monotonic() - began, cells, result.rivals)
            if time.monotonic() - began > _SWEEP:
                break
        return Trial(fault, False, told, time.monotonic() - began, cells, told.rivals if told else {})


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
