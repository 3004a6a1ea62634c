"""`kernel-parity selftest`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import click

from harness import report
from harness.commands.run import ledger_of
from harness.machine.platforms import machine_platform
from harness.plugins import load_plugins
from harness.selection import cases_folder, names
from harness.selftest import PRESETS, Plan, run
from harness.store.files import write_whole


def try_harness(**options: Any) -> int:
    """Runs the selftest that the options describe; returns the exit code."""
    load_plugins(("harness.faults", *options["plugins"]))
    sizes = PRESETS[options["preset"]]
    seed = options["seed"]
    if seed is None:  # fresh inputs where time allows, the same ones in CI
        seed = 0 if options["preset"] == "ci" else int(time.time()) & 0xFFFFFF
    folder = cases_folder(options["cases_dir"])
    quiet = options["json_to"] == "-"
    plan = Plan(
        machine=machine_platform(options["platform"]),
        folder=folder,
        ledger=ledger_of(None, folder),
        plugins=tuple(options["plugins"]),
        seed=seed,
        clean=sizes["clean"] if options["clean"] is None else options["clean"],
        mutants=sizes["mutants"] if options["mutants"] is None else options["mutants"],
        checks=names(options["checks"]),
        faults=names(options["faults"]),
        workers=options["workers"] or min(8, os.cpu_count() or 1),
    )
    record = run(plan, say=lambda line: click.echo(line, err=True))
    if options["json_to"]:
        text = json.dumps(record, indent=1) + "\n"
        if quiet:
            click.echo(text, nl=False)
        else:
            write_whole(Path(options["json_to"]), text)
    if not quiet:
        click.echo(report.selftest(record))
    return 0 if record["passed"] else 1
