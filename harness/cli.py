"""The command line: thin. Every command imports what it needs when it runs, so that --help is quick. A further room's commands go in a
module of their own, as `cli_offline` has them."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import click

from harness import __version__
from harness.cli_gate import gate
from harness.cli_offline import codegen, export, observe, power, routes, symbols
from harness.cli_options import CASES, RESUMES, SEED, keeping, selecting
from harness.cli_refresh import refresh
from harness.cli_served import served
from harness.cli_story import story
from harness.cli_versions import bisect


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
def cli() -> None:
    """Differential tests and fallback detection for the sampling and attention ops of LLM serving.

    Exit codes: 0 all as expected; 1 a finding; 2 bad usage or configuration; 3 the harness could not do its work.
    """


@cli.command()
@selecting
@click.option("--cell", "cells", multiple=True, help="Only this cell, by its id (default: those selected).")
@click.option("--results", default="results.jsonl", show_default=True, help="Result lines are written here as they come; started afresh unless --resume.")
@click.option("--resume", is_flag=True, help="Keep the results already in --results and run what is left (default: start afresh).")
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes (default: one a device; on a CPU one a core).")
@SEED
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--show", type=click.IntRange(min=0), default=20, show_default=True, help="How many findings are explained in full.")
@click.option("--json", "as_json", is_flag=True, help="Print result lines with their verdict instead of the table (default: the table).")
@click.option("--show-power", is_flag=True, help="Print the smallest error and, of draws, the smallest bias that would show (default: off).")
@click.option("--timing", is_flag=True, help="Then time on the device what is right, and print the times (default: off).")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="With --timing: runs over the list, each in a fresh process.")
@click.option("--profile-harness", is_flag=True, help="Print where the time went, by share (default: off).")
@keeping(RESUMES)
def run(**options: Any) -> None:
    """Run cells and print the table; exit 1 when there is a finding."""
    from harness.commands.run import run_cells

    sys.exit(run_cells(**options))


@cli.command("list")
@click.argument("what", type=click.Choice(["ops", "providers", "models", "cases", "presets"]))
@selecting
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: a table).")
def list_things(what: str, **options: Any) -> None:
    """List ops (one in full with --op), providers, models, presets or cells."""
    from harness.commands.listing import list_them

    list_them(what, **options)


@cli.command()
@click.option("--platform", help="cuda, rocm or cpu (default: what the device files show).")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: tables).")
def doctor(**options: Any) -> None:
    """Say what this machine has and which providers work here."""
    from harness.commands.doctor import examine

    sys.exit(examine(**options))


@cli.command()
@click.argument("cell")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@click.option("--platform", help="cuda, rocm or cpu (default: what the device files show).")
@SEED
@click.option("-o", "--output", help="Write the script here (default: print it).")
def repro(**options: Any) -> None:
    """Write a script that shows CELL's failure by itself."""
    from harness.commands.repro import write_script

    write_script(**options)


@cli.command()
@click.argument("target", metavar="PROVIDER.OP")
@click.option(
    "--axis", "axes", multiple=True, required=True, metavar="AXIS=VALUES", help="Values to try: heads=1..128, heads=8,12,16..24 (default: none; needed)."
)
@click.option("--case", help="The case whose axes are varied (default: that of the baseline, else the cheapest of the presets).")
@click.option("--accept", is_flag=True, help="Write the map as the new baseline (default: only compare).")
@click.option("--refresh", is_flag=True, help="Write what is no worse than the baseline; what got worse is still reported (default: only compare).")
@click.option("--baselines", metavar="DIR", help="Folder of baselines (default: $KERNEL_PARITY_BASELINES, else baselines/ beside the package).")
@click.option("--platform", help="cuda, rocm or cpu (default: what the device files show).")
@click.option("--cases", "cases_dir", metavar="DIR", help=f"Folder with presets {CASES}")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@click.option("--workers", type=click.IntRange(min=1), help="Processes at a time (default: one a device; on a CPU one a core).")
@SEED
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds a value may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: a table).")
def probe(**options: Any) -> None:
    """Try each value of an axis on PROVIDER.OP (or LIBRARY.OP), every one in a process of its own, and compare with the accepted map.

    Exit 1 where a value ends otherwise than the baseline says.
    """
    from harness.commands.probe import probe_axes

    sys.exit(probe_axes(**options))


@cli.command()
@click.option("--preset", type=click.Choice(["full", "ci"]), default="full", show_default=True, help="How much: full (minutes), or CI's part of it.")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Plant the faults that this declares too (default: the shelf's).")
@click.option("--check", "checks", multiple=True, metavar="NAME[,NAME]", help="Only the faults of these checks (default: all).")
@click.option("--fault", "faults", multiple=True, metavar="NAME[,NAME]", help="Only these faults, by the name of their provider (default: all).")
@click.option("--clean", type=click.IntRange(min=0), help="Clean cells that must pass (default: 1000; ci 150).")
@click.option("--mutants", type=click.IntRange(min=0), help="Mutants of SGLang's kernels (default: 320; ci 40; 0: none).")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of inputs and of what is drawn (default: from the clock; ci 0).")
@click.option("--json", "json_to", metavar="FILE|-", help="Write the record there as JSON, - for standard output in place of the tables (default: no).")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes (default: one a core, at most 8).")
@click.option("--platform", help="cuda, rocm or cpu (default: what the device files show).")
@click.option("--cases", "cases_dir", metavar="DIR", help=f"Folder with presets {CASES}")
def selftest(**options: Any) -> None:
    """Try the harness itself: planted faults and mutants it must find, clean cells it must leave alone; exit 1 when it does not."""
    from harness.commands.selftest import try_harness

    sys.exit(try_harness(**options))


@cli.command()
@click.option("--op", "ops", multiple=True, metavar="OP[,OP]", help="Only these ops (default: all).")
@click.option("--provider", "providers", multiple=True, metavar="NAME[,NAME]", help="Only these providers (default: all).")
@click.option("--axis", "axes", multiple=True, metavar="AXIS=VALUES", help="Search this alone: heads=1..64, dtype=fp16 (default: what the op declares).")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Search for so long in all (default: 60, or without limit with --examples).")
@click.option("--examples", type=click.IntRange(min=1), help="So many examples of each op on each provider (default: as many as the time allows).")
@click.option("--seed", type=click.IntRange(min=0), help="What is tried follows from it (default: a fresh one, printed).")
@click.option(
    "--cost",
    type=click.IntRange(min=1),
    help="Most operations and bytes of an example (default: 1 million in Triton's interpreter, 20 million on a CPU, 4 billion on a GPU).",
)
@click.option(
    "--database",
    metavar="DIR",
    help="Where failures are kept, to be tried first next time, or 'none' (default: fuzz in $KERNEL_PARITY_CACHE; ~/.cache/kernel-parity).",
)
@click.option("--shrink-seconds", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds in which a failure is made smaller.")
@click.option("--add-regression", is_flag=True, help="Append each finding to regressions/found.toml of the cases folder (default: print its row).")
@click.option("--results", metavar="FILE", help="Write the result line of every cell here, in order (default: none).")
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--cases", "cases_dir", metavar="DIR", help=f"Folder with ledger.toml {CASES}")
@click.option("--platform", help="cuda, rocm or cpu; cpu includes Triton's interpreter (default: what the device files show).")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only).")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: text).")
def fuzz(**options: Any) -> None:
    """Search the axes of ops, provider by provider, for inputs at which they fail, and make each failure small.

    Exit 1 where something was found that the ledger does not list.
    """
    from harness.commands.fuzz import search

    sys.exit(search(**options))


for _command in (bisect, codegen, export, gate, observe, power, refresh, routes, served, story, symbols):
    cli.add_command(_command)


def _say(line: str) -> None:
    """A last line on stderr: where it cannot be written the exit code says it alone."""
    try:
        click.echo(line, err=True)
    except OSError:
        _give_up(2)


def _give_up(output: int) -> None:
    """Sends the rest of an output nowhere: what is still buffered would fail once more at exit, with an exit code of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def main() -> None:
    """The entry point: user errors are one line on stderr with their exit code, never a traceback."""
    from harness.errors import HarnessError, UsageError

    try:
        cli(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "kernel-parity"
        _say(f"kernel-parity: {' '.join(error.format_message().split())} ({where} --help)")
        sys.exit(2)
    except (UsageError, HarnessError) as error:
        _say(f"kernel-parity: {error}")
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        _say("; ".join(("kernel-parity: interrupted", *map(str, error.args))))
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            _say(f"kernel-parity: {error}; make room where the output goes; finished results are kept")
            _give_up(1)
            _give_up(2)
            sys.exit(HarnessError.exit_code)
        import traceback

        traceback.print_exc()
        _say("kernel-parity: this is a mistake in the harness itself; finished results are kept")
        sys.exit(HarnessError.exit_code)
