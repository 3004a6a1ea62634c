"""`kernel-parity export`: baselines for other tools."""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.commands.probe import BASELINES
from harness.errors import UsageError
from harness.store import baselines as stored
from harness.store import exported


def export_baselines(*, into: str, baselines: str | None) -> None:
    """Writes the files and prints their names."""
    folder = Path(baselines or os.environ.get("KERNEL_PARITY_BASELINES") or BASELINES)
    found = [one for path in sorted(folder.glob("*/*.json")) if (one := stored.load(path, None)) is not None]
    if not found:
        raise UsageError(f"{folder} has no baselines of times (DEVICE/FAMILY.json); refresh on a device first, or give another folder with --baselines")
    written = exported.export(Path(into), found)
    click.echo("\n".join(str(path) for path in written))
