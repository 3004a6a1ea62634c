"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

CASES = "(default: $KERNEL_PARITY_CASES, else cases/ beside the package)."
SEEDS = 2**62 - 1  # the largest: torch's generators take 63 bits, and second calls take twice the seed and one
SEED = click.option("--seed", type=click.IntRange(0, SEEDS), default=0, show_default=True, help="Seed of the inputs.")
_SELECT: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--preset",
        default="smoke",
        show_default=True,
        help="Cases: smoke (CPU, minutes), pr (one GPU, minutes), nightly, regressions (public bugs), baseline (timed).",
    ),
    click.option("--op", "ops", multiple=True, metavar="OP[,OP]", help="Only these ops (default: all)."),
    click.option("--provider", "providers", multiple=True, metavar="NAME[,NAME]", help="Only these providers (default: all)."),
    click.option("--model", help="Exactly the shapes of this model instead of a preset (default: none)."),
    click.option("--tp", default=1, show_default=True, help="Tensor parallelism for --model."),
    click.option("--platform", help="cuda, rocm or cpu; cpu includes Triton's interpreter (default: what the device files show)."),
    click.option("--shard", default="", metavar="I/N", help="Part I of N of the cells (default: all of them)."),
    click.option("--cases", "cases_dir", metavar="DIR", help=f"Folder with presets, models.toml and ledger.toml {CASES}"),
    click.option("--plugin", "plugins", multiple=True, metavar="FILE_OR_MODULE", help="Load further ops and providers (default: installed plugins only)."),
)


RESUMES = "finished results are kept (--resume goes on from them)"


def keeping(words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Says with these words, where the command is interrupted, what it has kept and how to go on; it stands below the command's options."""

    def wrap(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**options: Any) -> Any:
            try:
                return command(**options)
            except KeyboardInterrupt:
                click.echo(err=True)  # the line that the terminal has written ^C into
                raise click.Abort(words) from None

        return run

    return wrap


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that choose cells."""
    for option in reversed(_SELECT):
        command = option(command)
    return command
