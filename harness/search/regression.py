"""A failure as a row of cases/regressions/: one small case, run from then on by every provider that has the op."""

from __future__ import annotations

import json
from pathlib import Path

from harness.contracts import op
from harness.reasons import check_of
from harness.store.files import write_whole
from harness.store.results import Result

FILE = Path("regressions") / "found.toml"
# check -> class of the bug; else numerics
_CLASSES = {"support": "sampler", "distribution": "sampler", "resolve": "missing", "isolation": "crash"}


def row_of(result: Result) -> str:
    """The row of a finding, named by its cell; its link is for the reader to fill in."""
    axes = op(result.op).axes.by_name
    values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in result.values.items() if value != axes[name].default)
    check = check_of(result.status, result.reason, result.values)
    said = f"{result.provider}: {result.status}" + (f" ({result.reason})" if result.reason else "") + (f", inputs of seed {result.seed}" if result.seed else "")
    fields = {"id": result.cell, "link": "not reported yet", "kind": _CLASSES.get(check, "numerics"), "wrong": said, "right": "as the reference"}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[bug]]", *lines, f'check = ["{check}"]', f'case = [{{ op = "{result.op}", axes = {{ {values} }} }}]'])


def add(cases: Path, result: Result) -> None:
    """Appends a finding's row to the file of found cases, unless its cell is there. Raises UsageError where that cannot be written."""
    path, row = cases / FILE, row_of(result)
    text = path.read_text() if path.is_file() else "# Cases that `kernel-parity fuzz` found.\n"
    if row.splitlines()[1] not in text.splitlines():
        write_whole(path, f"{text}\n{row}\n")
