"""How a plan spells its cases: products, lines along one axis, and covering arrays over any three axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from harness.contracts import op

Point = tuple[str, str]


def point(name: str, **values: Any) -> Point:
    """One case: (op, case id)."""
    return name, op(name).axes.case(**values).id


def product(name: str, **lists: Iterable[Any] | Any) -> Iterator[Point]:
    """Every combination; a value that is not a list or tuple stands for itself."""
    axes = {axis: values if isinstance(values, (list, tuple)) else (values,) for axis, values in lists.items()}
    for values in itertools.product(*axes.values()):
        yield point(name, **dict(zip(axes, values, strict=True)))


def line(name: str, axis: str, values: Iterable[Any], **base: Any) -> Iterator[Point]:
    """Neighbours along one axis at a fixed shape."""
    for value in values:
        yield point(name, **{**base, axis: value})


def threewise(name: str, **lists: list[Any] | tuple[Any, ...]) -> Iterator[Point]:
    """A covering array of strength three: every combination of values of any three axes occurs in some case."""
    from allpairspy import AllPairs

    axes = list(lists)
    for values in AllPairs([list(lists[axis]) for axis in axes], n=min(3, len(axes))):
        yield point(name, **dict(zip(axes, values, strict=True)))
