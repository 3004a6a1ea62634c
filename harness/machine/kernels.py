"""Which kernels a call launches, by torch's profiler (CUPTI, roctracer), in a pass that is never timed. One profiler session serves many
calls: each stands in a range of its own, and ends before the next begins."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.store.timing import Kernel

Call = Callable[[], object]
_RANGE = "kernel-parity call "
_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})  # categories of what ran on the device


def profiled(prepared: Sequence[Callable[[], Call]]) -> list[tuple[Kernel, ...]]:
    """What each call launched, in the order in which it ran. `prepared` makes a call ready, outside its range, right before it. Raises
    what a call raises."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for number, prepare in enumerate(prepared):
            call = prepare()
            call()  # what only a first call does is not asked for
            torch.cuda.synchronize()
            with torch.profiler.record_function(f"{_RANGE}{number}"):
                call()
                torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        found = by_range(json.loads(path.read_text())["traceEvents"])
    return [found.get(number, ()) for number in range(len(prepared))]


def by_range(events: Iterable[dict[str, Any]]) -> dict[int, tuple[Kernel, ...]]:
    """The kernels within the range of each call, by its number, from the events of a chrome trace as kineto writes it."""
    ranges: dict[int, tuple[float, float]] = {}
    ran: list[tuple[float, Kernel]] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        if event.get("cat") == "user_annotation" and event["name"].startswith(_RANGE):
            ranges[int(event["name"].removeprefix(_RANGE))] = (event["ts"], event["ts"] + event["dur"])
        elif event.get("cat") in _KERNELS:
            ran.append((event["ts"], _kernel(event)))
    ran.sort(key=lambda one: one[0])
    return {number: tuple(kernel for at, kernel in ran if begin <= at <= end) for number, (begin, end) in sorted(ranges.items())}


def _kernel(event: dict[str, Any]) -> Kernel:
    told = event.get("args", {})
    return Kernel(
        name=event["name"],
        grid=tuple(told.get("grid", ())),
        block=tuple(told.get("block", ())),
        registers=int(told.get("registers per thread", 0)),
        shared=int(told.get("shared memory", 0)),
        us=round(float(event["dur"]), 3),
    )
