"""`kernel-parity doctor`: device, driver, libraries, providers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import click
from tabulate import tabulate

from harness.errors import HarnessError
from harness.machine.platforms import device_count, machine_platform, worker_environment
from harness.plugins import load_plugins
from harness.providers import LIBRARIES, providers
from harness.selection import standing
from harness.session import Session

IMPORT_LIMIT = 120


def examine(platform: str | None, plugins: tuple[str, ...], as_json: bool) -> int:
    """Prints what is here; returns 0, or 3 when no worker can open the device."""
    load_plugins(plugins)
    machine = machine_platform(platform)
    found: dict[str, Any] = {"platform": machine, "devices": device_count(machine), "driver": _driver(machine), "device": {}, "problem": ""}
    try:
        with Session(machine, plugins=plugins) as session:
            found["device"], _ = session.hello()
    except HarnessError as error:
        found["problem"] = str(error)
    found["libraries"] = [_library(name, machine) for name in LIBRARIES]
    found["providers"] = _providers(machine)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    return 3 if found["problem"] else 0


def _print(found: dict[str, Any]) -> None:
    facts = ", ".join(f"{key} {value}" for key, value in found["device"].items())
    click.echo(f"platform  {found['platform']} ({found['devices']} device(s))\ndriver    {found['driver']}\ndevice    {facts or found['problem']}\n")
    for table in ("libraries", "providers"):
        click.echo(tabulate(found[table], headers="keys", tablefmt="simple", disable_numparse=True, maxcolwidths=80) + "\n")


def _driver(machine: str) -> str:
    tool = {"cuda": ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], "rocm": ["rocm-smi", "--showdriverversion"]}.get(machine)
    if tool is None:
        return "none needed"
    if shutil.which(tool[0]) is None:
        return f"{tool[0]} not found"
    done = subprocess.run(tool, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout.strip().splitlines() or ["unknown"])[0]


def _library(name: str, machine: str) -> dict[str, str]:
    """Whether a library is installed and imports, tried in a process of its own."""
    import os

    library = LIBRARIES[name]
    if not library.installed():
        return {"library": name, "version": "", "import": "not installed"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {library.module}"],
            capture_output=True,
            text=True,
            timeout=IMPORT_LIMIT,
            env={**os.environ, **worker_environment(machine)},
            check=False,
        )
        said = "ok" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        said = f"does not return within {IMPORT_LIMIT} s"
    return {"library": name, "version": library.version(), "import": f"{said} ({time.monotonic() - began:.1f} s)"}


def _providers(machine: str) -> list[dict[str, str]]:
    """A line a provider name: on how many ops it is usable here, and why not on the others."""
    usable: dict[str, list[str]] = defaultdict(list)
    reasons: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for provider in providers().values():
        _, status, why = standing(provider, machine)
        if status:
            reasons[provider.name][f"{status}: {why}"] += 1
        else:
            usable[provider.name].append(provider.op)
    rows = []
    for name in dict.fromkeys(provider.name for provider in providers().values()):
        why_not = "; ".join(f"{count} op(s) {reason}" for reason, count in reasons[name].items())
        rows.append({"provider": name, "usable for": ", ".join(usable[name]) or "nothing", "else": why_not})
    return rows
