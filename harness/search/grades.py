"""By what a bisect tells versions apart: how the cell ends, which kernels it launches, how long it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import Protocol

from harness.speed.names import family
from harness.speed.regression import FAST, SLOW
from harness.speed.suite import Timed, judge
from harness.store.results import Result
from harness.store.timing import HOST_BOUND


class Grade(Protocol):
    """One way to tell good from bad."""

    def said(self, result: Result) -> str:
        """The verdict in a few words."""

    def without(self, result: Result) -> str:
        """Why this result says nothing, or an empty string."""

    def between(self, good: Result, bad: Result) -> str:
        """Takes the two ends; why there is nothing to search between them, or an empty string."""

    def changed(self, result: Result) -> bool:
        """Whether the result is otherwise than the good end."""


class Status:
    """Good is what ends with the status and reason of the good end."""

    def said(self, result: Result) -> str:
        return f"{result.status}: {result.reason}" if result.reason and result.status != "pass" else result.status

    def without(self, result: Result) -> str:
        return ""

    def between(self, good: Result, bad: Result) -> str:
        self._good = self.said(good)
        if self._good == self.said(bad):
            return f"both give {self._good}, so nothing changed between them"
        return f"good is bad already: {self._good}, and the bad one passes; exchange --good and --bad" if bad.status == "pass" else ""

    def changed(self, result: Result) -> bool:
        return self.said(result) != self._good


class Kernels:
    """Good is what launches the kernel families of the good end, in their order."""

    def said(self, result: Result) -> str:
        return " + ".join(_families(result))

    def without(self, result: Result) -> str:
        return _unmeasured(result) or ("" if _families(result) else "the profiler saw no kernel")

    def between(self, good: Result, bad: Result) -> str:
        self._good = _families(good)
        return f"both launch {self.said(good)}, so nothing changed between them" if self._good == _families(bad) else ""

    def changed(self, result: Result) -> bool:
        return _families(result) != self._good


class Time:
    """Good is what takes less than the geometric mean of both ends, which must differ by the rule of regressions."""

    def said(self, result: Result) -> str:
        return f"{median(_medians(result)):.2f} us ({result.timings[-1].mode}, {len(_medians(result))} runs)"

    def without(self, result: Result) -> str:
        if why := _unmeasured(result):
            return why
        modes = {timing.mode for timing in result.timings}
        if len(modes) > 1 or modes != {getattr(self, "_mode", next(iter(modes)))}:
            return f"timed by {' and '.join(sorted(modes))}, and times of two modes are not compared"
        bound = median(timing.host_bound for timing in result.timings) >= HOST_BOUND
        return "host-bound: what was timed is the host" if bound else ""

    def between(self, good: Result, bad: Result) -> str:
        self._mode = good.timings[0].mode
        if why := self.without(bad):
            return f"the bad one is {why}"
        verdict = judge({"": Timed(self._mode, {"here": _medians(good)}, _medians(bad), start="here")})[0][""]
        self._middle = math.sqrt(median(_medians(good)) * median(_medians(bad)))
        times = f"{self.said(good)} and {self.said(bad)}"
        if verdict.verdict == FAST:
            return f"good is bad already: {times}; exchange --good and --bad"
        return "" if verdict.verdict == SLOW else f"{times} are alike (they must differ by {100 * verdict.margin:.1f} %), so nothing changed between them"

    def changed(self, result: Result) -> bool:
        return median(_medians(result)) > self._middle


GRADES: Mapping[str, Callable[[], Grade]] = {"status": Status, "kernels": Kernels, "time": Time}


def _unmeasured(result: Result) -> str:
    if result.status != "pass":
        return f"not timed: {Status().said(result)}"
    return "" if result.timings else "it could not be timed"


def _medians(result: Result) -> list[float]:
    return [timing.median for timing in result.timings]


def _families(result: Result) -> list[str]:
    return list(dict.fromkeys(family(kernel.name) for kernel in result.timings[-1].kernels))
