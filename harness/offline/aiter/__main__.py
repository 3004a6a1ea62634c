"""`python -m harness.offline.aiter AITER_TREE [--commit HASH] [--version TAG] [-o FILE]`: writes the facts of a tree as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.errors import UsageError
from harness.offline.aiter.facts import read_tree, written
from harness.store.files import write_whole


@click.command()
@click.argument("tree", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--commit", default="", help="The tree's commit (default: that of the git checkout).")
@click.option("--version", default="", help="Its tag or version, if it has one (default: none).")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here (default: print).")
def main(tree: Path, commit: str, version: str, output: Path | None) -> None:
    """Facts of an AITER tree: signatures, gates, head lists and kernel tables."""
    try:
        text = written(read_tree(tree, commit, version))
    except UsageError as error:
        click.echo(f"aiter facts: {error}", err=True)
        sys.exit(error.exit_code)
    if output is None:
        click.echo(text, nl=False)
        return
    write_whole(output, text)


if __name__ == "__main__":
    main()
