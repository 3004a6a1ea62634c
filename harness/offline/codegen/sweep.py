"""Compiles cells for targets: a process a target and share of the cells, as many at once as there are cores, results kept by content."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import HarnessError, UsageError
from harness.offline.codegen.cells import Listed
from harness.offline.codegen.keeping import Kept, triton_cache
from harness.offline.codegen.rows import Row
from harness.offline.codegen.worker import Task
from harness.offline.sources import Source
from harness.offline.targets import Target

_HARNESS = Path(__file__).resolve().parents[3]
# what in the environment would make the figures the user's own: settings of SGLang, of Triton and of the LLVM and ptxas in it
_SETTINGS = ("SGLANG_", "TRITON_", "AMDGCN_", "NVPTX_", "PTXAS_", "LLVM_", "MLIR_", "DISABLE_LLVM_", "DISABLE_PTXAS_", "DISABLE_MMA_", "USE_IR_", "ALLOW_LHS_")
_LONGEST = 1e6  # seconds that a system call takes as its time limit


@dataclass(frozen=True)
class Sweep:
    """What to compile. `limit`: seconds a cell may take; `start`: seconds until a process must be ready; `workers`: processes at once; `keep`:
    whether kept results are used and kept, Triton's own cache included;
    `plugins`: files or modules that declare further ops and providers."""

    source: Source
    targets: Sequence[Target]
    cells: Sequence[Listed]
    limit: float = 120.0
    start: float = 120.0
    workers: int = 0
    keep: bool = True
    plugins: tuple[str, ...] = ()


def wanted(sweep: Sweep) -> list[tuple[Target, Listed]]:
    """The pairs to compile: a cell that names targets is for those alone."""
    return [(target, cell) for target in sweep.targets for cell in sweep.cells if not cell.targets or target.id in cell.targets]


def compiled(sweep: Sweep) -> Iterator[Row]:
    """The rows, as they come. Raises HarnessError where a process cannot start or compiles for another target."""
    kept = Kept(sweep.source, sweep.plugins) if sweep.keep else None
    missing: list[tuple[Target, Listed]] = []
    for target, cell in wanted(sweep):
        row = kept.get(target, cell) if kept else None
        if row is None:
            missing.append((target, cell))
        else:
            yield row
    if missing:
        with contextlib.ExitStack() as stack:
            folder = str(triton_cache()) if sweep.keep else stack.enter_context(tempfile.TemporaryDirectory())
            crew = _Crew(sweep, folder)
            stack.callback(crew.stop)
            for row in crew.rows(missing):
                if kept and row.status not in ("timeout", "crash"):
                    kept.put(row)
                yield row


class _Crew:
    """The threads and processes of one sweep. `stop` ends them, whatever they do."""

    def __init__(self, sweep: Sweep, folder: str) -> None:
        self._sweep, self._folder = sweep, folder
        self._stopped = threading.Event()
        self._processes: set[subprocess.Popen[bytes]] = set()

    def rows(self, pairs: Sequence[tuple[Target, Listed]]) -> Iterator[Row]:
        """The pairs' rows as they come; an exception of a thread is raised here."""
        workers = self._sweep.workers or os.cpu_count() or 1
        waiting: queue.SimpleQueue[tuple[Target, list[Listed]]] = queue.SimpleQueue()
        done: queue.Queue[Row | Exception | None] = queue.Queue()
        shares = _shares(pairs, workers)
        for share in shares:
            waiting.put(share)
        running = min(workers, len(shares))
        for _ in range(running):
            threading.Thread(target=self._work, args=(waiting, done), daemon=True).start()
        while running:
            came = done.get()
            if came is None:
                running -= 1
            elif isinstance(came, Exception):
                raise came
            else:
                yield came

    def stop(self) -> None:
        self._stopped.set()
        for process in list(self._processes):
            _kill(process)

    def _work(self, waiting: Any, done: Any) -> None:
        """A thread: one process after the other, until no share is left; after a cell that did not return, another process for the rest."""
        try:
            while not self._stopped.is_set():
                target, cells = waiting.get_nowait()
                left = [cell.id for cell in cells]
                while left and not self._stopped.is_set():
                    for row in self._process(target, left):
                        left.remove(row.cell)
                        done.put(row)
        except queue.Empty:
            pass
        except Exception as error:
            done.put(error)
        finally:
            done.put(None)

    def _process(self, target: Target, names: Sequence[str]) -> Iterator[Row]:
        """The rows of one process, up to the first cell that does not return or that the process dies of."""
        source = self._sweep.source
        with tempfile.TemporaryFile() as said:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said}
            command = [sys.executable, "-P", "-m", "harness.offline.codegen.worker"]
            process = subprocess.Popen(command, **pipes, env=_environment(self._folder), start_new_session=True)
            self._processes.add(process)
            try:
                assert process.stdin
                task = Task(target, list(names), str(source.root), source.package, list(self._sweep.plugins))
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(msgspec.json.encode(task))
                    process.stdin.close()
                yield from _rows(process, target, self._sweep, said)
            finally:
                _kill(process)
                self._processes.discard(process)
                if process.stdout:
                    process.stdout.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process with what it started (ptxas, lld)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _shares(pairs: Sequence[tuple[Target, Listed]], workers: int) -> list[tuple[Target, list[Listed]]]:
    """Each target's cells in as many shares as keep the workers busy; an op's cells stay together, since they share kernels."""
    by_target: dict[str, tuple[Target, dict[str, list[Listed]]]] = {}
    for target, cell in pairs:
        by_target.setdefault(target.id, (target, defaultdict(list)))[1][cell.op].append(cell)
    made: list[tuple[Target, list[Listed]]] = []
    count = max(1, -(-workers // max(1, len(by_target))))
    for target, groups in by_target.values():
        shares: list[list[Listed]] = [[] for _ in range(min(count, len(groups)))]
        for group in sorted(groups.values(), key=len, reverse=True):
            min(shares, key=len).extend(group)
        made += [(target, share) for share in shares]
    return sorted(made, key=lambda share: -len(share[1]))


def _environment(folder: str) -> dict[str, str]:
    """The user's without settings; modules are looked for where this process does, which is not always the folder it stands in."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    paths = [str(_HARNESS), *filter(None, sys.path)]
    ours = {"TRITON_CACHE_DIR": folder, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return {**mine, **ours, "PYTHONPATH": os.pathsep.join(paths)}


def _rows(process: Any, target: Target, sweep: Sweep, said: Any) -> Iterator[Row]:
    current, lines = "", _Lines(process.stdout)
    while True:
        line = lines.next(sweep.limit if current else sweep.start)
        if line == b"":
            break
        if line is None:
            if not current:
                raise HarnessError(f"the process for {target.id} was not ready after {sweep.start:.0f} s{_last(said)}")
            yield Row(current, target.id, "timeout", f"not compiled after {sweep.limit:g} s", seconds=sweep.limit)
            return
        told = msgspec.json.decode(line)
        if "failed" in told:
            raise UsageError(
                f"{sweep.source.label} does not import for {target.id} ({told['failed']}); install what it asks for, or give another with --sglang"
            )
        if "unknown" in told:
            raise UsageError(told["unknown"])
        if "mistake" in told:
            raise HarnessError(told["mistake"])
        if "cell" in told:
            yield msgspec.convert(told, Row)
        current = told.get("begins", "")
        if told.get("last"):
            return
    if not current:
        raise HarnessError(f"the process for {target.id} ended by itself{_last(said)}")
    yield Row(current, target.id, "crash", f"the compiler ended the process{_last(said)}")


def _last(said: Any) -> str:
    """The last line of what the process said."""
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:300]}" if lines else ""


class _Lines:
    """Whole lines of a pipe, each within its own time."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self._rest = pipe, b""
        self._whole: list[bytes] = []

    def next(self, seconds: float) -> bytes | None:
        """The next line, empty at the end of the pipe, None when the time is over."""
        end = time.monotonic() + seconds
        while not self._whole:
            ready, _, _ = select.select([self._pipe], [], [], min(max(0.0, end - time.monotonic()), _LONGEST))
            if not ready:
                return None
            part = os.read(self._pipe.fileno(), 1 << 16)
            if not part:
                return b""
            *self._whole, self._rest = (self._rest + part).split(b"\n")
        return self._whole.pop(0)
