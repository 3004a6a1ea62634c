"""Providers that take their process with them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

from harness.faults.shelf import fault


@fault("merge_state", "crash", "signal SIGABRT", bug="sglang#36356")
def aborts(x: Any) -> Any:
    os.abort()


@fault("merge_state", "crash", "signal SIGSEGV", bug="aiter#726")
def segfaults(x: Any) -> Any:
    ctypes.string_at(8)


@fault("merge_state", "crash", "exit code 0")
def exits_with_success(x: Any) -> Any:
    os._exit(0)


@fault("merge_state", "crash", "exit code 3")
def exits_with_failure(x: Any) -> Any:
    os._exit(3)


@fault("merge_state", "crash", "SystemExit")
def exits_politely(x: Any) -> Any:
    sys.exit(0)


@fault("merge_state", "crash", "KeyboardInterrupt")
def interrupts(x: Any) -> Any:
    raise KeyboardInterrupt


@fault("merge_state", "crash", "signal SIGKILL")
def kills_itself(x: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@fault("merge_state", "crash", "exit code 5")
def exits_leaving_a_child(x: Any) -> Any:
    """The child inherits the connection to the harness, which therefore does not close."""
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)
    os._exit(5)


@fault("merge_state", "crash", "exit code 1", platforms={"cpu"})
def closes_descriptors(x: Any) -> Any:
    """What the process needs to answer with is gone; on a device its driver's files too, which may end it sooner."""
    os.closerange(3, 4096)
    return x.v_a, x.s_a


@fault("merge_state", "crash", "signal SIGABRT")
def floods_its_log(x: Any) -> Any:
    """Prints 8 MiB and dies: the result holds the end of it alone."""
    for _ in range(8):
        print("x" * (1 << 20))
    print("the last line")
    os.abort()
