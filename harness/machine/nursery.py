"""The harness' handle on the zygote, the process from which workers are forked, and what its children print."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO, Any

from harness.errors import HarnessError
from harness.machine.platforms import worker_environment

START_LIMIT = 180.0
_TAIL = 2000  # bytes of what a worker prints in a cell that its result keeps


class Zygote:
    """The parent's handle on the zygote process. Safe to use from several threads."""

    def __init__(self, machine: str) -> None:
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "harness.machine.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **worker_environment(machine)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # a terminal's Ctrl-C is for the harness alone
        )
        theirs.close()
        self.pid = self._process.pid
        ours.settimeout(START_LIMIT)
        self._socket, self._answers = ours, ours.makefile("rb")
        self._lock = threading.Lock()
        if not self._read().get("ready"):
            self._process.kill()
            self._process.wait()
            raise HarnessError(f"the worker process could not start ({last_line(self._log)}); check that torch imports: {sys.executable} -c 'import torch'")

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return json.loads(self._answers.readline() or "{}")
        return {}

    def _ask(self, request: dict[str, Any], handles: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock, contextlib.suppress(OSError):
            socket.send_fds(self._socket, [json.dumps(request).encode()], handles)
            if answer := self._read():
                return answer
        raise HarnessError(f"the process that forks workers is gone ({last_line(self._log)}); start the run again with --resume")

    def fork(self, request: dict[str, Any], handles: list[int]) -> int:
        """A new worker's process id. Raises HarnessError when the zygote is gone, as all of these do."""
        return int(self._ask({"fork": request}, handles)["pid"])

    def look(self, pid: int, limit: float = 0.0) -> int | None:
        """The exit code of a worker (negative: a signal), or None when it has not ended within so many seconds."""
        end = time.monotonic() + limit
        while (code := self._ask({"look": pid})["code"]) is None and time.monotonic() < end:
            time.sleep(0.002)
        return code

    def end(self, pid: int) -> None:
        """Kills and reaps a worker, and what it left running."""
        self._ask({"end": pid})

    def close(self) -> None:
        """Ends the zygote and with it every worker."""
        self._answers.close()
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=15)
        self._process.kill()
        self._process.wait()
        self._log.close()


def tail(log: IO[bytes]) -> str:
    """The end of a log; of the stacks that Python's fault handler adds to it their beginning, where the process was."""
    start = max(0, os.fstat(log.fileno()).st_size - (1 << 16))
    text = os.pread(log.fileno(), 1 << 16, start).decode(errors="replace")
    printed, mark, stacks = text.partition("Fatal Python error: ")
    frames = [line for line in (mark + stacks).splitlines() if not re.search('^Extension modules:|^  File "(<frozen|.*/harness/machine/)', line)]
    return (printed[-_TAIL:].strip() + "\n" + "\n".join(frames)[:_TAIL]).strip()


def last_line(log: IO[bytes]) -> str:
    with contextlib.suppress(ValueError):  # closed: the session is ending
        return (tail(log).splitlines() or ["no output"])[-1][:300]
    return "closed"
