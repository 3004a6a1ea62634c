"""The command that shows known bugs by running them: `story`."""

from __future__ import annotations

import sys
from typing import Any

import click

STORIES = ("kimi-k3-rocm",)
RENORM, HEADS = "sglang==0.5.16", "sglang==0.5.23"


@click.command()
@click.argument("name", type=click.Choice(STORIES))
@click.option("--renorm", default=RENORM, show_default=True, metavar="SPEC", help="The SGLang whose DSPARK accept is run: a version or a path.")
@click.option("--heads", default=HEADS, show_default=True, metavar="SPEC", help="The SGLang whose default back end is routed.")
@click.option("--platform", help="cuda, rocm or cpu (default: what the device files show).")
@click.option(
    "--cases", "cases_dir", metavar="DIR", help="Folder with models.toml and symbols/ (default: $KERNEL_PARITY_CASES, else cases/ beside the package)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (default: text).")
def story(name: str, **options: Any) -> None:
    """Show, by running SGLang's own code, the two bugs of Kimi K3's bring-up on ROCm: filters that are None, and 12 heads that go to Triton.

    Needs no GPU; on one it also times what padding 12 heads to 16 gains. Exit 1 where a bug no longer shows.
    """
    from harness.commands.story import tell

    sys.exit(tell(**options))
