"""Baselines: the accepted times and kernels of a device, a file an op family, small enough to be reviewed like code."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.speed.names import family as kernel_family
from harness.store.files import TEMPORARY, write_whole
from harness.store.results import Result
from harness.store.timing import HOST_BOUND, MODES, Timing

SCHEMA = 1
_KEY = ("arch", "memory_mib", "compute_partition", "memory_partition", "power_cap_w")  # the last three: AMD
_REMEDY = "take it from version control again, or remove it and refresh"


class Start(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A machine start: one boot or lease of a device. `at`: its day; `driver` and `versions` of the libraries that ran there."""

    at: str = ""
    driver: str = ""
    versions: dict[str, str] = {}


class Cell(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What is accepted of a cell.

    mode      `graph` or `eager`
    runs      run medians in microseconds by machine start, oldest start first
    accepted  the median of the runs that were first taken or last accepted: later starts that are pooled do not move it
    kernels   families of the kernels that ran, in order, each once
    host      whether the runs timed the host
    beside    what the control took between this cell's samples, in microseconds, the median over the runs; 0: not known
    """

    mode: str
    runs: dict[str, list[float]]
    accepted: float
    kernels: list[str] = []
    host: bool = False
    beside: float = 0.0


class Accepted(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A change for the worse that a person took: `what` is slower, renamed or gone; `was` and `now` as the file then had it."""

    cell: str
    what: str
    reason: str
    was: str
    now: str = ""
    at: str = ""


class Baseline(msgspec.Struct, forbid_unknown_fields=True):
    """One file: an op family on one device."""

    family: str
    device: dict[str, str]
    starts: dict[str, Start] = {}
    cells: dict[str, Cell] = {}
    accepted: list[Accepted] = []
    schema: int = SCHEMA


def device_key(facts: Mapping[str, str]) -> dict[str, str]:
    """What of a device's facts its times depend on: name, architecture, memory and, on AMD, partition modes and power cap."""
    return {name: facts[name] for name in ("name", *_KEY) if facts.get(name)}


def folder_of(facts: Mapping[str, str]) -> str:
    """The key as a folder: `nvidia-h200-sm-90-143771mib`, `amd-instinct-mi300x-gfx942-196592mib-spx-nps1-750w`."""
    units = {"memory_mib": "mib", "power_cap_w": "w"}
    parts = [value + units.get(name, "") for name, value in device_key(facts).items()]
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-") or "unknown"


def place_of(folder: Path, facts: Mapping[str, str], family: str) -> Path:
    """Where the baseline of a family on a device lies."""
    return folder / folder_of(facts) / f"{family}.json"


def measured(result: Result) -> Cell | None:
    """What a result says of its cell, before it has a machine start (its runs under ""), or None without times of one mode."""
    timings = result.timings
    if not timings or len({timing.mode for timing in timings}) != 1:
        return None
    runs = [rounded(timing.median) for timing in timings]
    host = median(timing.host_bound for timing in timings) >= HOST_BOUND
    return Cell(timings[0].mode, {"": runs}, rounded(median(runs)), _kernels(timings), host, beside(timings))


def beside(timings: Sequence[Timing]) -> float:
    """What the control took between the cell's samples: the median over the runs, in microseconds; 0 without a control."""
    return rounded(median(timing.control_us for timing in timings))


def _kernels(timings: Sequence[Timing]) -> list[str]:
    return list(dict.fromkeys(kernel_family(kernel.name) for timing in timings for kernel in timing.kernels))


def rounded(us: float) -> float:
    """Microseconds to the six digits that a file keeps."""
    return float(f"{us:.6g}")


def load(path: Path, facts: Mapping[str, str] | None) -> Baseline | None:
    """The baseline of this path, or None where there is none: every cell is then `new`. `facts`: of the device at hand, whose baseline
    it must be; None: of the device that its folder names.

    Raises UsageError for a file that cannot be read, is cut short or no baseline, or is of another device or family than its place.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read the baseline {path}: {error.strerror}; make it readable, or {_REMEDY}") from error
    try:
        found = msgspec.json.decode(data, type=Baseline)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no baseline ({' '.join(str(error).split())}); {_REMEDY}") from error
    if wrong := _mistake(found, path, facts):
        raise UsageError(f"{path}: {wrong}; {_REMEDY}")
    return found


def _mistake(found: Baseline, path: Path, facts: Mapping[str, str] | None) -> str:
    """What is wrong with a file that reads as a baseline, or an empty string."""
    if found.schema != SCHEMA:
        return f"schema {found.schema}, and this version reads {SCHEMA}"
    if facts is None and folder_of(found.device) != path.parent.name:
        return f"is of another device ({_device(found.device)}) than its folder"
    if facts is not None and found.device != device_key(facts):
        return f"is of another device ({_device(found.device)}) than this one ({_device(device_key(facts))})"
    if found.family != path.stem:
        return f"is of the family {found.family}, not {path.stem}"
    for name, cell in found.cells.items():
        times = [cell.accepted, *(us for runs in cell.runs.values() for us in runs)]
        if cell.mode not in MODES or len(times) < 2 or not all(cell.runs.values()):
            return f"{name} has no runs or an unknown mode {cell.mode!r}"
        if not all(math.isfinite(us) and us > 0 for us in times):
            return f"{name} has a time that is none"
        if strange := cell.runs.keys() - found.starts.keys():
            return f"{name} has runs of the machine start {min(strange)!r}, which is not described"
    return ""


def _device(key: Mapping[str, str]) -> str:
    return ", ".join(key.values()) or "unknown"


def text(baseline: Baseline) -> str:
    """The file's text: sorted, a cell, a machine start and an accepted change a line; starts no cell has runs of are left out."""
    used = {name for cell in baseline.cells.values() for name in cell.runs}
    plain = msgspec.to_builtins(baseline)
    plain["starts"] = {name: start for name, start in plain["starts"].items() if name in used}
    order = {name: place for place, name in enumerate(plain["starts"])}
    for cell in plain["cells"].values():
        cell["runs"] = dict(sorted(cell["runs"].items(), key=lambda pair: order[pair[0]]))
    lines = [f" {_json(key)}: {_lines(plain[key])}" for key in sorted(plain)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, dict) and any(isinstance(one, dict) for one in value.values()):
        return "{\n" + ",\n".join(f"  {_json(name)}: {_json(one)}" for name, one in _in_order(value)) + "\n }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"  {_json(one)}" for one in value) + "\n ]"
    return _json(value)


def _in_order(value: dict[str, Any]) -> list[tuple[str, Any]]:
    """Cells by name; machine starts as they came, because the oldest are dropped first."""
    return list(value.items()) if all("mode" not in one for one in value.values()) else sorted(value.items())


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def save(path: Path, baseline: Baseline) -> None:
    """Writes a baseline whole or not at all. Raises as `files.write_whole`."""
    write_whole(path, text(baseline))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds a device's folder of baselines from reading to writing, and clears what a refresh that was killed left there. Raises UsageError
    while another refresh holds it; the lock ends with the process, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".refresh.lock", "ab")
    except OSError as error:
        raise UsageError(f"cannot write baselines to {folder}: {error.strerror}; give a writable folder") from error
    with file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another refresh is writing to {folder}; wait for it") from error
        for left in folder.glob(TEMPORARY):
            left.unlink(missing_ok=True)
        yield
