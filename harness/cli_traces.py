"""Commands that read what was recorded elsewhere; part of the command line."""

from __future__ import annotations

import sys
from typing import Any

import click


@click.command()
@click.argument("trace")
@click.option("--against", metavar="TRACE", help="Show both traces side by side, this one first (default: none).")
@click.option("--platform", help="cuda or rocm, where the trace does not say it (default: what the trace says).")
@click.option("--cases", "cases_dir", metavar="DIR", help="Folder with kernels.toml (default: $KERNEL_PARITY_CASES, else cases/ beside the package).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: tables).")
def observe(**options: Any) -> None:
    """Say which kernels a live server ran, from a profiler trace; no GPU is needed.

    TRACE is a chrome trace of torch's profiler, rocprofv3's JSON or kernel_trace.csv, or nsys' cuda_gpu_trace (CSV or JSON), plain or gzip.
    Exit 1 where generic kernels do what the platform has a fast family for.
    """
    from harness.commands.observe import read_trace

    sys.exit(read_trace(**options))
