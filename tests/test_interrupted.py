"""Ctrl-C: one line that promises --resume where the command has it, and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import subprocess
import sys
import time

import pytest

from harness.cli import cli
from harness.store.results import read

GOES_ON = "kernel-parity: interrupted; finished results are kept (--resume goes on from them)"
BODIES = {
    "run": ("run.run_cells", ()),
    "gate": ("gate.hold", ()),
    "served": ("served.serve", ("--model", "kimi-k3")),
    "refresh": ("refresh.refresh_baselines", ()),
    "fuzz": ("fuzz.search", ()),
    "selftest": ("selftest.try_harness", ()),
    "power": ("power.replay_traces", (__file__,)),
    "probe": ("probe.probe_axes", ("torch_eager.merge_state", "--axis", "heads=1")),
    "doctor": ("doctor.examine", ()),
    "bisect": ("bisect.bisect_versions", ("merge_state[torch_eager-t3-h2-fp16]", "--good", "1", "--bad", "2")),
}


def _interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", BODIES)
def test_an_interrupt_promises_what_the_command_has(typed, monkeypatch, command):
    (module, name), arguments = BODIES[command][0].split("."), BODIES[command][1]
    monkeypatch.setattr(importlib.import_module(f"harness.commands.{module}"), name, _interrupt)
    code, out, err = typed(command, *arguments)
    resumes = any("--resume" in option.opts for option in cli.commands[command].params)
    plain = "kernel-parity: interrupted" + ("; what ran is kept, the same command goes on from it" if command == "bisect" else "")
    assert (code, out, err.splitlines()[-1]) == (130, "", GOES_ON if resumes else plain)


def test_a_refresh_from_logs_has_nothing_to_go_on_from(typed):
    code, _, err = typed("refresh", "--results", "night.jsonl", "--resume")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--resume goes on with a measurement" in err


@pytest.mark.timeout(120)
@pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="SGLang is not installed")
def test_served_goes_on_from_what_it_has(tmp_path):
    log = tmp_path / "served.jsonl"
    command = [sys.executable, "-m", "harness", "served", "--model", "llama-3.1-8b", "--tp", "8", "--platform", "cpu", "--mode", "decode,prefill"]
    command += ["--attention-backend", "torch_native", "--results", str(log)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (log.is_file() and log.read_bytes().count(b"\n")):
        assert started.poll() is None
        time.sleep(0.02)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert (started.returncode, err.splitlines()[-1]) == (130, GOES_ON)
    before = log.read_bytes()
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"2 cells, {len(before.splitlines())} of them already done" in done.stderr
    assert log.read_bytes().startswith(before)
    assert [result.status for result in read(log)] == ["pass", "pass"]
    assert done.stdout.count("torch_native  pass") == 2
