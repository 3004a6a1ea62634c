"""A failure as a row of cases/regressions/: one small case, run from then on by every provider that has the op."""

from __future__ import annotations

import json
from pathlib import Path

from harness.contracts import op
from harness.providers import Provider
from harness.store.results import Result, write_whole

FILE = Path("regressions") / "found.toml"


def row_of(provider: Provider, result: Result) -> str:
    """The row of a finding: its op, the axes away from their defaults, and what was wrong. Link and name are for the reader to fill in."""
    axes = op(provider.op).axes.by_name
    values = {name: value for name, value in result.values.items() if value != axes[name].default}
    what = f"{provider.name}: {result.status}" + (f" ({result.reason})" if result.reason else "") + (f", inputs of seed {result.seed}" if result.seed else "")
    at = ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    return f'[[regression]]\nop = "{provider.op}"\nat = {{ {at} }}\nbug = ""\nlink = ""\nwhat = {json.dumps(what)}'


def add(cases: Path, row: str) -> None:
    """Appends a row to the file of found cases, unless it is there. Raises UsageError where that cannot be written."""
    path = cases / FILE
    text = path.read_text() if path.is_file() else "# Cases that `kernel-parity fuzz` found.\n"
    if row not in text:
        write_whole(path, f"{text}\n{row}\n")
