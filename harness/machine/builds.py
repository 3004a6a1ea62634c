"""Processes seen from outside: the compilers a just-in-time build runs, the locks it leaves behind, the kernel's kills for memory."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPILERS = frozenset(
    [
        "ninja",
        "make",
        "cmake",
        "nvcc",
        "cudafe++",
        "cicc",
        "ptxas",
        "fatbinary",
        "nvlink",
        "hipcc",
        "hipcc.bin",
        "amdclang",
        "amdclang++",
        "lld",
        "ld.lld",
        "ld",
        "collect2",
        "as",
        "cc1",
        "cc1plus",
        "cc",
        "c++",
        "gcc",
        "g++",
        "git",  # AITER fetches what it builds against
    ]
)
_OLD = 2 * 3600.0  # no build lasts so long, seconds


class Process(NamedTuple):
    """A line of the process table; `name` is at most 15 characters, `state` Z for one that has ended and was not reaped."""

    parent: int
    name: str
    state: str


def process(pid: int) -> Process | None:
    """The process with this id, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return Process(int(fields[1]), head.partition("(")[2], fields[0])


def ended(pid: int) -> bool:
    """Whether the process is gone, or waits only to be reaped."""
    found = process(pid)
    return found is None or found.state == "Z"


def children(pid: int) -> set[int]:
    """The processes whose parent it is, those that wait to be reaped included."""
    return {child for child, found in _table().items() if found.parent == pid}


def compiling(pid: int) -> bool:
    """Whether a descendant of the process is a compiler or a build tool."""
    table = _table()
    pending = [pid]
    while pending:
        parent = pending.pop()
        for child, found in table.items():
            if found.parent == parent and child != parent:
                if found.state != "Z" and (found.name in COMPILERS or found.name.startswith("clang")):
                    return True
                pending.append(child)
    return False


def _table() -> dict[int, Process]:
    found = ((int(name), process(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: line for pid, line in found if line is not None}


def lock_folders() -> list[Path]:
    """Where torch's extension builder and AITER keep lock files that outlive their holder.

    AITER: modules under its JIT folder, templates under its root folder, merged tables of tuned kernels in one for all users.
    """
    aiter = importlib.util.find_spec("aiter")
    return [
        Path(os.environ.get("TORCH_EXTENSIONS_DIR", Path.home() / ".cache" / "torch_extensions")),
        Path.home() / ".aiter",
        Path("/tmp/aiter_configs"),
        *(Path(os.environ[name]) for name in ("AITER_JIT_DIR", "AITER_ROOT_DIR") if name in os.environ),
        *(Path(place) / "jit" for place in (aiter and aiter.submodule_search_locations) or ()),
    ]


def _locks(folder: Path) -> Iterator[Path]:
    """`lock` of a build folder, `lock_module` of a module, `kernel.lock` of a binary, and the `.steal` of one that takes a dead one's place."""
    for place, _, names in os.walk(folder):
        yield from (Path(place) / name for name in names if re.fullmatch(r"(lock|lock_.*|.*\.lock)(\.steal)?", name))


def clear_stale_locks(since: float) -> list[Path]:
    """Removes lock files that no process of this machine holds open: those made since that time (seconds since the epoch), by
    the worker just killed, and those older than any build. Returns them."""
    stale = []
    for folder in filter(Path.is_dir, lock_folders()):
        for lock in _locks(folder):
            try:
                facts = lock.lstat()
            except FileNotFoundError:  # its holder was quicker
                continue
            mine = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() and _host(lock) in ("", socket.gethostname())
            if mine and (facts.st_mtime >= since or time.time() - facts.st_mtime > _OLD):
                stale.append(lock)
    held = _open_files() if stale else set()
    removed = [lock for lock in stale if os.path.realpath(lock) not in held]
    for lock in removed:
        lock.unlink(missing_ok=True)
    return removed


def _host(lock: Path) -> str:
    """The machine whose process holds the lock, where the lock says it (AITER writes process id and host name)."""
    try:
        lines = lock.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[1].strip() if len(lines) > 1 else ""


def _open_files() -> set[str]:
    held = set()
    for name in os.listdir("/proc"):
        try:
            handles = os.listdir(f"/proc/{name}/fd") if name.isdigit() else []
        except OSError:
            continue
        for handle in handles:
            try:
                held.add(os.readlink(f"/proc/{name}/fd/{handle}"))
            except OSError:
                continue
    return held


def kills_for_memory() -> int:
    """How many processes the kernel has killed for lack of memory since it started; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
