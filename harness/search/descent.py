"""The smallest case that fails alike, axis by axis: for failures that cost a process or a time limit each, and to finish what
hypothesis has made small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts import Case
from harness.search.space import Point, Space
from harness.search.spans import EDGES

_FIRST = 12  # values of an axis that are all asked
Fails = Callable[[Case], bool]


def smallest(space: Space, case: Case, fails: Fails) -> Case:
    """The case with every axis as plain as it can be while `fails` holds, by bisection; `case` itself where nothing plainer fails.

    Failing may cost a process or a time limit and passing does not, so what is likelier to pass is asked first: everything plain, one
    axis alone, then each axis from its least value up, along the edges, with a bisection between the first one that fails and the last
    that passed. Between edges failures are taken for one run of values; scattered ones give a case that fails and may not be the smallest.
    """
    descent = _Descent(space, fails)
    point = space.point_of(case)
    plain = {name: one.plain for name, one in space.spans.items()}
    if descent.holds(plain):
        return descent.case(plain)
    for name in space.spans:
        alone = {**plain, name: point[name]}
        if point[name] != plain[name] and descent.holds(alone):
            point = alone
            break
    while (lower := descent.pass_over(point)) != point:
        point = lower
    return descent.case(point)


class _Descent:
    def __init__(self, space: Space, fails: Fails) -> None:
        self.space, self._fails = space, fails
        self._known: dict[tuple[Any, ...], bool] = {}

    def case(self, point: Point) -> Case:
        case = self.space.possible(point)
        assert case is not None
        return case

    def holds(self, point: Point) -> bool:
        """Whether the point is a case, and fails."""
        key = tuple(point.values())
        if key not in self._known:
            case = self.space.possible(point)
            self._known[key] = case is not None and self._fails(case)
        return self._known[key]

    def pass_over(self, point: Point) -> Point:
        """The point with each axis in turn made plainer."""
        for name, one in self.space.spans.items():
            value = point[name]
            if value == one.plain:
                continue
            if self.holds({**point, name: one.plain}):
                point = {**point, name: one.plain}
            elif one.axis.words or one.axis.real:
                plainer = [other for other in reversed(one.plainer(value)) if self.holds({**point, name: other})]
                point = {**point, name: (plainer or [value])[0]}
            else:
                point = {**point, name: self._least(point, name)}
        return point

    def _least(self, point: Point, name: str) -> int:
        """The least value, up to the point's, that fails, as far as edges show."""
        values = sorted(value for value in self.space.spans[name].values if value in EDGES or value < _FIRST)
        wrong, right = point[name], min(self.space.spans[name].values) - 1
        for value in values:
            if value >= wrong or self.holds({**point, name: value}):
                wrong = min(wrong, value)
                break
            right = value
        while wrong - right > 1:
            middle = (wrong + right) // 2
            if self.holds({**point, name: middle}):
                wrong = middle
            else:
                right = middle
        return int(wrong)
