"""`kernel-parity power`: the regression rule replayed on recorded runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness import report
from harness.speed import replay
from harness.store import traces as recorded_runs


def replay_traces(*, traces: str, draws: int, seed: int, as_json: bool) -> None:
    """Reads, replays and prints."""
    recorded = recorded_runs.read(Path(traces), runs=replay.LEAST)
    runs = min(len(samples) for samples in recorded.values())
    record = replay.record({key: samples[:runs] for key, samples in recorded.items()}, draws=draws, seed=seed)
    click.echo(json.dumps(record, indent=1) if as_json else report.replayed(record))
