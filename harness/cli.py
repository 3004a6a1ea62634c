"""The command line: thin. Every command imports what it needs when it runs, so that --help is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from harness import __version__

_SELECT: tuple[Callable[[Any], Any], ...] = (
    click.option("--preset", default="smoke", show_default=True, help="Frozen list of cases: smoke (CPU, minutes), pr (one GPU, minutes), nightly."),
    click.option("--op", "ops", multiple=True, metavar="OP[,OP]", help="Only these ops (default: all)."),
    click.option("--provider", "providers", multiple=True, metavar="NAME[,NAME]", help="Only these providers (default: all)."),
    click.option("--model", help="Exactly the shapes of this model instead of a preset (default: none)."),
    click.option("--tp", default=1, show_default=True, help="Tensor parallelism for --model."),
    click.option("--platform", help="cuda, rocm or cpu; cpu includes Triton's interpreter (default: what the device files show)."),
    click.option("--shard", default="", metavar="I/N", help="Part I of N of the cells (default: all of them)."),
    click.option("--cases", "cases_dir", metavar="DIR", help="Folder with presets, models.toml and ledger.toml (default: cases/ beside the package)."),
    click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only)."),
)


def _selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SELECT):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
def cli() -> None:
    """Differential tests and fallback detection for the sampling and attention ops of LLM serving.

    Exit codes: 0 all as expected; 1 a finding; 2 bad usage or configuration; 3 the harness could not do its work.
    """


@cli.command()
@_selecting
@click.option("--cell", "cells", multiple=True, help="Only this cell, by its id (default: those selected).")
@click.option("--results", default="results.jsonl", show_default=True, help="Result lines are written here as they come; started afresh unless --resume.")
@click.option("--resume", is_flag=True, help="Keep the results already in --results and run what is left (default: start afresh).")
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes (default: one a device; on a CPU one a core).")
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--show", default=20, show_default=True, help="How many findings are explained in full.")
@click.option("--json", "as_json", is_flag=True, help="Print result lines with their verdict instead of the table (default: the table).")
@click.option("--profile-harness", is_flag=True, help="Print where the time went, by share (default: off).")
def run(**options: Any) -> None:
    """Run cells and print the table; exit 1 when there is a finding."""
    from harness.commands.run import run_cells

    sys.exit(run_cells(**options))


@cli.command("list")
@click.argument("what", type=click.Choice(["ops", "providers", "models", "cases", "presets"]))
@_selecting
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
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs.")
@click.option("-o", "--output", help="Write the script here (default: print it).")
def repro(**options: Any) -> None:
    """Write a script that shows CELL's failure by itself."""
    from harness.commands.repro import write_script

    write_script(**options)


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
        click.echo(f"kernel-parity: {' '.join(error.format_message().split())} ({where} --help)", err=True)
        sys.exit(2)
    except (UsageError, HarnessError) as error:
        click.echo(f"kernel-parity: {error}", err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("kernel-parity: interrupted; finished results are kept (--resume goes on from them)", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception:
        import traceback

        traceback.print_exc()
        click.echo("kernel-parity: this is a mistake in the harness itself; finished results are kept", err=True)
        sys.exit(HarnessError.exit_code)
