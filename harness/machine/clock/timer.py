"""Takes the samples of one cell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from harness.machine.clock.cache import Flush
from harness.machine.clock.control import Controls
from harness.speed.stopping import NOISY, Rule
from harness.store.timing import THROTTLED

Call = Callable[[], object]
_BATCH = 10  # samples between two of the control
_LEAD = 4  # flushes that keep the device at work while the host, which waited for it, records the first launch of a batch
_WARM = 3  # launches of each input set, and of the control, before the first sample
_LONGER = 2  # times the samples that the rule asks for at most, while too many of them are beside a slow control
_SLOWER = 1.05  # times its median that the control takes while the device is throttled
_STILL = 0.98  # share of the greater clock rate, before and after, that the lesser has where nothing pulled it down
_DISCARD = 0.2  # share of the batches that may be left out for it


@dataclass
class Samples:
    """What a cell's launches took, in microseconds; `stop` is a word of `Timing.stop`, `host_bound` a share of the samples."""

    us: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    discarded: int = 0
    stop: str = ""
    host_bound: float = 0.0
    clock: tuple[int, ...] = ()


@dataclass
class _Pair:
    """Events around one launch."""

    start: Any
    end: Any

    def us(self) -> float:
        return 1000.0 * float(self.start.elapsed_time(self.end))


class Timer:
    """The clock of one device, with its flush memory and control kernels."""

    def __init__(self, device: str, arch: str, *, rule: Rule | None = None, seconds: float = 1.0) -> None:
        """`seconds` bounds the time that one cell's samples take."""
        self.rule = rule or Rule()
        self.seconds = seconds
        self._flush = Flush(device, arch)
        self._controls = Controls(device)

    def take(self, launches: Sequence[Call], control: str, restore: Call = lambda: None) -> Samples:
        """Samples of `launches` in turn (the same work on input sets of its own each); `restore` puts back, outside the timed window,
        what a launch changes. Raises what a launch raises."""
        beside = self._controls[control]
        for launch in launches:
            for _ in range(_WARM):
                restore()
                launch()
        for _ in range(_WARM):
            beside()
        torch.cuda.synchronize()
        batches: list[list[float]] = []
        taken = Samples(clock=_clock_rate())
        held_up, end = 0, time.monotonic() + self.seconds
        while not taken.stop:
            pairs = []
            for _ in range(_LEAD):
                self._flush()
            for number in range(_BATCH):
                pair, waited = self._launch(launches[number % len(launches)], restore)
                pairs.append(pair)
                held_up += waited
            pair, _ = self._launch(beside, lambda: None)
            torch.cuda.synchronize()
            batches.append([pair.us() for pair in pairs])
            taken.control.append(pair.us())
            taken.us = [us for batch in batches for us in batch]
            taken.stop = self.rule.decide(taken.us)
            if _slow(taken).mean() > _DISCARD and len(taken.us) < _LONGER * self.rule.most:
                taken.stop = ""
            if time.monotonic() > end:
                taken.stop = taken.stop or "limit"
        taken.host_bound = held_up / len(taken.us)
        taken.clock += _clock_rate()
        _leave_out(taken, batches)
        return taken

    def _launch(self, launch: Call, restore: Call) -> tuple[_Pair, bool]:
        """One launch with a cold cache between two events, and whether the device had begun to wait before the host had done."""
        restore()
        self._flush()
        pair = _Pair(*(torch.cuda.Event(enable_timing=True) for _ in range(2)))  # type: ignore[no-untyped-call]  # torch leaves it untyped
        pair.start.record()
        launch()
        pair.end.record()
        return pair, pair.start.query()


def _slow(taken: Samples) -> np.ndarray:
    """Beside which batches the control was slow, bool [batches]."""
    return np.asarray(np.asarray(taken.control) > _SLOWER * float(np.median(taken.control)))


def _leave_out(taken: Samples, batches: list[list[float]]) -> None:
    """Leaves out batches in which the control was slow too, unless they are too many to say what is normal. Where the driver's clock
    stood still meanwhile, the device was not throttled but restless: beside cells of hundreds of MiB the copy takes one of two times."""
    slow = _slow(taken)
    if slow.mean() > _DISCARD:
        taken.stop = NOISY if taken.clock and min(taken.clock) > _STILL * max(taken.clock) else THROTTLED
    elif slow.any():
        taken.us = [us for batch, bad in zip(batches, slow, strict=True) if not bad for us in batch]
        taken.discarded = sum(len(batch) for batch, bad in zip(batches, slow, strict=True) if bad)


def _clock_rate() -> tuple[int, ...]:
    """The device's clock in MHz; nothing where no library of the driver tells."""
    with contextlib.suppress(Exception):  # torch raises what the vendor's library raises
        return (int(torch.cuda.clock_rate()),)
    return ()
