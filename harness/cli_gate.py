"""The command that a night ends with: `gate`."""

from __future__ import annotations

import sys
from typing import Any

import click

from harness.cli_options import RESUMES, SEED, keeping, selecting


@click.command()
@selecting
@click.option("--cell", "cells", multiple=True, help="Only this cell, by its id (default: those selected).")
@click.option("--baselines", metavar="DIR", help="Folder of baselines (default: $KERNEL_PARITY_BASELINES, else baselines/ beside the package).")
@click.option("--time-all", is_flag=True, help="Time what has no baseline too, on a device that has some (default: where it has none at all).")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Timed runs; what is new, doubtful or slow gets three.")
@click.option("--power", type=click.IntRange(min=1), default=3, show_default=True, help="Cells on which the gate tries itself, of each kind.")
@click.option("--results", default="results.jsonl", show_default=True, help="Result lines are written here as they come; started afresh unless --resume.")
@click.option("--resume", is_flag=True, help="Keep the results already in --results and go on (default: start afresh).")
@click.option("--summary", metavar="FILE", help="Write a page of markdown there; $GITHUB_STEP_SUMMARY gets it too, where set (default: none).")
@click.option("--junitxml", metavar="FILE", help="Write JUnit XML there (default: none).")
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes (default: one a device; on a CPU one a core).")
@SEED
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--show", type=click.IntRange(min=0), default=20, show_default=True, help="How many wrong cells are explained in full.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON a cell instead of the tables (default: the tables).")
@keeping(RESUMES)
def gate(**options: Any) -> None:
    """Hold a machine against its baselines: parity, the ledger, times and kernels in one verdict.

    Exit 1 where a cell is wrong, slower, on other and slower kernels, gone, or where the gate does not see what it does to itself.
    """
    from harness.commands.gate import hold

    sys.exit(hold(**options))
