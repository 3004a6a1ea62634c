"""Control kernels: work that no library under test has a part in, timed between the samples, so that a slow device is told from a
slow kernel. Their times are also this device's ceilings for the roofline (harness/speed/roofline.py has their sizes)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.speed.roofline import COPIED, SIDE


class Controls:
    """The kernels, built when first asked for and then kept."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._built: dict[str, Callable[[], object]] = {}

    def __getitem__(self, name: str) -> Callable[[], object]:
        if name not in self._built:
            self._built[name] = getattr(self, f"_{name}")()
        return self._built[name]

    def _copy(self) -> Callable[[], object]:
        source = torch.zeros(COPIED, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def _matmul(self) -> Callable[[], object]:
        left, right, out = (torch.zeros(SIDE, SIDE, dtype=torch.bfloat16, device=self._device) for _ in range(3))
        # zeros draw less power than data: a clock that data would pull down is not seen
        left.view(torch.int16).random_(0x3E00, 0x4000)
        right.view(torch.int16).random_(0x3E00, 0x4000)
        return lambda: torch.matmul(left, right, out=out)
