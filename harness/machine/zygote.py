"""The zygote: a process with torch and triton imported and no device opened, from which workers are forked in milliseconds.

Runs as `python -m harness.machine.zygote FD`. Each request on the control socket is one JSON line; a fork request carries the
worker's socket and log as file descriptors. When the harness goes away the socket closes, the zygote exits and its workers die with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1
_WAIT_LIMIT = 10.0


def serve(control: socket.socket) -> None:
    """Answers fork and wait requests until the other end closes."""
    import torch  # noqa: F401  # the point of the zygote: paid once, inherited by every worker

    from harness.machine import worker

    with contextlib.suppress(ModuleNotFoundError):  # a machine without Triton still runs every other provider
        import triton  # noqa: F401
    control.sendall(b'{"ready": true}\n')
    while True:
        data, handles, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not data:
            os._exit(0)
        request = json.loads(data)
        if "wait" in request:
            control.sendall(json.dumps({"status": _wait(request["wait"])}).encode() + b"\n")
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _become_worker(worker.serve, request, handles)
        for handle in handles:
            os.close(handle)
        control.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def _become_worker(serve_worker: Any, request: dict[str, Any], handles: list[int]) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpgid(0, 0)
        connection, log = handles
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(request["env"])
        serve_worker(Connection(connection), request["machine"], request["plugins"])
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int) -> int | None:
    """The exit code of a worker (negative: a signal), or None when it does not end in time."""
    end = time.monotonic() + _WAIT_LIMIT
    while time.monotonic() < end:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # reaped by an earlier request
            return None
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
