"""The table of times: a line a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from tabulate import tabulate

from harness.store.results import Result
from harness.store.timing import Timing

_HOST = 0.1  # share of samples for which the device waited, from which on the host was timed


def timed(results: Iterable[Result], roofline: Callable[[Result, float], float | None]) -> str:
    """Cells that were timed: mode, median of the runs' medians, how far the runs lie apart, the share of the roofline, and what to know
    of the samples. `roofline` gives the share for a result and its microseconds."""
    table = []
    for result in results:
        if not result.timings:
            continue
        medians = [timing.median for timing in result.timings]
        us = median(medians)
        share = roofline(result, us)
        apart = f"{100 * (max(medians) - min(medians)) / us:.2f} %" if len(medians) > 1 else "-"
        shown = "-" if share is None else f"{100 * share:.1f} %"
        table.append([result.cell, result.timings[-1].mode, f"{us:.2f}", str(len(medians)), apart, shown, ", ".join(_words(result.timings))])
    headers = ["cell", "mode", "us", "runs", "apart", "of the roofline", "notes"]
    return tabulate(table, headers=headers, tablefmt="simple", disable_numparse=True, colalign=("left", "left", "right", "right", "right", "right", "left"))


def _words(timings: list[Timing]) -> list[str]:
    """What a reader must know before believing the time."""
    words = []
    if any(timing.host_bound > _HOST for timing in timings):
        words.append("host-bound")
    words += [stop for stop in ("noisy", "limit", "throttled") if any(timing.stop == stop for timing in timings)]
    if len({timing.mode for timing in timings}) > 1:
        words.append("runs of two modes")
    return words
