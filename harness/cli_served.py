"""`kernel-parity served`."""

from __future__ import annotations

import sys
from typing import Any

import click

from harness.cli_options import CASES, RESUMES, SEED, keeping
from harness.cli_story import HEADS, RENORM, STORIES
from harness.errors import UsageError


@click.command()
@click.option("--model", metavar="NAME", help="A model of models.toml (default: none; needed but for --story).")
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor parallelism: the heads of one rank.")
@click.option("--attention-backend", "backends", multiple=True, metavar="B[,B]", help="Run these too; the first is what the server is given (default: none).")
@click.option("--all", "every", is_flag=True, help="Run every back end that can be driven here (default: the default's and those named; on a CPU: all).")
@click.option("--mode", "modes", multiple=True, metavar="M[,M]", help="Of prefill, prefix, decode, verify (default: all four).")
@click.option("--context", "contexts", multiple=True, metavar="N[,N]", help="Tokens of context (default: 4096; on a CPU 32).")
@click.option("--batch", "batches", multiple=True, metavar="N[,N]", help="Requests a batch (default: 8; on a CPU 2).")
@click.option("--dtype", type=click.Choice(["bf16", "fp16", "fp32"]), help="Of the model and its cache (default: bf16; on a CPU fp16).")
@click.option("--page-size", "page", type=click.IntRange(1, 4096), default=1, show_default=True, help="Tokens a page; a back end with one size takes its own.")
@click.option("--soft-cap", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Soft cap of the attention logits; 0: none.")
@click.option(
    "--platform",
    help="cuda, rocm or cpu, or a target of targets.toml (gfx950): then the default is routed and nothing runs (default: what the device files show).",
)
@click.option("--target", "targets", multiple=True, metavar="NAME[,NAME]", help="Say the default there too (default: the device here; on a CPU all targets).")
@click.option("--timing", is_flag=True, help="Then time on the device what is right; without it there is no speed verdict (default: off).")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="With --timing: runs over the list, each in a fresh process.")
@click.option("--results", default="served.jsonl", show_default=True, help="Result lines are written here as they come; started afresh unless --resume.")
@click.option("--resume", is_flag=True, help="Keep the results already in --results and run what is left (default: start afresh).")
@click.option("--story", type=click.Choice(STORIES), help="Tell this story instead, as kernel-parity story does (default: none).")
@click.option("--ledger", help="Ledger file, or 'none' (default: ledger.toml of the cases folder).")
@click.option("--cases", "cases_dir", metavar="DIR", help=f"Folder with models.toml, targets.toml, routes.toml and ledger.toml {CASES}")
@SEED
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True, help="Seconds a cell may take, compilers apart.")
@click.option("--build-timeout", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True, help="Seconds a just-in-time build may take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: a table).")
@keeping(RESUMES)
def served(**options: Any) -> None:
    """Run a model's attention through SGLang's own back ends, driven as the server drives them, and say what was chosen.

    Exit 1 for a wrong answer that the ledger does not list, a flag that is ignored, or a choice that is slower than another back end with the
    same answer (`fallback`).
    """
    story = options.pop("story")
    if story:
        from harness.commands.story import tell

        sys.exit(tell(renorm=RENORM, heads=HEADS, **{name: options[name] for name in ("platform", "cases_dir", "as_json")}))
    if not options["model"]:
        raise UsageError("give --model NAME, a model of models.toml, or --story NAME")
    from harness.commands.served import serve

    sys.exit(serve(**options))
