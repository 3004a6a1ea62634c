"""A call with a delay after it on the device, for the gate's check of its own power: a kernel that waits, in the same stream and graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_TRIED = 1_000_000  # cycles whose time is measured: half a millisecond on an H200


def delayed(call: Callable[[], Any], us: float) -> Callable[[], Any]:
    """The call, after which the device waits so many microseconds more; as it was for 0."""
    if not us:
        return call
    cycles = max(1, round(us * _rate()))

    def both() -> Any:
        returned = call()
        _wait(cycles)
        return returned

    return both


def _rate() -> float:
    """Cycles a microsecond that the waiting kernel counts, measured: what it counts differs between devices."""
    _wait(_TRIED)  # loads the kernel, and wakes the device
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    start.record()
    _wait(_TRIED)
    end.record()
    torch.cuda.synchronize()
    return _TRIED / (1000.0 * float(start.elapsed_time(end)))


def _wait(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # torch leaves it untyped
