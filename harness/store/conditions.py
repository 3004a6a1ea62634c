"""What a ledger entry asks of an axis: a value, one of a list of values, or comparisons of a number such as `>=33`, `<1` and `!2^n`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "!": operator.ne}
_TERM = re.compile(r"(<=|>=|<|>|!)(-?\d+(?:\.\d+)?)")
NO_POWER = "!2^n"  # no power of two


def holds(value: Any, wanted: Any) -> bool:
    """Whether an axis' value is what is wanted; of comparisons, separated by commas, all must hold."""
    if isinstance(wanted, str) and isinstance(value, (int, float)):
        return all(_holds(value, term.strip()) for term in wanted.split(","))
    return value in (wanted if isinstance(wanted, list) else [wanted])


def _holds(value: float, term: str) -> bool:
    if term == NO_POWER:
        return not (value >= 1 and float(value).is_integer() and int(value) & (int(value) - 1) == 0)
    match = _TERM.fullmatch(term)
    return match is not None and _COMPARISONS[match[1]](value, float(match[2]))


def mistake(wanted: Any) -> str | None:
    """What is wrong with a condition, or None."""
    if not isinstance(wanted, str) or wanted[:1] not in ("<", ">", "!"):
        return None
    strange = [term.strip() for term in wanted.split(",") if term.strip() != NO_POWER and not _TERM.fullmatch(term.strip())]
    return f"{strange[0]!r} is no comparison; write one such as >=33, <1, !5 or {NO_POWER}" if strange else None
