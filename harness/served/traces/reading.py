"""Opens a trace, plain or gzip, and finds out by its first bytes which format it is."""

from __future__ import annotations

import codecs
import gzip
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harness.errors import UsageError
from harness.served.traces import chrome, rocprof, tables
from harness.served.traces.pieces import Broken, Pieces
from harness.served.traces.tally import Launch, Tally

FORMATS = "a chrome trace of torch's profiler, rocprofv3's JSON or kernel_trace.csv, or nsys' cuda_gpu_trace (CSV or JSON), plain or gzip"
_LOOK = 1 << 16
_AMD = re.compile(rb'"name"\s*:\s*"AMD|gfx\d{3}|"hip_|roctracer', re.IGNORECASE)
_NVIDIA = re.compile(rb'NVIDIA|"computeMajor"|"cuda_', re.IGNORECASE)


def launches(path: Path, into: Tally) -> Iterator[Launch]:
    """The device launches of a trace; sets the platform of `into` by what the trace says. Raises UsageError, one line, for a file that
    cannot be read, is of no format, is cut off, or holds no launch."""
    number = 0
    try:
        with path.open("rb") as file, _plain(file) as stream:
            first = _first(stream)
            into.platform = "rocm" if _AMD.search(first) or b"Kernel_Name" in first else "cuda" if _NVIDIA.search(first) else ""
            for launch in _reader(first, Pieces(first, stream.read)):
                if not (math.isfinite(launch.us) and launch.us >= 0):
                    raise Broken(f"{launch.name[:80]!r} takes {launch.us} us")
                number += 1
                yield launch
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except Broken as error:
        raise UsageError(f"{path} is broken or no trace: {error}; {number} launches were read before that; record it again") from error
    except RecursionError as error:
        raise UsageError(f"{path} is no trace: values are nested deeper than any profiler nests them") from error
    if not number:
        raise UsageError(f"{path} holds no launch on a device; record it with the profiler's device activities on")


def _plain(file: io.BufferedReader) -> IO[bytes]:
    """A peek and no seek: a pipe is read too."""
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == b"\x1f\x8b" else file  # type: ignore[return-value]  # a reader of bytes


def _first(stream: IO[bytes]) -> bytes:
    try:
        return stream.read(_LOOK).removeprefix(codecs.BOM_UTF8)
    except Exception as error:  # gzip raises what zlib raises
        raise Broken(f"it does not decompress: {error}") from error


def _reader(first: bytes, pieces: Pieces) -> Iterator[Launch]:
    text = first.lstrip()
    if not text:
        raise Broken("it is empty")
    if tables.ROWS.search(first):
        return tables.rows(pieces)
    if text[:1] in b"{[":
        return rocprof.launches(pieces) if rocprof.MARK in first else chrome.launches(pieces)
    if b"\0" in first:
        raise Broken(f"it is no text; {FORMATS} is read")
    return tables.launches(pieces)
