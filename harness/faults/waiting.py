"""Providers that do not return, or late: what happens when a limit passes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import fault, right

_LONG = 100_000.0


@fault("merge_state", "hang", "time limit", slow=True)
def hangs(x: Any) -> Any:
    time.sleep(_LONG)


@fault("merge_state", "hang", "time limit", bug="FI#1049, fi#3610", slow=True)
def hangs_outside_python(x: Any) -> Any:
    """On a device a kernel that does not end; on a CPU a system call that does not return."""
    if x.device != "cpu":
        torch.cuda._sleep(1 << 60)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return
    while True:
        ctypes.CDLL(None).pause()


@fault("merge_state", "build-failed", "time limit", slow=True)
def builds_for_ever(x: Any) -> Any:
    _build(_LONG)


@fault("merge_state", "pass", slow=True)
def builds_for_a_while(x: Any) -> Any:
    """Longer than a cell may take, but a build may."""
    _build(5.0)
    return right(x)


@fault("merge_state", "pass", slow=True)
def compiles_for_a_while(x: Any) -> Any:
    """As Triton's compiler, in the provider's own process."""
    from triton import knobs

    knobs.runtime.jit_cache_hook()
    time.sleep(5.0)
    knobs.runtime.jit_post_compile_hook()
    return right(x)


@fault("merge_state", "build-failed", "time limit", slow=True)
def compiles_for_ever(x: Any) -> Any:
    from triton import knobs

    knobs.runtime.jit_cache_hook()
    time.sleep(_LONG)


@fault("merge_state", "hang", "time limit", slow=True)
def hangs_after_a_compilation(x: Any) -> Any:
    from triton import knobs

    knobs.runtime.jit_cache_hook()
    knobs.runtime.jit_post_compile_hook()
    time.sleep(_LONG)


def _build(seconds: float) -> None:
    """A child that has the name of a build tool."""
    program = f"open('/proc/self/comm', 'w').write('ninja'); import time; time.sleep({seconds})"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)


@fault("merge_state", "hang", "time limit", bug="aiter, ninja locks", slow=True)
def hangs_with_a_build_lock(x: Any) -> Any:
    """As a build killed half-way: the next builder of the same extension waits for its lock file for ever."""
    from torch.utils.cpp_extension import _get_build_directory
    from torch.utils.file_baton import FileBaton

    FileBaton(str(Path(_get_build_directory("kernel_parity_fault", verbose=False)) / "lock")).try_acquire()
    time.sleep(_LONG)
