"""The worker's loop: one request a cell, one result back; it ends itself when the device context can no longer be trusted."""

from __future__ import annotations

import os
import threading
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import msgspec

from harness.machine.classify import words_of
from harness.machine.platforms import EVIDENCE
from harness.store.results import Result
from harness.store.timing import Kernel

if TYPE_CHECKING:
    from harness.machine.execute import Bench
    from harness.machine.timed import Stopwatch

HEALTHY, UNHEALTHY = b"+", b"!"  # the first byte of an answer: whether this process can take another cell
BEGUN = b"."  # sent before the answer: inputs and reference are done, from here on the provider is at work
COMPILING, COMPILED = b"<", b">"  # sent before the answer: Triton's compiler, which is no process of its own, is at work; has done


class Request(msgspec.Struct):
    """One cell to run. `gates` False: a case that the library's own dispatch is known to refuse is tried all the same. `rivals`: the
    outputs are judged by the rules of others too. `task`: `judge` the outputs, or take the time of a cell that was found right, by
    replays of a `graph` or by plain calls, `eager`, for the reason `why`, each with a `delay` in microseconds on the device. A list of
    requests asks which kernels each launches."""

    op: str
    case: str
    provider: str
    platform: str
    seed: int = 0
    gates: bool = True
    rivals: bool = False
    task: str = "judge"
    why: str = ""
    delay: float = 0.0


class Hello(msgspec.Struct):
    """What a worker says of itself once its device is open."""

    device: dict[str, str] = {}
    versions: dict[str, str] = {}
    error: str = ""


_encoder = msgspec.json.Encoder()


def serve(connection: Connection, machine: str, plugins: list[str]) -> None:
    """Opens the device, says hello, then answers requests until the connection closes."""
    from harness.errors import HarnessError, UsageError
    from harness.machine.execute import Bench
    from harness.machine.platforms import open_device
    from harness.machine.timed import Stopwatch
    from harness.plugins import load_plugins

    me = os.getpid()

    def compiling(at_work: bool) -> None:
        if os.getpid() == me and threading.current_thread() is threading.main_thread():  # one writer
            connection.send_bytes(COMPILING if at_work else COMPILED)

    try:
        bench = Bench(open_device(machine), begun=lambda: connection.send_bytes(BEGUN), compiling=compiling)
        load_plugins(plugins)
    except (HarnessError, UsageError) as error:
        connection.send_bytes(_encoder.encode(Hello(error=str(error))))
        return
    connection.send_bytes(_encoder.encode(Hello(bench.device.facts, bench.versions)))
    stopwatch = Stopwatch(bench)
    while True:
        try:
            request = msgspec.json.decode(connection.recv_bytes(), type=Request | list[Request])
        except (EOFError, OSError):
            return
        answer, healthy = _names(stopwatch, request) if isinstance(request, list) else _answer(bench, stopwatch, request)
        if os.getpid() != me:  # a child that the provider forked and let return
            os._exit(0)
        connection.send_bytes((HEALTHY if healthy else UNHEALTHY) + _encoder.encode(answer))
        if not healthy:
            os._exit(0)


def _names(stopwatch: Stopwatch, requests: list[Request]) -> tuple[list[tuple[Kernel, ...]], bool]:
    """The kernels of each request; none at all where one of them fails."""
    from harness.contracts import op
    from harness.providers import providers

    try:
        return stopwatch.kernels([(op(one.op).axes.parse(one.case), providers()[one.op, one.provider], one.seed) for one in requests]), True
    except Exception:  # each was right before: which of them it is shows when they are asked alone
        return [], False


def _answer(bench: Bench, stopwatch: Stopwatch, request: Request) -> tuple[Result, bool]:
    from harness.contracts import op
    from harness.providers import providers

    try:
        case = op(request.op).axes.parse(request.case)
        if request.task != "judge":
            made, how = providers()[request.op, request.provider], {"mode": request.task, "why": request.why}
            return stopwatch.run(case, made, request.platform, request.seed, **how, delay=request.delay)
        return bench.run(case, providers()[request.op, request.provider], request.platform, request.seed, gates=request.gates, rivals=request.rivals)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return Result(
            cell=f"{request.op}[{request.provider}-{request.case}]",
            op=request.op,
            provider=request.provider,
            case=request.case,
            status="error",
            platform=request.platform,
            evidence=EVIDENCE[request.platform],
            reason=type(error).__name__,
            detail=f"the contract or the harness failed, not the provider: {type(error).__name__}: {words_of(error)}\nraised at {where}",
            device=bench.device.facts,
            versions=bench.versions,
            seed=request.seed,
        ), False  # something an earlier provider left behind may be the cause: the next cell gets a fresh process
