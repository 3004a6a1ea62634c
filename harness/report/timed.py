"""The tables of times: a line a cell; steps between neighbours; providers beside the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from tabulate import tabulate

from harness.speed.cliffs import EMBEDDED, Cliff
from harness.speed.gaps import Gap
from harness.store.results import Result
from harness.store.timing import HOST_BOUND, Remedy, Timing

_WIDE = 1.5  # gaps from here on are shown


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
    if any(timing.host_bound >= HOST_BOUND for timing in timings):
        words.append("host-bound")
    words += [stop for stop in ("noisy", "limit", "throttled") if any(timing.stop == stop for timing in timings)]
    if len({timing.mode for timing in timings}) > 1:
        words.append("runs of two modes")
    return words


def cliffs(found: Sequence[Cliff], tried: Mapping[str, Remedy]) -> str:
    """Cells that take longer than a neighbour in which they lie and the padding, with the lower bound of the ratio, and what the remedy
    that was tried gives, by cell."""
    rows = []
    for one in found:
        step = f"{one.axis} {one.small.point[one.axis]} -> {one.neighbour.point[one.axis]}"
        times = f"{median(one.small.medians):.2f}", f"{median(one.neighbour.medians):.2f}", f"{one.pad:.2f}"
        rows.append([one.small.cell, step, *times, f"{one.ratio:.2f}", f"{one.bound:.2f}", EMBEDDED.get(one.axis, "the same work"), _tried(one, tried)])
    headers = ["cliff", "to", "us", "there", "pad", "ratio", "at least", "how it would get there", "tried"]
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True) if rows else ""


def _tried(cliff: Cliff, tried: Mapping[str, Remedy]) -> str:
    remedy = tried.get(cliff.small.cell)
    return "-" if remedy is None else padded(median(cliff.small.medians), remedy)


def padded(us: float, remedy: Remedy) -> str:
    """What a remedy gives a call of so many microseconds, in words."""
    if remedy.status != "pass":
        return f"{remedy.law}: {remedy.status}"
    if not remedy.us:
        return f"{remedy.law}: right, not timed"
    then = median(remedy.us)
    return f"{remedy.law}: right, {then:.2f} us, {us / then:.2f} times as fast with {remedy.flops:.2f} of the arithmetic"


def gaps(found: Sequence[Gap], most: int = 30) -> str:
    """Providers that take much longer than the fastest of the same case in the same mode: the widest gaps."""
    wide = [one for one in found if one.ratio >= _WIDE]
    rows = [[one.slow.cell, f"{one.ratio:.1f} times", one.fast.provider, one.slow.mode] for one in wide[:most]]
    more = f"\n... and {len(wide) - most} more gaps of {_WIDE:g} and above" if len(wide) > most else ""
    return tabulate(rows, headers=["cell", "takes", "the time of", "mode"], tablefmt="simple", disable_numparse=True) + more if rows else ""
