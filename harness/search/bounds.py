"""`--axis heads=1..64`: what of an axis a run searches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from harness.contracts import Axis, op
from harness.errors import UsageError

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def bounds_of(texts: Sequence[str], ops: Sequence[str]) -> dict[str, Any]:
    """axis -> (least, greatest), or the values themselves, of `AXIS=1..64` and `AXIS=a,b`.

    Raises UsageError for an axis that none of the ops has, one given twice, and values that an op's axis does not take.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        axes = {op_name: op(op_name).axes.by_name[name] for op_name in ops if name in op(op_name).axes.by_name}
        if not axes or not equals or not listed:
            known = sorted({axis for op_name in ops for axis in op(op_name).axes.by_name})
            raise UsageError(f"--axis {text!r} is not of the form AXIS=1..64 or AXIS=a,b for an axis of the chosen ops: {', '.join(known)}")
        if name in found:
            raise UsageError(f"--axis {name} is given twice; write its values in one: {name}=8,16,24")
        for op_name, axis in axes.items():
            found[name] = _values(op_name, axis, listed)
    return found


def _values(op_name: str, axis: Axis, listed: str) -> tuple[int, int] | list[Any]:
    where = f"axis {axis.name!r} of {op_name}"
    if axis.words:
        words = listed.split(",")
        if strange := [word for word in words if word not in axis.words]:
            raise UsageError(f"{where} is one of {', '.join(axis.words)}, not {strange[0]!r} (--op NAME chooses the ops)")
        return words
    match = _RANGE.fullmatch(listed)
    try:
        values = [float(part) if axis.real else int(part) for part in (match.groups() if match else listed.split(","))]
    except ValueError:
        raise UsageError(f"{where} takes numbers or a range such as 1..64, not {listed!r}") from None
    if axis.least is not None and min(values) < axis.least:
        raise UsageError(f"{where} is at least {axis.least:g}, not {min(values):g}")
    if match and (axis.real or values[0] > values[1]):
        raise UsageError(f"{where}: {listed} is no range" + (": list its values" if axis.real else f"; write {match[2]}..{match[1]}"))
    return (int(values[0]), int(values[1])) if match else values
