"""The zygote: a process with torch and triton imported and no device opened, from which workers are forked in milliseconds.

Runs as `python -m harness.machine.zygote FD`. Each request on the control socket is one JSON line: `fork` (with the worker's
socket and log as file descriptors), `look` (has it ended, and how), `end` (kill and reap it). When the harness goes away,
by whatever signal, the socket closes and the zygote ends every worker, with all that the workers started, and then itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from harness.machine import builds

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_END_LIMIT = 10.0


def serve(control: socket.socket) -> None:
    """Answers requests until the other end closes."""
    # the point of the zygote: paid once, inherited by every worker
    from harness.contracts import ops
    from harness.machine import execute, worker  # noqa: F401
    from harness.providers import providers

    ops(), providers()
    if os.environ.get("TORCHDYNAMO_DISABLE") != "1":
        import torch._dynamo  # noqa: F401  # torch imports it when the first allocation is guarded
    with contextlib.suppress(ModuleNotFoundError):  # a machine without Triton still runs every other provider
        import triton  # noqa: F401
    _prctl(_PR_SET_PDEATHSIG, 0)  # from here on it notices by itself, and has workers to end first
    # what a worker leaves running becomes a child of this process, and is found and ended with it
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    builds.clear_stale_locks(since=time.time())
    workers: dict[int, float] = {}
    control.sendall(b'{"ready": true}\n')
    while True:
        data, handles, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not data:
            for pid in list(workers):
                _end(pid, workers)
            os._exit(0)
        request = json.loads(data)
        if "look" in request:
            answer = {"code": _look(request["look"])}
        elif "end" in request:
            answer = {"code": _end(request["end"], workers)}
        else:
            pid = _fork(worker.serve, request["fork"], handles, control)
            for handle in handles:
                os.close(handle)
            workers[pid] = time.time()
            answer = {"pid": pid}
        control.sendall(json.dumps(answer).encode() + b"\n")


def _fork(serve_worker: Any, request: dict[str, Any], handles: list[int], control: socket.socket) -> int:
    zygote = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(1)
        control.close()
        connection, log = handles
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # so that an abort loses no printed line
        faulthandler.enable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with contextlib.suppress(OSError):  # when memory runs out the kernel takes the worker first, not the harness
            Path("/proc/self/oom_score_adj").write_text("1000")
        os.environ.update(request["env"])
        serve_worker(Connection(connection), request["machine"], request["plugins"])
        code = 0
    except BaseException:
        with contextlib.suppress(Exception):
            traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _look(pid: int) -> int | None:
    """The exit code of a worker (negative: a signal), or None while it lives. It stays to be reaped, so its id is not reused."""
    with contextlib.suppress(ChildProcessError):
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    return None


def _end(pid: int, workers: dict[int, float]) -> int | None:
    """Kills and reaps a worker and whatever it left running, and clears the build locks they held. None: it cannot be killed."""
    began = workers.pop(pid)
    end = time.monotonic() + _END_LIMIT
    code = _kill(pid, end)
    with contextlib.suppress(ChildProcessError):  # no child at all is left: nothing to look for
        strays = {pid}
        while strays and time.monotonic() < end:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            strays = builds.children(os.getpid()) - workers.keys()
            for stray in strays:
                _kill(stray, time.monotonic() + 1.0)
    builds.clear_stale_locks(since=began)
    return code


def _kill(pid: int, end: float) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # a stray that another process adopted
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
    return None


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # while it imports
    serve(socket.socket(fileno=int(sys.argv[1])))
