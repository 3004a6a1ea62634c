"""The harness' side of the worker: starts it from the zygote, gives it cells, and turns its death or silence into a result."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

import msgspec

from harness.errors import HarnessError, UsageError
from harness.machine import builds
from harness.machine.classify import device_death
from harness.machine.nursery import START_LIMIT, Zygote, last_line, tail
from harness.machine.platforms import EVIDENCE, visible_device
from harness.machine.worker import BEGUN, COMPILED, COMPILING, UNHEALTHY, Hello, Request
from harness.store.results import Result, decode
from harness.store.timing import Kernel

T = TypeVar("T")
_KERNELS = msgspec.json.Decoder(list[tuple[Kernel, ...]])

_LOOK = 2.0  # how often a silent worker is looked at, seconds
_DYING = 10.0  # how long a worker that closed its connection may take to end: a device context is torn down first
_ANSWER = struct.pack("ll", 10, 0)  # how long half an answer is waited for, a C timeval
_LOG_LIMIT = 64 << 20  # bytes kept of what a worker prints in a cell


@dataclass(frozen=True)
class Limits:
    """Seconds a provider may take: `run` in all (as much again for inputs and reference), `build` while a compiler works for it.

    Raises UsageError for what is no time.
    """

    run: float = 60.0
    build: float = 900.0

    def __post_init__(self) -> None:
        for name, value in (("cell's", self.run), ("build's", self.build)):
            if math.isnan(value) or value <= 0:
                raise UsageError(f"a {name} time limit is a number of seconds above 0, not {value:g}")


class Worker:
    """One warm worker on one device. After a crash, a hang or a device error the next cell gets a fresh one."""

    def __init__(self, zygote: Zygote, machine: str, *, index: int = 0, plugins: tuple[str, ...] = (), limits: Limits | None = None) -> None:
        self._zygote = zygote
        self._limits = limits or Limits()
        self._request = {"machine": machine, "plugins": list(plugins), "env": visible_device(machine, index)}
        self._triton = False  # Triton's compiler is at work in the worker
        self._log = tempfile.TemporaryFile()
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied under the worker
        self.hello = Hello()
        self.starts = 0
        self.pid = 0
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _ANSWER)
        self.pid = self._zygote.fork(self._request, [theirs.fileno(), self._log.fileno()])
        theirs.close()
        self._connection = Connection(ours.detach())
        self._kills = builds.kills_for_memory()
        self.starts += 1
        if not self._connection.poll(START_LIMIT):
            raise HarnessError(f"the worker did not open its device within {START_LIMIT:.0f} s")
        try:
            self.hello = msgspec.json.decode(self._connection.recv_bytes(), type=Hello)
        except (EOFError, OSError) as error:
            ending = _ending(self._zygote.look(self.pid, _DYING))
            raise HarnessError(f"the worker ended while opening its device ({ending}): {last_line(self._log)}") from error
        if self.hello.error:
            raise HarnessError(self.hello.error)

    def run(self, request: Request, *, again: bool = True) -> Result:
        """The cell's result, whatever the provider does to the process. Raises HarnessError when no worker can be started.

        `again`: when the process ends before the provider begins, which an earlier cell may have caused, a fresh one tries.
        """
        began = time.monotonic()
        answer, begun, ended = self._ask(msgspec.json.encode(request), partial(_result_of, request))
        if answer is not None:
            return answer
        if not begun and again and ended[0] == "crash":
            self._end()
            return self.run(request, again=False)
        result = self._lost(request, *(ended if begun else _not_the_provider(*ended)))
        result.seconds["run"] = round(time.monotonic() - began, 6)
        self._end()
        return result

    def kernels(self, requests: list[Request]) -> list[tuple[Kernel, ...]]:
        """What each request launches; nothing at all where one of them fails. Raises HarnessError as `run` does."""
        answer, _, _ = self._ask(msgspec.json.encode(requests), _KERNELS.decode)
        if answer is None:
            self._end()
        return answer or []

    def _ask(self, message: bytes, read: Callable[[bytes], T]) -> tuple[T | None, bool, tuple[str, str, str]]:
        """What `read` makes of the answer to a message; None where the process ends or is late: then whether the provider had begun, and
        (status, reason, detail) of the end."""
        if self.pid and builds.ended(self.pid):  # it died after its last answer, so not of this cell
            self._end()
        if not self.pid:
            self._start()
        self._log.truncate(0)
        begun, self._triton = False, False
        try:
            self._connection.send_bytes(message)
            while not (late := self._await(time.monotonic())):
                data = self._connection.recv_bytes()
                if data == BEGUN:
                    begun = True
                    continue
                if data in (COMPILING, COMPILED):
                    self._triton = data == COMPILING
                    continue
                answer = read(data[1:])
                if data[:1] == UNHEALTHY:
                    self._end()
                return answer, begun, ("", "", "")
        except msgspec.MsgspecError as error:
            status, reason, detail = self._death()
            ended = (status, reason, f"{detail}; its last answer is no result: {error}")
        except (EOFError, OSError):
            ended = self._death()
        else:
            ended = self._late(late)
        return None, begun, ended

    def _await(self, began: float) -> str:
        """Waits for an answer; `hang` or `build-failed` when a limit passes. Time in which a compiler worked does not count as the run's."""
        deadline = began + self._limits.run
        while not self._connection.poll(max(0.0, min(deadline - time.monotonic(), _LOOK))):
            if builds.ended(self.pid):  # a child of the provider may keep the connection open
                raise EOFError
            if os.fstat(self._log.fileno()).st_size > _LOG_LIMIT:
                self._log.truncate(0)
            now = time.monotonic()
            if self._triton or builds.compiling(self._zygote.pid):  # for this cell, or for another worker's, whose lock this one may wait for
                if now - began > self._limits.build:
                    return "build-failed" if self._triton or builds.compiling(self.pid) else "hang"
                deadline = now + self._limits.run
            elif now > deadline:
                return "hang"
        return ""

    def _death(self) -> tuple[str, str, str]:
        """(status, reason, detail) of a worker that ended or closed its connection."""
        code = self._zygote.look(self.pid, _DYING)
        if code == -signal.SIGKILL and builds.kills_for_memory() > self._kills:
            return "out-of-memory", "killed", "the kernel killed the worker process: the machine, or this container, has no memory left"
        status, reason = device_death(tail(self._log)) or ("crash", _ending(code))
        return status, reason, f"the worker process ended: {_ending(code)}"

    def _late(self, late: str) -> tuple[str, str, str]:
        """(status, reason, detail) of a worker that did not answer in time; ends the process."""
        limit = self._limits.build if late == "build-failed" else self._limits.run
        status, reason = device_death(tail(self._log)) or (late, "time limit")
        os.kill(self.pid, signal.SIGABRT)  # so that its log says where it was
        self._zygote.look(self.pid, 1.0)
        at_work = ", a compiler still at work" if late == "build-failed" else ""
        return status, reason, f"no return within {limit:.0f} s{at_work}"

    def _end(self) -> None:
        """Kills the worker with what it started; the next cell starts another."""
        pid, self.pid = self.pid, 0
        self._connection.close()
        self._zygote.end(pid)

    def _lost(self, request: Request, status: str, reason: str, detail: str) -> Result:
        return Result(
            cell=f"{request.op}[{request.provider}-{request.case}]",
            op=request.op,
            provider=request.provider,
            case=request.case,
            status=status,
            platform=request.platform,
            evidence=EVIDENCE[request.platform],
            reason=reason,
            detail=f"{detail}\n{tail(self._log)}".strip(),
            device=self.hello.device,
            versions=self.hello.versions,
            seed=request.seed,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def renew(self) -> None:
        """Ends this process: the next cell gets a fresh one."""
        if self.pid:
            self._end()

    def close(self) -> None:
        """Ends the worker."""
        with contextlib.suppress(HarnessError):
            if self.pid:
                self._end()
        self._log.close()


def _result_of(request: Request, answer: bytes) -> Result:
    """The result in an answer. Raises EOFError for an answer to another request: a process that a provider forked spoke up."""
    result = decode(answer)
    if (result.op, result.provider, result.case) != (request.op, request.provider, request.case):
        raise EOFError
    return result


def _not_the_provider(status: str, reason: str, detail: str) -> tuple[str, str, str]:
    """The same of a worker that had not come to the provider yet."""
    if status == "out-of-memory":
        return "unsupported", "does not fit", f"inputs and reference: {detail}"
    return "error", reason, f"the contract or the harness failed, not the provider: in inputs and reference, {detail}"


def _ending(code: int | None) -> str:
    if code is None:
        return "connection closed"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
