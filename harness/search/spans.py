"""The values a search tries on an axis. A value that matters more stands in the list more often: hypothesis draws each place
alike, and takes earlier places for simpler."""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from harness.contracts import Axis

_HIGH = 300  # of an axis that declares no bounds
_REALS = (0.0, 0.1, 0.5, 1.0, 2.0)
_EVERY = 320  # integers up to here are all tried, beyond it each is a twelfth greater than the last
_EDGE = 3  # how many times likelier an edge is than its neighbours
_SMALL = 5  # a size of 0 is likelier than one of n by (n + _SMALL) / _SMALL
EDGES = frozenset(
    {12, 24, 48, 96, 192}  # heads a rank, dimensions: no powers of two
    | {(1 << bit) + step for bit in range(1, 18) for step in (-1, 0, 1)}
    | {block * count + step for block in (16, 64, 128) for count in range(1, 6) for step in (-1, 0, 1)}
)


@dataclass(frozen=True)
class Span:
    """What is tried on an axis: `places`, the plainest first and then ascending, some more than once."""

    axis: Axis
    places: tuple[Any, ...]

    @property
    def plain(self) -> Any:
        """The simplest value: the default, else 1, else the least."""
        return self.places[0]

    @property
    def values(self) -> tuple[Any, ...]:
        """Each value once, the plainest first."""
        return tuple(dict.fromkeys(self.places))

    def plainer(self, value: Any) -> Sequence[Any]:
        """What is simpler than a value, the nearest first."""
        values = self.values
        if self.axis.words or self.axis.real:
            place = values.index(value) if value in values else len(values)
            return values[:place][::-1]
        rest = sorted(values[1:])
        return [] if value == self.plain else [*rest[: bisect.bisect_left(rest, value)][::-1], self.plain]

    def beyond(self, value: Any) -> Sequence[Any]:
        """What is less simple than a value, the nearest first; of integers the edges."""
        plainer = {value, *self.plainer(value)}
        others = [other for other in self.values if other not in plainer]
        return others if self.axis.words or self.axis.real else [other for other in others if other in EDGES]


def span(axis: Axis, only: Collection[Any] | tuple[int, int] | None = None) -> Span:
    """The span of an axis; `only`: a range (least, greatest) for integers, else the values themselves, instead of what the axis declares."""
    if axis.words:
        return Span(axis, _listed(axis, only or axis.words, inside=True))
    if axis.real:
        reals = axis.search or tuple(value for value in _REALS if axis.least is None or value >= axis.least)
        return Span(axis, _listed(axis, only or reals, inside=bool(only)))
    if isinstance(only, tuple):
        return Span(axis, _integers(axis, *only, inside=True))
    if only is not None:
        return Span(axis, _listed(axis, sorted(only), inside=True))
    low, high = axis.search or (-1 if axis.least is None else axis.least, _HIGH)
    return Span(axis, _integers(axis, int(low), int(max(low, high)), inside=False))


def _listed(axis: Axis, values: Collection[Any], *, inside: bool) -> tuple[Any, ...]:
    """The default as often as all others together; `inside`: only where it is among the values."""
    if axis.default is None or (inside and axis.default not in values):
        return tuple(values)
    others = [value for value in values if value != axis.default]
    return (axis.default,) * max(1, len(others)) + tuple(others)


def _integers(axis: Axis, low: int, high: int, *, inside: bool) -> tuple[int, ...]:
    """The plain value for a third, the rest ascending; `inside`: a default outside the bounds is left out."""
    numbers = list(range(low, min(high, _EVERY) + 1))
    beyond = max(low, _EVERY)
    while beyond < high:
        beyond += max(1, beyond // 12)
        numbers.append(min(beyond, high))
    numbers = sorted({*numbers, *(edge for edge in EDGES if low <= edge <= high)})
    default = axis.default if isinstance(axis.default, int) and (not inside or low <= axis.default <= high) else None
    plain = default if default is not None else min(max(low, 1), high)
    rest = [number for number in numbers if number != plain for _ in range(_weight(number, low))]
    return (plain,) * (max(1, len(rest) // 3) if default is not None else _weight(plain, low)) + tuple(rest)


def _weight(number: int, low: int) -> int:
    """How often a number stands in the list: about 1 / number, so that small sizes, which are cheap, are common."""
    return math.ceil(_HIGH / (abs(number - low) + _SMALL)) * (_EDGE if number in EDGES else 1)
