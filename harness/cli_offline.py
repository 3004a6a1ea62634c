"""The commands that say what can be known without the device: `codegen`, `routes`, `symbols`, `observe`, `power`, `export`."""

from __future__ import annotations

import sys
from typing import Any

import click


@click.command()
@click.option("--target", "targets", multiple=True, metavar="NAME[,NAME]", help="Only these targets of cases/targets.toml (default: all).")
@click.option("--sglang", default="sglang", show_default=True, metavar="SPEC", help="Whose kernels: installed, sglang==VERSION from the index, or a path.")
@click.option("--preset", type=click.Choice(["pr", "nightly"]), default="nightly", show_default=True, help="Frozen list of cells: all, or CI's part.")
@click.option("--op", "ops", multiple=True, metavar="OP[,OP]", help="Only these ops (default: all of the list).")
@click.option("--cell", "cells", multiple=True, help="Only this cell, by its id; it need not be in the list (default: the list).")
@click.option("--kernel", "kernels", multiple=True, metavar="NAME[,NAME]", help="Show the figures of kernels with these names (default: none).")
@click.option("--rows", is_flag=True, help="Show the figures of every kernel (default: findings and a line a target).")
@click.option(
    "--cases",
    "cases_dir",
    metavar="DIR",
    help="Folder with codegen/, targets.toml and ledger.toml (default: $KERNEL_PARITY_CASES, else cases/ beside the package).",
)
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--baselines", metavar="DIR", help="Folder of the accepted figures, or 'none' (default: baselines/ beside the cases folder).")
@click.option("--refresh", is_flag=True, help="Take these figures into the baselines, except what is worse (default: compare only).")
@click.option("--accept", multiple=True, metavar="CELL=REASON", help="With --refresh: take this cell although it is worse (default: none).")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True, help="Seconds a cell may take.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes at once (default: one a core).")
@click.option("--fresh", is_flag=True, help="Compile again, not from what is kept in $KERNEL_PARITY_CACHE (default: use it; ~/.cache/kernel-parity).")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: text).")
def codegen(**options: Any) -> None:
    """Compile SGLang's Triton kernels for GPUs that are not here: spills, registers, shared memory, matrix instructions."""
    from harness.commands.codegen import compile_cells

    sys.exit(compile_cells(**options))


@click.command()
@click.argument("spec", default="sglang")
@click.option("--model", "models", multiple=True, metavar="NAME[,NAME]", help="Only these of models.toml, every row shown (default: all).")
@click.option("--tp", "tps", multiple=True, type=click.IntRange(min=1), metavar="N", help="Only this TP (default: 1, 2, 4, 8, 16 where it divides the heads).")
@click.option("--target", "targets", multiple=True, metavar="NAME[,NAME]", help="Only these targets of cases/targets.toml (default: all).")
@click.option("--diff", metavar="SPEC", help="Show what changed between this version and SPEC's instead (default: SPEC's routes).")
@click.option("--aiter", metavar="PATH", help="Hold SGLang's copied head tables against this AITER source tree (default: the facts kept of two commits).")
@click.option("--all", "every", is_flag=True, help="Show the rows on the fast path and every head count too (default: a line a target).")
@click.option(
    "--cases",
    "cases_dir",
    metavar="DIR",
    help="Folder with models.toml, targets.toml and routes.toml (default: $KERNEL_PARITY_CASES, else cases/ beside the package).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: tables).")
def routes(**options: Any) -> None:
    """Say which attention and sampling path SGLang takes on a GPU that is not here, and what sent it away from the fast one.

    SPEC is sglang (installed), sglang==VERSION (read from the package index, not installed) or a path.
    """
    from harness.commands.routes import route

    sys.exit(route(**options))


@click.command()
@click.argument("spec", default="sglang")
@click.option(
    "--platform", "platforms", multiple=True, metavar="NAME[,NAME]", help="Platforms or scenarios of scenarios.toml (default: hip, AITER off and on)."
)
@click.option("--diff", metavar="SPEC", help="Show which hits came and went since SPEC; exit 1 where one came (default: judge against the accepted hits).")
@click.option("--all", "everything", is_flag=True, help="The whole package (default: sampling, speculative decoding, grammars, attention and their kernels).")
@click.option("--ledger", help="File of accepted hits, or 'none' (default: symbols/accepted.toml of the cases folder).")
@click.option("--fresh", is_flag=True, help="Scan again (default: use what is kept in $KERNEL_PARITY_CACHE, else ~/.cache/kernel-parity).")
@click.option("--cases", "cases_dir", metavar="DIR", help="Folder with symbols/ (default: $KERNEL_PARITY_CASES, else cases/ beside the package).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: text).")
def symbols(**options: Any) -> None:
    """Find names that ROCm leaves unbound or None and CUDA does not, in the sources of SGLang or AITER; nothing is imported or run.

    SPEC is sglang (installed), sglang==VERSION (read from the package index, not installed) or a path. Exit 1 where a hit is new or gone;
    with --diff, where one came.
    """
    from harness.commands.symbols import scan

    sys.exit(scan(**options))


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


@click.command()
@click.argument("traces", metavar="TRACES.npz")
@click.option("--draws", type=click.IntRange(min=1), default=2000, show_default=True, help="Replays: how often baseline and new runs are drawn.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print rates, counts and bounds as JSON (default: tables).")
def power(**options: Any) -> None:
    """Replay the rule that says `slow` on recorded runs: how often it is wrong, and which slow-down it finds, beside the rules of others.

    TRACES.npz has an array [runs, samples] in milliseconds for each cell and mode, every row one fresh process; its key is
    OP-LIBRARY-SHAPE|graph or |eager, and begins with control- for a control kernel.
    """
    from harness.commands.power import replay_traces

    replay_traces(**options)


@click.command()
@click.option(
    "--pytest-benchmark", "into", metavar="DIR", required=True, help="Write pytest-benchmark's format and storage layout here (default: none; needed)."
)
@click.option("--baselines", metavar="DIR", help="Folder of baselines (default: $KERNEL_PARITY_BASELINES, else baselines/ beside the package).")
def export(**options: Any) -> None:
    """Write the baselines so that `pytest-benchmark compare --storage file://DIR` and the CI actions that read its files can show them.

    DIR/DEVICE/NNNN_START.json is one machine start; a round is the median of one run.
    """
    from harness.commands.export import export_baselines

    export_baselines(**options)
