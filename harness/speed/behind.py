"""Whether what a server chose is slower than something else that it has and that gives the same answer."""

from __future__ import annotations

from collections.abc import Mapping

MARGIN = 1.1  # times the fastest, from which on a choice is a fallback: two runs of one kernel are not further apart


def ratios(times: Mapping[str, float]) -> dict[str, float]:
    """By name, how many times the least time it takes; `times` in microseconds, of what gave a right answer."""
    least = min(times.values(), default=0.0)
    return {name: time / least for name, time in times.items()} if least > 0 else {}


def ahead(times: Mapping[str, float], chosen: str) -> tuple[str, float] | None:
    """The fastest of `times` and how many times its time `chosen` takes, where that is more than the margin; None where it is not, or not timed."""
    found = ratios(times).get(chosen, 0.0)
    return (min(times, key=lambda name: times[name]), found) if found > MARGIN else None
