"""The cases that a search draws from: an op's axes on one provider, mended into what exists, is taken, and is cheap enough."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from harness.contracts import Case, op
from harness.errors import UsageError
from harness.providers import Provider
from harness.search.spans import Span, span

SEEDS = 1000  # of inputs
HELD = frozenset({"relation"})  # axes that stay at their default unless they are asked for: several calls in place of one
_NEAR, _STEP = 24, 8  # of the plainer values of an axis: how many of the nearest are looked at, and every which one of the others
_MISSES = 25  # draws without a case, of none with one, after which there is taken to be none
_PROGRAM = 7_000  # operations in whose time Triton's interpreter starts a program
_PAGED = ("length", "prefix")  # axes of tokens that lie in whole pages
_PROGRAMS = frozenset({"batch", "tokens", "rows", "heads"})  # axes for each value of which a kernel starts programs
Point = dict[str, Any]
Bounds = Mapping[str, Any]


class Space:
    """The cases of one op on one provider.

    bounds  axis -> a range (least, greatest) or a list of values to search instead of what the axis declares
    cost    most operations and bytes (by the contract's `work`) of a case
    """

    def __init__(self, provider: Provider, platform: str, *, cost: int, bounds: Bounds | None = None, arch: str = "") -> None:
        self.provider, self.platform, self.cost, self.arch = provider, platform, cost, arch
        self._op = op(provider.op)
        bounds = bounds or {}
        searched = [axis for axis in self._op.axes.axes if axis.name not in HELD or axis.name in bounds]
        self.spans: dict[str, Span] = {axis.name: span(axis, bounds.get(axis.name)) for axis in searched}
        self._known: dict[tuple[Any, ...], Case | None] = {}
        self._misses: float = 0

    def strategy(self) -> st.SearchStrategy[tuple[Case, int]]:
        """Possible cases with a seed; simpler are those nearer to the plain value of each axis, and lower seeds."""
        drawn = st.fixed_dictionaries({name: st.sampled_from(one.places) for name, one in self.spans.items()})
        cases = drawn.map(self.mended).filter(lambda case: case is not None)
        return st.tuples(cases, st.sampled_from(range(SEEDS)))

    def point_of(self, case: Case) -> Point:
        """The values of a case on the axes searched."""
        return {name: case.point.get(name, one.axis.default) for name, one in self.spans.items()}

    def possible(self, point: Mapping[str, Any]) -> Case | None:
        """The case of a point, or None where none exists, the library does not take it, or it costs too much. Raises UsageError for an
        `accepts` that fails."""
        key = tuple(point[name] for name in self.spans)
        if key not in self._known:
            self._known[key] = self._look(point)
        return self._known[key]

    def _look(self, point: Mapping[str, Any]) -> Case | None:
        try:
            case = self._op.axes.case(**point)
        except UsageError:
            return None
        taken = not (self.provider.declines(case, self.platform, self.arch) or self.provider.gated(case, self.arch))
        return case if taken and self._cost(case.point) <= self.cost else None

    def _cost(self, point: Mapping[str, Any]) -> int:
        whole = {name: max(point[name], point["page"]) for name in _PAGED if name in point and "page" in point}
        work = self._op.impl.work(Case(self._op.name, "", {**point, **whole}))
        programs = math.prod(value for name, value in point.items() if name in _PROGRAMS and isinstance(value, int)) if self.platform == "interpret" else 0
        return int(work.flops + work.bytes) + _PROGRAM * programs

    def mended(self, point: Point) -> Case | None:
        """The case of the point; where that is impossible, of one with other values instead, plainer ones first, the fewest axes changed
        that do."""
        if self._misses > _MISSES:
            return None
        point = self._cheaper(point)
        for changed in itertools.chain([point], self._others(point)):
            if (case := self.possible(changed)) is not None:
                self._misses = -math.inf
                return case
        self._misses += 1
        return None

    def _cheaper(self, point: Point) -> Point:
        """The point with its greatest sizes halved until it costs no more than it may."""
        point = dict(point)
        while (cost := self._cost(point)) > self.cost:
            halved = {name: value for name in self.spans if (value := self._half(name, point[name])) is not None}
            cheaper = [name for name, value in halved.items() if self._cost({**point, name: value}) < 0.8 * cost]
            if not cheaper:
                return point
            name = max(cheaper, key=lambda name: point[name])
            point[name] = halved[name]
        return point

    def _half(self, name: str, value: Any) -> int | None:
        """The nearest value of the axis at or below half of this one; None where there is none, or the axis is no size."""
        one = self.spans[name]
        if one.axis.words or one.axis.real or value <= 1:
            return None
        return next((lower for lower in one.plainer(value) if 0 < lower <= value // 2), None)

    def _others(self, point: Point) -> Iterator[Point]:
        """The point with one axis plainer, the last axes and the nearest values first; with one less plain; then with more and more
        axes plain."""
        for name in reversed(self.spans):
            plainer = self.spans[name].plainer(point[name])
            for value in [*plainer[:_NEAR], *plainer[_NEAR::_STEP], *plainer[-1:]]:
                yield {**point, name: value}
        for name in reversed(self.spans):
            for value in self.spans[name].beyond(point[name]):
                yield {**point, name: value}
        for name in reversed(self.spans):
            point = {**point, name: self.spans[name].plain}
            yield point
            for other in reversed(self.spans):
                for value in self.spans[other].plainer(point[other])[:8]:
                    yield {**point, other: value}
