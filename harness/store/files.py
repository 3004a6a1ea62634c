"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from harness.errors import UsageError


def write_whole(path: Path, data: bytes | str) -> None:
    """Writes a file whole or not at all: temporary file, fsync, rename. Raises UsageError when the path is not writable."""
    payload = data.encode() if isinstance(data, str) else data
    target = path.resolve()  # a link stays one
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.is_char_device() or target.is_fifo():  # written to, never replaced
            target.write_bytes(payload)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
