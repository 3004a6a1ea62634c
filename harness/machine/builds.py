"""Just-in-time builds: seen from outside by the compilers a worker has as children, and cleaned up after when one is killed."""

from __future__ import annotations

import os
from pathlib import Path

COMPILERS = {"ninja", "nvcc", "cicc", "ptxas", "hipcc", "clang", "clang++", "cc1plus", "c++", "g++", "gcc", "ld", "fatbinary", "lld"}


def _children(pid: int) -> list[int]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return found
    return found


def compiling(pid: int) -> bool:
    """Whether a descendant of the process is a compiler or a build tool."""
    pending = _children(pid)
    while pending:
        child = pending.pop()
        try:
            name = Path(f"/proc/{child}/comm").read_text().strip()
        except OSError:
            continue
        if name in COMPILERS:
            return True
        pending += _children(child)
    return False


def lock_folders() -> list[Path]:
    """Where torch's extension builder and AITER keep lock files that outlive their holder."""
    home = Path.home()
    torch_default = home / ".cache" / "torch_extensions"
    aiter_default = home / ".aiter"
    return [Path(os.environ.get("TORCH_EXTENSIONS_DIR", torch_default)), Path(os.environ.get("AITER_JIT_DIR", aiter_default))]


def clear_stale_locks(since: float) -> list[Path]:
    """Removes lock files made since that time (seconds since the epoch) by the worker just killed; returns them."""
    removed = []
    for folder in lock_folders():
        for lock in [*folder.rglob("lock"), *folder.rglob("lock_*")] if folder.is_dir() else []:
            if lock.is_file() and lock.stat().st_mtime >= since:
                lock.unlink(missing_ok=True)
                removed.append(lock)
    return removed
