"""`kernel-parity power`: the regression rule replayed on recorded runs."""

from __future__ import annotations

from typing import Any

import click


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
    import json
    from pathlib import Path

    from harness import report
    from harness.speed import replay
    from harness.store import traces

    recorded = traces.read(Path(options["traces"]), runs=replay.LEAST)
    runs = min(len(samples) for samples in recorded.values())
    record = replay.record({key: samples[:runs] for key, samples in recorded.items()}, draws=options["draws"], seed=options["seed"])
    click.echo(json.dumps(record, indent=1) if options["as_json"] else report.replayed(record))
