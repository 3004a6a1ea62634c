"""The command that tries versions of a library: `bisect`."""

from __future__ import annotations

import sys
from typing import Any

import click

from harness.cli_options import SEED, keeping


@click.command()
@click.argument("cell")
@click.option("--good", required=True, metavar="VERSION", help="A version with the wanted verdict (default: none; needed).")
@click.option("--bad", required=True, metavar="VERSION", help="A version with another one, newer or older (default: none; needed).")
@click.option("--package", metavar="NAME", help="Whose versions are tried, by its name on the index (default: the library of the cell's provider).")
@click.option(
    "--against",
    type=click.Choice(["status", "kernels", "time"]),
    default="status",
    show_default=True,
    help="What changed: status and reason, families of kernels, or time; the last two on a GPU.",
)
@click.option("--runs", type=click.IntRange(min=3), default=3, show_default=True, help="With --against time: runs of a version, each in a fresh process.")
@click.option("--index", metavar="URL", help="Package index (default: pip's, as it is configured).")
@click.option("--find-links", metavar="DIR", help="Only the wheels of this folder, no index (default: the index).")
@click.option("--fresh", is_flag=True, help="Run again what is kept in $KERNEL_PARITY_CACHE (default: go on from it; ~/.cache/kernel-parity).")
@click.option("--platform", help="cuda, rocm or cpu; cpu includes Triton's interpreter (default: what the device files show).")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@SEED
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: a line a version as it is tried, then the change).")
@keeping("what ran is kept, the same command goes on from it")
def bisect(**options: Any) -> None:
    """Find the version of a library at which CELL's verdict, kernels or time changed.

    Each version that is tried is installed into a folder of its own, without what it depends on; the rest of the environment stays.
    """
    from harness.commands.bisect import bisect_versions

    sys.exit(bisect_versions(**options))
