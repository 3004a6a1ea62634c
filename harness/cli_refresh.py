"""The definition of `refresh`."""

from __future__ import annotations

import sys
from typing import Any

import click

from harness.cli_options import CASES, RESUMES, keeping


@click.command()
@click.option("--results", multiple=True, metavar="LOG", help="Take what run --timing wrote here, on any machine (default: run and time the preset).")
@click.option("--append", is_flag=True, help="Pool what is unchanged into the baseline's last machine starts (default: leave it alone).")
@click.option("--only", multiple=True, metavar="FAMILY|OP|CELL", help="Only these; controls is a family too (default: all that was timed).")
@click.option("--accept", multiple=True, metavar="CELL=REASON", help="Take this cell although it needs a reason; * is any text (default: none).")
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing (default: write).")
@click.option("--baselines", metavar="DIR", help="Folder of baselines (default: $KERNEL_PARITY_BASELINES, else baselines/ beside the package).")
@click.option("--start", default="", metavar="NAME", help="Name of the machine start of a log that does not say it (default: what it says).")
@click.option("--preset", default="baseline", show_default=True, help="What is run and timed without --results; its log is results-PRESET.jsonl.")
@click.option("--resume", is_flag=True, help="Keep the results already in that log and run what is left (default: start afresh).")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Runs over the list, each in a fresh process.")
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--cases", "cases_dir", metavar="DIR", help=f"Folder with presets, kernels.toml and ledger.toml {CASES}")
@click.option("--platform", help="cuda or rocm (default: what the device files show).")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every cell (default: a table of what changed).")
@keeping(RESUMES)
def refresh(**options: Any) -> None:
    """Make what was timed the baseline: new and confirmed faster cells by themselves; slower, renamed, gone and unclassified ones with a reason.

    Exit 1 where something was refused: a cell that needs a reason, or everything, because a cell is wrong or the device was noisy.
    """
    from harness.commands.refresh import refresh_baselines

    sys.exit(refresh_baselines(**options))
