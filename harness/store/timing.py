"""What timing a cell gave: part of its result line, in microseconds and by device."""

from __future__ import annotations

import msgspec

MODES = ("graph", "eager")
HOST_BOUND = 0.25  # share of samples for which the device waited, from which on the median may be one of the host
THROTTLED = "throttled"  # the `stop` of a run whose samples a slow device spoilt
NO_GRAPH = "no graph"  # the reason of a timed cell whose call cannot be captured: the next process is asked for plain calls


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One launch as a profiler saw it: its name, grid and block, registers a thread, bytes of shared memory (static and dynamic), and
    its time in microseconds under the profiler, which is no measurement of the cell."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int = 0
    shared: int = 0
    us: float = 0.0


class Timing(msgspec.Struct, omit_defaults=True):
    """One run: samples of one cell in one process.

    mode        `graph` (replays of a captured graph) or `eager` (plain calls); times of two modes are not compared
    why         why it is not `graph`
    median, low, high   of the samples, in microseconds; low and high are the quartiles
    samples     how many stand behind the median; `discarded`: how many more were taken while the device was throttled
    stop        `converged`, `noisy`, `limit` (drifting), or `throttled` (too many had to be discarded, so none was)
    host_bound  share of samples for which the device waited for the host
    control     the control kernel (`copy` or `matmul`), `control_us` the median of its samples between those of the cell
    plan        preparing (planning, workspaces), in microseconds of the host's clock; apart from the rest
    clock       the device's clock in MHz before and after, where the driver tells
    kernels     what ran, from a pass under the profiler
    start       the machine start: one boot of one device (harness/machine/starts.py); `at`: when the run was taken, UTC
    """

    mode: str
    median: float
    low: float
    high: float
    samples: int
    stop: str
    why: str = ""
    discarded: int = 0
    host_bound: float = 0.0
    control: str = ""
    control_us: float = 0.0
    plan: float = 0.0
    clock: tuple[int, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    start: str = ""
    at: str = ""


class Remedy(msgspec.Struct, omit_defaults=True):
    """What was tried for a cell that is slower than its neighbours justify.

    law     the law between calls that it is: `padheads`
    status  how the varied call was judged, its cut outputs among it: only what passes is a remedy
    us      the times of the whole: pads, call and cuts, in the cell's mode
    flops   its arithmetic as a multiple of the plain call's
    """

    law: str
    status: str
    us: list[float] = []
    flops: float = 1.0
