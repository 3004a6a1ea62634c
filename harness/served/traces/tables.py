"""Tables: rocprofv3's kernel trace (CSV) and nsys' `cuda_gpu_trace` (CSV, and JSON rows with the same columns)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping

import msgspec

from harness.served.traces.pieces import Broken, Pieces
from harness.served.traces.tally import Launch

ROCPROF = ("Kernel_Name", "Start_Timestamp", "End_Timestamp")
NSYS = ("Name", "Duration (ns)")
ROWS = re.compile(rb"^\s*\[(?=\s*\{\s*\"Start \(ns\)\")")
_PREAMBLE = 40  # lines that nsys may print before the table


def launches(pieces: Pieces) -> Iterator[Launch]:
    """The rows of a CSV table. Raises Broken where there is no header of either, or a row does not fit it."""
    rows = csv.reader(_lines(pieces))
    try:
        header = next((row for _, row in zip(range(_PREAMBLE), rows, strict=False) if _known(row)), None)
        if header is None:
            raise Broken("no table of kernels: the columns are those of neither rocprofv3's kernel trace nor nsys' cuda_gpu_trace")
        for row in rows:
            if row:
                if len(row) != len(header):
                    raise Broken(f"line {rows.line_num} has {len(row)} fields, the header {len(header)}")
                yield _launch(dict(zip(header, row, strict=True)), rows.line_num)
    except csv.Error as error:
        raise Broken(f"line {rows.line_num} is no CSV: {error}") from error


def rows(pieces: Pieces) -> Iterator[Launch]:
    """nsys' rows in JSON."""
    for number, text in enumerate(pieces.objects(ROWS), 1):
        try:
            row = msgspec.json.decode(text, type=dict[str, str | int | float | None], strict=False)
        except msgspec.MsgspecError as error:
            raise Broken(f"row {number} does not read: {error}") from error
        yield _launch({key: "" if value is None else str(value) for key, value in row.items()}, number)


def _known(row: list[str]) -> bool:
    return set(ROCPROF) <= set(row) or set(NSYS) <= set(row)


def _launch(row: Mapping[str, str], line: int) -> Launch:
    try:
        if "Kernel_Name" in row:
            grid = tuple(-(-int(row[f"Grid_Size_{axis}"]) // max(1, int(row[f"Workgroup_Size_{axis}"]))) for axis in "XYZ" if f"Grid_Size_{axis}" in row)
            return Launch(row["Kernel_Name"], (int(row["End_Timestamp"]) - int(row["Start_Timestamp"])) / 1000, grid)
        grid = tuple(int(float(row[name])) for name in ("GrdX", "GrdY", "GrdZ") if row.get(name))
        return Launch(row["Name"], float(row["Duration (ns)"]) / 1000, grid)
    except (KeyError, ValueError, OverflowError) as error:
        raise Broken(f"line {line}: {type(error).__name__}: {error}") from error


def _lines(pieces: Pieces) -> Iterator[str]:
    rest = b""
    while part := pieces.more():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace") + "\n"
    if rest:
        yield rest.decode("utf-8", "replace")
