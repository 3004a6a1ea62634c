"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from harness.errors import HarnessError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TEMPORARY = ".*.tmp"  # what a process that was killed while it wrote may leave


def write_whole(path: Path, data: bytes | str) -> None:
    """Writes a file whole or not at all: temporary file, fsync, rename. Raises UsageError when the path is not writable, HarnessError
    where the disk is full."""
    write_all({path: data})


def write_all(files: Mapping[Path, bytes | str]) -> None:
    """Writes files, each whole or not at all. All are on the disk before the first takes its place: where one does not fit, every old
    file stays. Raises as `write_whole`."""
    ready: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, data in files.items():
            payload = data.encode() if isinstance(data, str) else data
            target = path.resolve()  # a link stays one
            if target.is_char_device() or target.is_fifo():  # written to, never replaced
                target.write_bytes(payload)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            ready.append((temporary, target))
            with open(temporary, "wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
        for temporary, path in ready:
            os.replace(temporary, path)
    except OSError as error:
        for temporary, _ in ready:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if error.errno in _FULL:
            raise HarnessError(f"cannot write {path}: {error.strerror}; make room there") from error
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
