"""rocprofv3's JSON (`--kernel-trace --output-format json`): kernel symbols, and dispatches that name them by number."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from harness.served.traces.pieces import Broken, Pieces
from harness.served.traces.tally import Launch

MARK = b'"rocprofiler-sdk-tool"'
_SYMBOLS = re.compile(rb'"kernel_symbols"\s*:\s*\[')
_DISPATCHES = re.compile(rb'"kernel_dispatch"\s*:\s*\[')


class _Symbol(msgspec.Struct):
    kernel_id: int = -1
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class _Size(msgspec.Struct):
    x: int = 1
    y: int = 1
    z: int = 1


class _Info(msgspec.Struct):
    kernel_id: int
    grid_size: _Size = msgspec.field(default_factory=_Size)
    workgroup_size: _Size = msgspec.field(default_factory=_Size)


class _Dispatch(msgspec.Struct):
    start_timestamp: int
    end_timestamp: int
    dispatch_info: _Info


_symbol, _dispatch = msgspec.json.Decoder(_Symbol), msgspec.json.Decoder(_Dispatch)


def launches(pieces: Pieces) -> Iterator[Launch]:
    """The dispatches. The symbols stand before them in the file. Raises Broken for what does not read."""
    names: dict[int, str] = {}
    try:
        for text in pieces.objects(_SYMBOLS):
            symbol = _symbol.decode(text)
            names[symbol.kernel_id] = symbol.formatted_kernel_name or symbol.kernel_name.removesuffix(".kd")
        for text in pieces.objects(_DISPATCHES):
            one = _dispatch.decode(text)
            info = one.dispatch_info
            blocks = tuple(-(-grid // max(1, group)) for grid, group in zip(_xyz(info.grid_size), _xyz(info.workgroup_size), strict=True))
            yield Launch(names.get(info.kernel_id, f"kernel {info.kernel_id}"), (one.end_timestamp - one.start_timestamp) / 1000, blocks)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise Broken(f"a record does not read: {error}") from error


def _xyz(size: _Size) -> tuple[int, int, int]:
    return size.x, size.y, size.z
