"""How a plan spells its cases: products, lines along one axis, and covering arrays over any three axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
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


def covering(strength: int, **lists: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """A covering array: every combination of values of any `strength` axes occurs in some of these choices of one value an axis."""
    from allpairspy import AllPairs

    for values in AllPairs([list(values) for values in lists.values()], n=min(strength, len(lists))):
        yield dict(zip(lists, values, strict=True))


def threewise(name: str, **lists: Sequence[Any]) -> Iterator[Point]:
    """A covering array of strength three; for axes of few values."""
    for values in covering(3, **lists):
        yield point(name, **values)


def pairwise(name: str, **lists: Sequence[Any]) -> Iterator[Point]:
    """A covering array of strength two; for long axes (heads, k, vocabularies), where strength three would take thousands."""
    for values in covering(2, **lists):
        yield point(name, **values)
