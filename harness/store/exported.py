"""Baselines as pytest-benchmark stores them, so that `pytest-benchmark compare` and the actions that read its files can show them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.store.baselines import Baseline, Cell, Start, folder_of
from harness.store.files import write_whole

_FORMAT = "5.0.0"  # of pytest-benchmark, whose fields these are
_NUMBERED = re.compile(r"(\d{4,})_(.+)\.json")


def export(folder: Path, baselines: Iterable[Baseline]) -> list[Path]:
    """Writes `folder/DEVICE/NNNN_START.json` for every machine start, all families of a device in one file, oldest start first; a
    start that is there already keeps its number. The files written. Raises UsageError where one cannot be written."""
    devices: dict[str, list[Baseline]] = {}
    for baseline in baselines:
        devices.setdefault(folder_of(baseline.device), []).append(baseline)
    written = []
    for device, families in devices.items():
        starts: dict[str, Start] = {}
        for baseline in families:
            starts.update(baseline.starts)
        names = sorted(starts, key=lambda name: starts[name].at)  # within a day as they came
        for name, number in _numbers(folder / device, names).items():
            path = folder / device / f"{number:04d}_{_plain(name)}.json"
            write_whole(path, json.dumps(document(families, name, starts[name]), indent=4) + "\n")
            written.append(path)
    return written


def document(families: Sequence[Baseline], name: str, start: Start) -> dict[str, Any]:
    """One file of pytest-benchmark: the cells that have runs of a machine start. A round is a run's median, in seconds."""
    rows = {cell: one for baseline in families for cell, one in sorted(baseline.cells.items()) if name in one.runs}
    device = families[0].device
    return {
        "machine_info": {
            "node": folder_of(device),
            "machine": device.get("arch", ""),
            "cpu": {},
            "device": device,
            "driver": start.driver,
            "libraries": start.versions,
        },
        "commit_info": {"id": "unknown", "time": None, "dirty": False, "branch": "unknown", "project": "kernel-parity"},
        "benchmarks": [_benchmark(cell, one, one.runs[name]) for cell, one in rows.items()],
        "datetime": f"{start.at}T00:00:00+00:00" if start.at else "",
        "version": _FORMAT,
    }


def _benchmark(name: str, cell: Cell, runs: list[float]) -> dict[str, Any]:
    from pytest_benchmark import stats as library

    rules: Any = library  # it has no types
    stats = rules.Stats()
    for us in runs:
        stats.update(us / 1e6)
    return {
        "group": name.partition("[")[0],
        "name": name,
        "fullname": name,
        "params": None,
        "param": None,
        "extra_info": {"mode": cell.mode, "kernels": cell.kernels, "host_bound": cell.host},
        "options": {"disable_gc": False, "timer": "device events", "min_rounds": len(runs), "max_time": 0.0, "min_time": 0.0, "warmup": True},
        "stats": {**stats.as_dict(), "data": stats.data, "iterations": 1},
    }


def _numbers(folder: Path, names: list[str]) -> dict[str, int]:
    """A number for each start: its own where a file of it is there, else the next."""
    there = {match[2]: int(match[1]) for path in folder.glob("*.json") if (match := _NUMBERED.fullmatch(path.name))}
    last = max(there.values(), default=0)
    numbers = {}
    for name in names:
        last += _plain(name) not in there
        numbers[name] = there.get(_plain(name), last)
    return numbers


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name) or "start"
