"""Chrome traces as torch's profiler (kineto: CUPTI or roctracer) writes them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec

from harness.served.traces.pieces import Broken, Pieces
from harness.served.traces.tally import Launch

START = re.compile(rb'"traceEvents"\s*:\s*\[|^\s*\[(?=\s*[\{\]])')
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})  # categories of what runs on the device
_OPERATORS = 100_000  # that may wait for their kernels


class _Event(msgspec.Struct):
    cat: str = ""
    name: str = ""
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Launched(msgspec.Struct):
    grid: tuple[int, ...] = ()
    external: int | None = msgspec.field(default=None, name="External id")


_event = msgspec.json.Decoder(_Event, strict=False)
_launched = msgspec.json.Decoder(_Launched, strict=False)


def launches(pieces: Pieces) -> Iterator[Launch]:
    """The device launches of a trace. Raises Broken for one that is cut off, or holds what no trace does."""
    waiting: OrderedDict[int, str] = OrderedDict()  # input shapes of operators by the id that their kernels name
    for number, text in enumerate(pieces.objects(START)):
        try:
            event = _event.decode(text)
            if event.cat == "cpu_op" and b"Input Dims" in bytes(event.args):
                _wait(waiting, msgspec.json.decode(event.args))
            elif event.cat in _DEVICE:
                told = _launched.decode(event.args)
                yield Launch(event.name, event.dur, told.grid, waiting.get(told.external, "") if told.external is not None else "")
        except (msgspec.MsgspecError, AttributeError, TypeError, UnicodeDecodeError) as error:
            raise Broken(f"event {number} does not read: {error}") from error


def _wait(waiting: OrderedDict[int, str], told: dict[str, Any]) -> None:
    number, dims = told.get("External id"), told.get("Input Dims") or []
    if number is not None and any(dims):
        waiting[number] = " ".join("x".join(map(str, one)) for one in dims if one and isinstance(one, list))
        if len(waiting) > _OPERATORS:
            waiting.popitem(last=False)
