"""A gate that is killed, goes on, and meets another; and its commands in the workflows of docs/ci."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import gated
import pytest
from gated import CASES, OPTIONS, World

from harness import cli
from harness.store.results import read

TESTS = Path(__file__).resolve().parent


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    (folder / "world.json").write_text("{}")
    arguments = [*OPTIONS, "--cases", str(gated.cases(folder)), "--baselines", str(folder / "baselines"), "--results", str(folder / "k.jsonl"), *more]
    command = [sys.executable, str(TESTS / "gated.py"), str(folder / "world.json"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TESTS.parent)})


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_killed_and_resumed_it_loses_nothing_and_two_do_not_mix(tmp_path, typed, monkeypatch):
    World().install(monkeypatch)
    gated.accept(tmp_path / "baselines", World())
    path = tmp_path / "k.jsonl"
    process = start(tmp_path)
    while lines(path) < 30 and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGSTOP)
    assert process.poll() is None, process.communicate()[1]
    code, _, err = typed(*OPTIONS, "--cases", str(tmp_path / "cases"), "--baselines", str(tmp_path / "baselines"), "--results", str(path))
    assert (code, "another run is writing to" in err) == (2, True)
    process.kill()
    process.communicate()
    kept = {row.cell: len(row.timings) for row in read(path)}
    assert (len(kept), 1 <= sum(kept.values()) <= 18) == (18, True)
    process = start(tmp_path, "--resume")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert "18 of them already done" in err
    assert "speed and kernels: 18 same; findings 0" in out
    after = {row.cell: len(row.timings) for row in read(path)}
    assert set(after.values()) == {1}
    assert all(after[cell] >= count for cell, count in kept.items())
    assert len(after) == 2 * len(CASES)


@pytest.mark.parametrize("name", ["gate.yml", "refresh.yml"])
def test_the_commands_of_the_workflows_are_those_of_the_command_line(name):
    lines = [line for line in (TESTS.parent / "docs" / "ci" / name).read_text().splitlines() if "run: kernel-parity" in line]
    assert lines
    for line in lines:
        typed = line.partition("run: kernel-parity ")[2].replace("${{ matrix.platform }}", "cuda")
        command, *options = shlex.split(re.sub(r"\$\{\w+:\+(.*?)\}", r"\1", typed))
        if command in cli.cli.commands:
            cli.cli.commands[command].make_context(command, options)
