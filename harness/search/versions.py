"""The search for the place in a list of versions at which something changed; versions that cannot be tried are passed over."""

from __future__ import annotations

from collections.abc import Callable


def first_change(count: int, ask: Callable[[int], bool | None]) -> tuple[int, int]:
    """Places `(last, first)` of `count` versions, of which the first is known to be as it was and the last to be changed: `last` is as it
    was, `first` has changed, and none between them can be tried.

    `ask` says of a place whether it has changed, or None where it cannot be tried; it is asked once a place at most, always the one
    nearest to the middle of what is left.
    """
    last, first = 0, count - 1
    untestable: set[int] = set()
    while left := [place for place in range(last + 1, first) if place not in untestable]:
        place = min(left, key=lambda one: abs(2 * one - last - first))
        changed = ask(place)
        if changed is None:
            untestable.add(place)
        elif changed:
            first = place
        else:
            last = place
    return last, first
