"""The harness' side of the worker: starts it from the zygote, gives it cells, and turns its death or silence into a result."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import HarnessError
from harness.machine import builds
from harness.machine.platforms import EVIDENCE, visible_device, worker_environment
from harness.machine.worker import UNHEALTHY, Hello, Request
from harness.store.results import Result, decode

START_LIMIT = 180.0
_LOOK = 2.0  # how often a silent worker is looked at for compilers, seconds


@dataclass(frozen=True)
class Limits:
    """Seconds a cell may take: `run` in all, `build` while a compiler works for it."""

    run: float = 60.0
    build: float = 900.0


class Zygote:
    """The parent's handle on the zygote process. Safe to use from several threads."""

    def __init__(self, machine: str) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **worker_environment(machine)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.machine.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self._socket = ours
        self._lock = threading.Lock()
        ours.settimeout(START_LIMIT)
        if not self._answer().get("ready"):
            lines = (self._process.stderr.read().decode(errors="replace").strip() if self._process.stderr else "").splitlines()
            said = lines[-1] if lines else "no output"
            raise HarnessError(f"the worker process could not start ({said}); check that torch imports: {sys.executable} -c 'import torch'")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._socket.makefile("r").readline()
        except TimeoutError:
            line = ""
        return json.loads(line) if line else {}

    def fork(self, request: dict[str, Any], handles: list[int]) -> int:
        """A new worker's process id."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], handles)
            pid = self._answer().get("pid")
        if pid is None:
            raise HarnessError("the process that forks workers is gone; start the run again with --resume")
        return int(pid)

    def wait(self, pid: int) -> int | None:
        """The exit code of a worker that is ending."""
        with self._lock:
            self._socket.sendall(json.dumps({"wait": pid}).encode())
            status: int | None = self._answer().get("status")
        return status

    def close(self) -> None:
        """Ends the zygote and with it every worker."""
        self._socket.close()
        self._process.wait(timeout=10)
        if self._process.stderr:
            self._process.stderr.close()


class Worker:
    """One warm worker on one device; replaced by a fresh one after a crash, a hang or a device error."""

    def __init__(self, zygote: Zygote, machine: str, *, index: int = 0, plugins: tuple[str, ...] = (), limits: Limits | None = None) -> None:
        self._zygote = zygote
        self._limits = limits or Limits()
        self._request = {"machine": machine, "plugins": list(plugins), "env": visible_device(machine, index)}
        self._log = tempfile.TemporaryFile()
        self.hello = Hello()
        self.restarts = -1
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self.pid = self._zygote.fork(self._request, [theirs.fileno(), self._log.fileno()])
        theirs.close()
        self._connection = Connection(ours.detach())
        self.restarts += 1
        if not self._connection.poll(START_LIMIT):
            raise HarnessError(f"the worker did not open its device within {START_LIMIT:.0f} s")
        try:
            self.hello = msgspec.json.decode(self._connection.recv_bytes(), type=Hello)
        except (EOFError, OSError) as error:
            code = self._zygote.wait(self.pid)
            raise HarnessError(f"the worker ended while opening its device ({_ending(code)}): {self._tail(0)[-300:]}") from error
        if self.hello.error:
            raise HarnessError(self.hello.error)

    def run(self, request: Request) -> Result:
        """The cell's result, whatever the provider does to the process."""
        mark = self._log.seek(0, os.SEEK_END)
        began = time.monotonic()
        self._send(request)
        try:
            status = self._await(began)
            if not status:
                data = self._connection.recv_bytes()
                if data[:1] == UNHEALTHY:
                    self._restart()
                return decode(data[1:])
        except (EOFError, OSError):
            ending = _ending(self._zygote.wait(self.pid))
            result = self._lost(request, "crash", ending, f"the worker process ended: {ending}", mark)
        else:
            limit = self._limits.build if status == "build-failed" else self._limits.run
            result = self._lost(request, status, "time limit", f"no return within {limit:.0f} s", mark)
        result.seconds["run"] = round(time.monotonic() - began, 6)
        self._restart()
        builds.clear_stale_locks(since=time.time() - result.seconds["run"])
        return result

    def _send(self, request: Request) -> None:
        data = msgspec.json.encode(request)
        try:
            self._connection.send_bytes(data)
        except OSError:  # it died after its last answer, so not of this cell
            self._restart()
            self._connection.send_bytes(data)

    def _await(self, began: float) -> str:
        """Waits for an answer; `hang` or `build-failed` when a limit passes. Time in which a compiler worked does not count as the run's."""
        deadline = began + self._limits.run
        while not self._connection.poll(max(0.0, min(deadline - time.monotonic(), _LOOK))):
            now = time.monotonic()
            if builds.compiling(self.pid):
                if now - began > self._limits.build:
                    return "build-failed"
                deadline = now + self._limits.run
            elif now > deadline:
                return "hang"
            elif _ended(self.pid):  # a child of the provider may keep the connection open
                raise EOFError
        return ""

    def _end(self) -> None:
        """Kills the worker with what it started, and reaps it."""
        self._connection.close()
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)
        self._zygote.wait(self.pid)

    def _restart(self) -> None:
        self._end()
        self._start()

    def _lost(self, request: Request, status: str, reason: str, detail: str, mark: int) -> Result:
        tail = self._tail(mark)
        return Result(
            cell=f"{request.op}[{request.provider}-{request.case}]",
            op=request.op,
            provider=request.provider,
            case=request.case,
            status=status,
            platform=request.platform,
            evidence=EVIDENCE[request.platform],
            reason=reason,
            detail=f"{detail}\n{tail}".strip(),
            device=self.hello.device,
            versions=self.hello.versions,
            seed=request.seed,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _tail(self, mark: int) -> str:
        self._log.seek(mark)
        return self._log.read()[-2000:].decode(errors="replace").strip()

    def close(self) -> None:
        """Ends the worker."""
        self._end()
        self._log.close()


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _ending(code: int | None) -> str:
    if code is None:
        return "did not end"
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
