"""Rows kept by the content they were made from: the library's sources, the harness, the target, the versions of what compiles."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
from collections.abc import Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path

import msgspec

from harness.errors import HarnessError, UsageError
from harness.offline.codegen.cells import Listed
from harness.offline.codegen.rows import Row
from harness.offline.sources import Source, cache_folder
from harness.offline.targets import Target
from harness.store.files import write_whole

_HARNESS = Path(__file__).resolve().parents[2]
_ELSEWHERE = "give another folder in KERNEL_PARITY_CACHE, or keep nothing with --fresh"
_OURS = (
    "contracts",
    "machine/launches.py",
    "machine/memory.py",
    *(f"offline/codegen/{name}.py" for name in ("adapters", "cells", "device", "metrics", "rows", "searching", "standins", "worker")),
    "offline/targets.py",
    "providers/isolate.py",
    "providers/registry.py",
    "providers/resolve.py",
    "providers/sglang_triton",
)


class Kept:
    """The rows of one library's sources, a file each under the cache folder."""

    def __init__(self, source: Source, plugins: Sequence[str]) -> None:
        tools = [f"{name} {version_of(name)}" for name in ("torch", "triton")]
        parts = [
            digest_of(source.root / source.package),
            *(digest_of(_HARNESS / part) for part in _OURS),
            platform.python_version(),
            *tools,
            *map(_plugin, plugins),
        ]
        self._base = " ".join(parts).encode()
        self._paths: dict[tuple[str, str], Path] = {}

    def get(self, target: Target, cell: Listed) -> Row | None:
        """The kept row, or None."""
        key = hashlib.blake2b(b"\0".join([self._base, msgspec.json.encode(target), cell.id.encode()]), digest_size=16).hexdigest()
        path = self._paths[target.id, cell.id] = cache_folder() / "codegen" / "rows" / key[:2] / f"{key}.json"
        try:
            row = msgspec.json.decode(path.read_bytes(), type=Row)
        except (OSError, msgspec.DecodeError):
            return None
        return row if (row.target, row.cell) == (target.id, cell.id) else None

    def put(self, row: Row) -> None:
        """Keeps a row that `get` did not find. Raises UsageError where the cache folder takes nothing, HarnessError where the disk is full."""
        try:
            write_whole(self._paths[row.target, row.cell], msgspec.json.encode(row))
        except (UsageError, HarnessError) as error:
            raise type(error)(f"{error}; {_ELSEWHERE}") from error


def triton_cache() -> Path:
    """The folder of Triton's own cache. Raises UsageError where it cannot be written to."""
    folder = cache_folder() / "codegen" / "triton"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; {_ELSEWHERE}") from error
    return folder


@functools.cache
def version_of(module: str) -> str:
    """The version of an installed package, whatever its distribution is called (triton, pytorch-triton-rocm). Raises UsageError without one."""
    names = packages_distributions().get(module)
    if not names:
        raise UsageError(f"{module} is not installed: codegen compiles with the Triton that is here; pip install 'kernel-parity[torch]' brings both")
    return version(names[0])


def _plugin(name: str) -> str:
    path = Path(name)
    return digest_of(path) if path.is_file() else name


@functools.cache
def digest_of(root: Path, suffixes: tuple[str, ...] = (".py", ".json", ".toml")) -> str:
    """A hash of the names and contents of a folder's (or file's) sources."""
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.suffix in suffixes and path.is_file())
    total = hashlib.blake2b(digest_size=16)
    for path in files:
        total.update(str(path.relative_to(root)).encode() + b"\0" + hashlib.blake2b(path.read_bytes()).digest())
    return total.hexdigest()
