"""The last-level cache: its size by architecture, and how it is emptied between samples."""

from __future__ import annotations

import torch

# MiB that can hold data between two launches. NVIDIA: L2. AMD: Infinity Cache where there is one, else L2
SIZES = {"sm_80": 40, "sm_86": 6, "sm_89": 96, "sm_90": 60, "sm_100": 126, "sm_103": 126, "sm_120": 128, "gfx90a": 8, "gfx942": 256, "gfx950": 256}
_UNKNOWN = 256


def cache_bytes(arch: str, told: int = 0) -> int:
    """Bytes of the last-level cache: the greater of the table's and what the runtime tells of its L2; 256 MiB where nobody knows."""
    return max(SIZES.get(arch, 0 if told else _UNKNOWN) << 20, told)


class Flush:
    """Empties the cache by writing twice its size."""

    def __init__(self, device: str, arch: str) -> None:
        told = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        self.memory = torch.empty(2 * cache_bytes(arch, told), dtype=torch.uint8, device=device)

    def __call__(self) -> None:
        self.memory.zero_()
