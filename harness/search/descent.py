"""The smallest case that fails alike, axis by axis: for failures that cost a process or a time limit each, and to finish what
hypothesis has made small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts import Case
from harness.search.space import Point, Space

Fails = Callable[[Case], bool]


def smallest(space: Space, case: Case, fails: Fails) -> Case:
    """The case with every axis as plain as it can be while `fails` holds, by bisection; `case` itself where nothing plainer fails.

    Takes failures along an axis as one run of values: from where it begins on, all fail. Where they are scattered the result still fails,
    but may not be the smallest. What hits are dear comes last: everything plain, then one axis at a time, pass quickly where one axis is to blame.
    """
    descent = _Descent(space, fails)
    point = dict(case.point)
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
                point = {**point, name: self._bisected(point, name, min(one.values))}
        return point

    def _bisected(self, point: Point, name: str, low: int) -> int:
        """The least value, if that fails; else one up to the point's that fails where the one below it passes."""
        wrong, right = point[name], low
        if wrong == low or self.holds({**point, name: low}):
            return low
        while wrong - right > 1:
            middle = (wrong + right) // 2
            if self.holds({**point, name: middle}):
                wrong = middle
            else:
                right = middle
        return int(wrong)
