"""`kernel-parity story kimi-k3-rocm`: two bugs of one bring-up shown on one screen, by running what they are about."""

from __future__ import annotations

import contextlib
import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from harness.commands.retold import Act, cost, first, padded, second
from harness.contracts.models import find_model, load_models
from harness.machine.platforms import machine_platform
from harness.offline.routes.facts import load_facts
from harness.offline.sources import find_source
from harness.offline.symbols.facts import load_config, load_scenarios, scenarios_of
from harness.offline.symbols.package import scan_source
from harness.offline.targets import choose, load_targets
from harness.selection import cases_folder
from harness.session import Session

_WIDTH = 160
_MODEL, _TP, _TARGET = "kimi-k3", 8, "gfx950"


def tell(**options: Any) -> int:
    """Runs the story and prints it; returns 0 where both bugs show, 1 where one does not any more."""
    began = time.monotonic()
    folder, machine = cases_folder(options["cases_dir"]), machine_platform(options["platform"])
    renorm, heads = find_source(options["renorm"]), find_source(options["heads"])
    scan = _scan(folder, renorm)
    model = find_model(load_models(folder / "models.toml"), _MODEL)
    targets = choose(load_targets(folder / "targets.toml"), (_TARGET,))
    acts = [first(renorm, scan)]
    with _session(machine) as session:
        acts.append(second([renorm, heads], model, _TP, targets[0], load_facts(folder / "routes.toml"), padded(session)))
        lines = cost(session, machine)
    took = time.monotonic() - began
    if options["as_json"]:
        click.echo(json.dumps({"acts": [act.plain() for act in acts], "cost": lines, "seconds": round(took, 1)}, indent=2))
    else:
        click.echo("\n\n".join([_head(), *map(_told, acts), "\n".join(["3. What padding costs and gains", *_wrapped(lines)]), _end(acts, took)]))
    return int(not all(act.shown for act in acts))


def _scan(folder: Path, source: Any) -> Any:
    """The hits of the usual scenarios, so that a scan that `symbols` has kept serves here, and the other way round."""
    config, scenarios = folder / "symbols" / "sglang.toml", folder / "symbols" / "scenarios.toml"
    usual = scenarios_of([], load_scenarios(scenarios), load_config(config))
    return scan_source(source, config, scenarios, usual)


@contextlib.contextmanager
def _session(machine: str) -> Iterator[Session]:
    with Session(machine) as session:
        yield session


def _head() -> str:
    return f"{_MODEL} on ROCm at TP {_TP}: SGLang's own code, run with what ROCm binds and routed for {_TARGET}; nothing here ran on a ROCm device"


def _told(act: Act) -> str:
    verdict = "shown" if act.shown else f"NOT SHOWN: {act.lacking}"
    return "\n".join([f"{act.title}", *_wrapped(act.lines), f"   {verdict}"])


def _wrapped(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield from textwrap.wrap(
            line, _WIDTH, initial_indent="   ", subsequent_indent=" " * 19, break_on_hyphens=False, break_long_words=False, drop_whitespace=True
        )


def _end(acts: list[Act], took: float) -> str:
    lost = sum(not act.shown for act in acts)
    return f"{'both bugs shown' if not lost else f'{lost} of {len(acts)} bugs not shown'} ({took:.0f} s)"
