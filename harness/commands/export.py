"""`kernel-parity export`: baselines for other tools."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.option(
    "--pytest-benchmark", "into", metavar="DIR", required=True, help="Write pytest-benchmark's format and storage layout here (default: none; needed)."
)
@click.option("--baselines", metavar="DIR", help="Folder of baselines (default: $KERNEL_PARITY_BASELINES, else baselines/ beside the package).")
def export(**options: Any) -> None:
    """Write the baselines so that `pytest-benchmark compare --storage file://DIR` and the CI actions that read its files can show them.

    DIR/DEVICE/NNNN_START.json is one machine start; a round is the median of one run.
    """
    import os
    from pathlib import Path

    from harness.commands.probe import BASELINES
    from harness.errors import UsageError
    from harness.store import baselines, exported

    folder = Path(options["baselines"] or os.environ.get("KERNEL_PARITY_BASELINES") or BASELINES)
    found = [one for path in sorted(folder.glob("*/*.json")) if (one := baselines.load(path, None)) is not None]
    if not found:
        raise UsageError(f"{folder} has no baselines of times (DEVICE/FAMILY.json); refresh on a device first, or give another folder with --baselines")
    written = exported.export(Path(options["into"]), found)
    click.echo("\n".join(str(path) for path in written))
