"""The harness' side of a process that runs cells and mutants."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import Pipe
from typing import Any

from harness.errors import HarnessError
from harness.faults.mutants.server import Timed, Traced, Tried
from harness.faults.mutants.sites import Mutant
from harness.machine.platforms import worker_environment

LIBRARIES = ("sglang",)


def command(descriptor: int) -> list[str]:
    """The command line of the process, which answers on that file descriptor."""
    return [sys.executable, "-c", f"from harness.faults.mutants import server; server.serve({descriptor})"]


class Server:
    """The parent's side of a process that runs cells and mutants."""

    def __init__(self) -> None:
        ours, theirs = Pipe()
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command(theirs.fileno()),
            pass_fds=[theirs.fileno()],
            env={**os.environ, **worker_environment("cpu"), "PYTHONHASHSEED": "0"},  # a set of classes has an order that matters
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        theirs.close()
        self._connection = ours
        self._connection.send(LIBRARIES)
        self._traced: set[str] = set()

    def trace(self, cell: str) -> Traced:
        """Runs a cell as it is. Raises HarnessError when the process is gone, as `attempt` does."""
        self._traced.add(cell)
        return self._ask("trace", cell)

    def has(self, cell: str) -> bool:
        """Whether this process keeps the cell's inputs and golden results."""
        return cell in self._traced

    def attempt(self, mutant: Mutant, cells: Sequence[Timed]) -> Tried:
        """Runs cells on a mutant until one gives a finding."""
        return self._ask("attempt", mutant, list(cells))

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            self._connection.send((name, arguments))
            return self._connection.recv()
        except (EOFError, OSError) as error:
            self._log.seek(0)
            last = (self._log.read().decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise HarnessError(f"the process that runs mutants is gone ({last})") from error

    def close(self) -> None:
        """Ends the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._log.close()
