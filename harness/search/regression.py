"""A failure as a row of cases/regressions/: one small case, run from then on by every provider that has the op."""

from __future__ import annotations

import json
from pathlib import Path

from harness.contracts import op
from harness.store.results import Result, write_whole

FILE = Path("regressions") / "found.toml"
# reason of a mismatch, or status -> class of the bug and what catches it; else numerics, by the reason's own check
_CLASSES = {
    "numerics": ("numerics", "tolerance"),
    "unwritten": ("numerics", "tolerance"),
    "support": ("sampler", "support"),
    "distribution": ("sampler", "distribution"),
    "silently-greedy": ("sampler", "distribution"),
    "ignored-flag": ("sampler", "distribution"),
    "reused-random": ("sampler", "distribution"),
    "missing": ("missing", "resolve"),
    "crash": ("crash", "isolation"),
    "hang": ("crash", "isolation"),
    "out-of-memory": ("crash", "isolation"),
    "build-failed": ("crash", "isolation"),
}


def row_of(result: Result) -> str:
    """The row of a finding, named by its cell; its link is for the reader to fill in."""
    axes = op(result.op).axes.by_name
    values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in result.values.items() if value != axes[name].default)
    kind, check = _CLASSES.get(result.reason) or _CLASSES.get(result.status) or ("numerics", result.reason or result.status)
    said = f"{result.provider}: {result.status}" + (f" ({result.reason})" if result.reason else "") + (f", inputs of seed {result.seed}" if result.seed else "")
    fields = {"id": result.cell, "link": "not reported yet", "kind": kind, "wrong": said, "right": "as the reference"}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[bug]]", *lines, f'check = ["{check}"]', f'case = [{{ op = "{result.op}", axes = {{ {values} }} }}]'])


def add(cases: Path, result: Result) -> None:
    """Appends a finding's row to the file of found cases, unless its cell is there. Raises UsageError where that cannot be written."""
    path, row = cases / FILE, row_of(result)
    text = path.read_text() if path.is_file() else "# Cases that `kernel-parity fuzz` found.\n"
    if row.splitlines()[1] not in text.splitlines():
        write_whole(path, f"{text}\n{row}\n")
