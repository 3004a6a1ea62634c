"""A process that is one target: compiles cells and writes their rows as JSON lines. Started by `sweep`, one target each.

stdin: a JSON object, the Task. The first line out says that the process is ready, or why the library does not import; then for each cell
its id, when it begins, and its row. `mistake` is what ends the process with the harness to blame.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import HarnessError, Missing, Unsupported
from harness.offline.codegen.rows import Row, numbered
from harness.offline.codegen.searching import Search
from harness.offline.codegen.standins import stand_in
from harness.offline.targets import Target

TAKEN = "taken out of the module's source, which does not import without a serving environment"
UNSERVED = "the library does not serve this kernel on this platform; compiled all the same"
_WORDS = 400
_PR_SET_PDEATHSIG = 1
_OS_ERROR = re.compile(r"\w*Error: \[Errno \d+\]")


class Task(msgspec.Struct):
    """What a worker is told."""

    target: Target
    cells: list[str]
    root: str
    package: str
    plugins: list[str] = []


def serve(task: Task, send: Any) -> None:
    """Compiles the cells, one after the other."""
    from harness.offline.codegen.cells import find
    from harness.offline.codegen.device import describe, unknown
    from harness.plugins import load_plugins

    mode = describe(task.target)  # torch and Triton are those of this environment, whatever else the library's folder holds
    if why := unknown():
        send({"unknown": f"triton {importlib.metadata.version('triton')} does not know {task.target.id} ({why}); leave that target out"})
        return
    stand_in()
    if _folder_of(task.package) != _folder(task):
        sys.path.insert(0, task.root)
    try:
        importlib.import_module(task.package)
    except Exception as error:
        send({"failed": _line(error)})
        return
    if _folder_of(task.package) != _folder(task):
        send({"mistake": f"{task.package} was imported from {_folder_of(task.package)}, not from {task.root}"})
        return
    load_plugins(task.plugins)
    send({"ready": True})
    search = Search()
    with search.pruned():
        for name in task.cells:
            send({"begins": name})
            started = time.perf_counter()
            try:
                row = compile_cell(find(name), task.target, task.root, mode, search)
            except HarnessError as error:
                send({"mistake": str(error)})
                return
            row.seconds = round(time.perf_counter() - started, 2)
            send(msgspec.to_builtins(row) | {"last": name == task.cells[-1]})


def _folder(task: Task) -> Path:
    return (Path(task.root) / task.package).resolve()


def _folder_of(package: str) -> Path | None:
    """Where an import of the package finds it."""
    spec = importlib.util.find_spec(package)
    return Path(next(iter(spec.submodule_search_locations))).resolve() if spec and spec.submodule_search_locations else None


def compile_cell(cell: Any, target: Target, root: str, mode: Any, search: Search) -> Row:
    """The cell's row: the kernels that the provider's own call compiles."""
    notes = [] if ("rocm" if target.hip else "cuda") in cell.serves else [UNSERVED]
    row, found, mistakes, tried, broken = Row(cell.id, target.id, "compiled", notes=notes), [], [], 0, ""
    if cell.declined:
        row.status, row.detail = "unsupported", cell.declined
        return row

    def sink(launch: Any) -> None:
        nonlocal tried, broken
        try:
            kernel = kernel_of(launch, target, root)
        except HarnessError as error:  # kept, since a wrapper may catch whatever a launch raises
            mistakes.append(error)
            raise
        if _OS_ERROR.match(launch.error):  # a full disk, a folder that is gone: nothing that the compiler says of the kernel
            mistakes.append(HarnessError(f"{launch.kernel} could not be compiled here ({kernel.error}); see to the disk, or to KERNEL_PARITY_CACHE"))
        if launch.candidate:
            tried, search.clean = tried + 1, not (kernel.error or kernel.limit or kernel.vector_spills or kernel.scratch)
            return
        found.append(msgspec.structs.replace(kernel, tried=tried))
        tried, broken = 0, kernel.error or broken

    from harness.machine.launches import captured
    from harness.offline.codegen.metrics import kernel_of

    with mode, captured(sink, launch=False):
        try:
            try:
                _call(cell, "cuda")
            except Missing:  # some modules ask for a server's packages; providers take their functions out of the source on a CPU
                found.clear()
                _call(cell, "cpu")
                row.notes.append(TAKEN)
        except (Unsupported, Missing) as error:
            row.status, row.detail = "unsupported", _line(error)
        except Exception as error:
            row.status, row.detail = ("build-failed" if broken else "refused"), _line(error)
    if mistakes:
        raise mistakes[0]
    row.kernels = numbered(found)
    if row.status == "compiled" and not row.kernels:
        row.status, row.detail = "refused", "no Triton kernel was launched"
    return row


def _call(cell: Any, device: str) -> None:
    """The provider's call on inputs that lie on the CPU; `device` is what it is told."""
    from harness.contracts import make_inputs
    from harness.machine.memory import Scratch

    x = make_inputs(cell.case, "cpu")
    x.device = device
    made = cell.make()
    made.prepare(x, Scratch("cpu"))
    made.run()


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_WORDS]


def main() -> None:
    """Reads the task and serves it. What libraries print goes to stderr."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it goes with whoever started it, however that ends
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    serve(task, lambda line: channel.write(msgspec.json.encode(line) + b"\n"))


if __name__ == "__main__":
    main()
