"""Which machine start this is: one boot of one device. Its runs share what differs between two devices of a model, and between two boots.

`root` stands for / (tests describe another machine under it).
"""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path

_BOOT = "proc/sys/kernel/random/boot_id"  # the host's, in a container too
_STAT = "proc/stat"
_ROOT = Path("/")


def start_of(serial: str, root: Path = _ROOT) -> str:
    """Twelve hex digits for this boot of the device with that serial number; an empty string where no file tells one boot from another.

    Containers and leases one after the other that get the same device of a host that stays up are one start: the device is the same,
    and so is its clock. Two devices of a host are two. Where the host's boot id is hidden, its boot time and the name of the machine
    stand for it, so that each container with a name of its own is a start.
    """
    boot = _read(root / _BOOT)
    if not boot:
        since = re.search(r"^btime ([1-9]\d*)$", _read(root / _STAT), re.MULTILINE)
        boot = f"{since[1]} {socket.gethostname()}" if since else ""
    return hashlib.sha256(f"{boot} {serial}".encode()).hexdigest()[:12] if boot else ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
