"""The process in which mutants live, under Triton's interpreter.

It runs cells as they are, noting the lines they execute and keeping inputs and golden results; then a mutant at a time in a child
of its own, which inherits all that, runs the cells until one gives a finding, and ends. So nothing is left of a mutant, and one
that crashes or does not return costs a process of milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import FunctionType
from typing import Any

from harness.faults.mutants.planting import Place, made, planted
from harness.faults.mutants.sites import Mutant

CPU_LIMIT = 3.0  # seconds of processor time for a cell, beside ten times what the original took
_WALL_LIMIT = 300.0  # for a mutant in all, where it sleeps and takes no processor time
_MEMORY = 4 << 30  # bytes that a mutant may allocate beside what the process has


@dataclass(frozen=True)
class Traced:
    """A cell as it is: its end, the processor time it took, and the lines of the library it executed, by file."""

    cell: str
    status: str
    reason: str
    seconds: float
    lines: dict[str, frozenset[int]] = field(repr=False)
    detail: str = field(default="", repr=False)


@dataclass(frozen=True)
class Timed:
    """A cell by its id, and the processor time it takes on the library as it is."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Tried:
    """How a mutant ended: `by` the finding (status:reason) that killed it and in which cell; both empty where none did."""

    by: str
    cell: str
    seconds: float


class Server:
    """Runs cells and mutants in this process and its children."""

    def __init__(self, libraries: tuple[str, ...]) -> None:
        from harness.machine.execute import Bench
        from harness.machine.platforms import open_device

        self._bench = Bench(open_device("cpu"), keep=1 << 20)
        self._folders = tuple(folder for name in libraries for folder in _folders(name))
        self._met: set[str] = set()
        self._functions: dict[Place, list[FunctionType]] = {}

    def trace(self, cell: str) -> Traced:
        """Runs a cell as it is."""
        lines: dict[str, set[int]] = {}

        def called(frame: Any, event: str, argument: Any) -> Any:
            file = frame.f_code.co_filename
            if not file.startswith(self._folders):
                return None
            executed = lines.setdefault(file, set())

            def stepped(frame: Any, event: str, argument: Any) -> Any:
                executed.add(frame.f_lineno)
                return stepped

            return stepped

        self._functions = {}  # there may be more of them after it
        if cell.partition("-")[0] not in self._met:  # what a library does once, when it is imported, is no part of the cell
            self._met.add(cell.partition("-")[0])
            self._run(cell)
        began = time.process_time()
        sys.settrace(called)
        try:
            status, reason, detail = self._run(cell)
        finally:
            sys.settrace(None)
        took = time.process_time() - began
        return Traced(cell, status, reason, took, {file: frozenset(found) for file, found in lines.items()}, detail)

    def attempt(self, mutant: Mutant, cells: list[Timed]) -> Tried:
        """Runs cells on a mutant, in a child, until one gives a finding."""
        if cells[0].name.partition("-")[0] not in self._met:  # so that no child has to import the library
            self.trace(cells[0].name)
        if not self._functions:
            gc.unfreeze()  # what is frozen is not listed
            self._functions = made(self._folders)
            gc.collect()
            gc.freeze()  # so that children share its pages
        began = time.monotonic()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._live(mutant, cells, writing)
        os.close(writing)
        said = _listen(reading, began + _WALL_LIMIT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        reached = [json.loads(line) for line in said.splitlines()]
        last = reached[-1] if reached else {"cell": ""}
        if "by" not in last:
            last["by"] = _death(code)
        return Tried(last["by"], last["cell"] if last["by"] else "", time.monotonic() - began)

    def _live(self, mutant: Mutant, cells: list[Timed], pipe: int) -> None:
        """The child's life."""
        try:
            gc.disable()
            _confine()
            with planted(mutant, self._functions):
                for cell in cells:
                    os.write(pipe, json.dumps({"cell": cell.name}).encode() + b"\n")
                    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT + 10 * cell.seconds)
                    status, reason, _ = self._run(cell.name)
                    if status != "pass":
                        os.write(pipe, json.dumps({"cell": cell.name, "by": f"{status}:{reason}"}).encode() + b"\n")
                        os._exit(0)
            os.write(pipe, b'{"cell": "", "by": ""}\n')
        except BaseException as error:
            os.write(pipe, json.dumps({"cell": "", "by": f"error:{type(error).__name__}: {error}"}).encode() + b"\n")
        finally:
            os._exit(0)

    def _run(self, cell: str) -> tuple[str, str, str]:
        from harness.selection import find_cell, standing

        provider, case = find_cell(cell)
        result, _ = self._bench.run(case, provider, standing(provider, "cpu")[0])
        return result.status, result.reason, result.detail


def _folders(library: str) -> list[str]:
    from importlib.util import find_spec

    spec = find_spec(library)
    return [f"{place}{os.sep}" for place in (spec.submodule_search_locations or ())] if spec else []


def _confine() -> None:
    """Whatever the mutant prints or allocates, it does to itself."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as held:
        size = int(held.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))


def _listen(pipe: int, end: float) -> bytes:
    """All that the child says until it ends or the time is over."""
    said = b""
    while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(pipe, 1 << 16)
        if not part:
            break
        said += part
    os.close(pipe)
    return said


def _death(code: int) -> str:
    if code == -signal.SIGPROF or code == -signal.SIGKILL:
        return "hang:time limit"
    return f"crash:signal {signal.Signals(-code).name}" if code < 0 else f"crash:exit code {code}"


def serve(descriptor: int) -> None:
    """Answers (method, arguments) on a socket until it closes."""
    from harness.plugins import load_plugins

    load_plugins([])
    connection = Connection(descriptor)
    server = Server(tuple(connection.recv()))
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        connection.send(getattr(server, name)(*arguments))
