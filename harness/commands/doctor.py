"""`kernel-parity doctor`: device, driver, libraries, providers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import click
from tabulate import tabulate

from harness.errors import HarnessError
from harness.machine.platforms import SOURCES, device_count, facts_without_torch, machine_platform, worker_environment
from harness.plugins import load_plugins
from harness.providers import LIBRARIES, providers, versions
from harness.selection import standing
from harness.served.attention import absent
from harness.served.attention.backends import BACKENDS, why_not
from harness.session import Session

IMPORT_LIMIT = 120


def examine(platform: str | None, plugins: tuple[str, ...], as_json: bool) -> int:
    """Prints what is here; returns 0, or 3 when no worker can open the device."""
    load_plugins(plugins)
    machine = machine_platform(platform)
    found: dict[str, Any] = {"platform": machine, "devices": device_count(machine), "device": {}, "problem": ""}
    try:
        with Session(machine, plugins=plugins) as session:
            found["device"], _ = session.hello()
    except HarnessError as error:
        found["problem"] = str(error)
        found["device"] = facts_without_torch(machine)
    found["driver"] = found["device"].get("driver") or _driver(machine)
    found["not read"] = {fact: place for fact, place in SOURCES.get(machine, {}).items() if not (found["device"] | found).get(fact)}
    found["libraries"] = [_library(name, machine) for name in LIBRARIES]
    found["providers"] = _providers(machine)
    found["served"] = _served(machine)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print(found)
    return 3 if found["problem"] else 0


def _print(found: dict[str, Any]) -> None:
    facts = ", ".join(f"{key} {value}" for key, value in found["device"].items() if key != "driver")
    driver = found["driver"] or "could not be read"
    click.echo(f"platform  {found['platform']} ({found['devices']} device(s))\ndriver    {driver}\ndevice    {facts or found['problem']}")
    if facts and found["problem"]:
        click.echo(f"problem   {found['problem']}")
    for fact, place in found["not read"].items():
        click.echo(f"not read  {fact}: {place}")
    click.echo()
    usable = [{"provider": row["provider"], "usable here for": ", ".join(row["ops"])} for row in found["providers"] if row["ops"]]
    for rows in (found["libraries"], usable, _reasons(found["providers"]), found["served"]):
        click.echo(tabulate(rows, headers="keys", tablefmt="simple", disable_numparse=True, maxcolwidths=100) + "\n")


def _served(machine: str) -> list[dict[str, str]]:
    """Which of SGLang's attention back ends can be driven as the server drives them, by which version, and why the others cannot."""
    version = versions().get("sglang", "not installed")
    how = f"yes; {absent.NOTE}" if absent.needed() else "yes"
    return [{"back end of SGLang": backend.name, "version": version, "driven as served": why_not(backend, machine) or how} for backend in BACKENDS.values()]


def _reasons(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """A line a reason: which providers it keeps from running, and for how many ops."""
    kept: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for reason, names in row["not"].items():
            kept[reason].append(f"{row['provider']} ({len(names)} ops)" if len(names) > 1 else f"{row['provider']} ({names[0]})")
    return [{"not usable here because": reason, "providers": ", ".join(names)} for reason, names in kept.items()]


def _driver(machine: str) -> str:
    """The driver's version by the vendor's tool, for where no file says it; an empty string where the tool does not either."""
    tool = {"cuda": ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], "rocm": ["rocm-smi", "--showdriverversion"]}.get(machine)
    if tool is None:
        return "none needed"
    if shutil.which(tool[0]) is None:
        return ""
    try:
        said = subprocess.run(tool, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.search(r"\d+\.\d[\w.+-]*", said)
    return version[0] if version else ""


def _library(name: str, machine: str) -> dict[str, str]:
    """Whether a library is installed and imports, tried in a process of its own."""
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


def _providers(machine: str) -> list[dict[str, Any]]:
    """A row a provider name: the ops it is usable for here, and the others by reason."""
    rows: dict[str, dict[str, Any]] = {}
    for provider in providers().values():
        row = rows.setdefault(provider.name, {"provider": provider.name, "library": provider.library.name, "ops": [], "not": {}})
        _, status, why = standing(provider, machine)
        if status:
            row["not"].setdefault(f"{status}: {why}", []).append(provider.op)
        else:
            row["ops"].append(provider.op)
    return list(rows.values())
