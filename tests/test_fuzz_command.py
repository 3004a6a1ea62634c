"""The search from the command line, with real workers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli import cli
from harness.errors import UsageError
from harness.store.results import read

# ---- the command, with workers ----

PLUGIN = """
import os, time
from harness.providers import implements

CPU = {"cpu"}


def merged(x):
    import torch

    v, s = torch.stack((x.v_a, x.v_b)).double(), torch.stack((x.s_a, x.s_b)).double()
    lse = torch.logsumexp(s, 0)
    weight = torch.exp(s - lse.masked_fill(lse.isinf(), 0.0))
    return (weight[..., None] * v).sum(0), lse.float()


@implements("merge_state", library="torch", name="planted_right", platforms=CPU)
def right(x):
    o, lse = merged(x)
    return o.to(x.v_a.dtype), lse


@implements("merge_state", library="torch", name="planted_numerics", platforms=CPU)
def numerics(x):
    o, lse = merged(x)
    if x.case.heads % 16 == 12 and x.case.tokens > 8:
        o[8, 11] *= 1.25
    return o.to(x.v_a.dtype), lse


@implements("merge_state", library="torch", name="planted_abort", platforms=CPU)
def aborts(x):
    if x.case.heads >= 15:
        os.abort()
    return right(x)


@implements("merge_state", library="torch", name="planted_hang", platforms=CPU)
def hangs(x):
    if x.case.heads >= 7:
        time.sleep(1000)
    return right(x)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "plugin_planted.py"
    path.write_text(PLUGIN)
    return str(path)


def fuzz(plugin: str, folder: Path, *more: str, provider: str) -> tuple[int, dict[str, Any]]:
    arguments = ["fuzz", "--op", "merge_state", "--provider", provider, "--platform", "cpu", "--plugin", plugin, "--json", "--database", str(folder / "kept")]
    done = CliRunner().invoke(cli, [*arguments, *more], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def test_planted_failures_are_found_by_real_workers(plugin, tmp_path):
    options = ("--examples", "300", "--seed", "1", "--axis", "dim=16", "--axis", "heads=9..17", "--axis", "tokens=1..24")
    code, report = fuzz(plugin, tmp_path, *options, provider="planted_numerics,planted_abort,planted_right")
    assert code == 1
    found = {row["provider"]: row for row in report["findings"]}
    assert {name: (row["status"], row["case"]) for name, row in found.items()} == {
        "planted_numerics": ("mismatch", "t9-h12-d16-fp32"),
        "planted_abort": ("crash", "t1-h15-d16-fp32"),
    }
    assert "kernel-parity repro 'merge_state[planted_numerics-t9-h12-d16-fp32]'" in found["planted_numerics"]["text"]
    searched = {row["provider"]: row for row in report["searched"]}
    assert searched["planted_right"]["passed"] == searched["planted_right"]["ran"] > 60
    assert 0 < searched["planted_right"]["worst"] <= 1


def test_a_hang_is_found(plugin, tmp_path):
    options = ("--examples", "20", "--seed", "1", "--axis", "dim=16", "--axis", "heads=1..40", "--timeout", "0.5", "--shrink-seconds", "8")
    code, report = fuzz(plugin, tmp_path, *options, provider="planted_hang")
    assert code == 1
    (found,) = report["findings"]
    assert (found["status"], found["case"]) == ("hang", "t1-h7-d16-fp32")


def test_a_run_is_repeated_by_its_seed(plugin, tmp_path):
    lists = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        log = tmp_path / name / "log.jsonl"
        code, _ = fuzz(plugin, tmp_path / name, "--examples", "40", "--seed", "9", "--results", str(log), provider="planted_right")
        assert code == 0
        lists.append([(result.cell, result.seed, result.input_hash) for result in read(log)])
    assert lists[0] == lists[1]
    assert len(lists[0]) > 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--op", "merge_stat"], "nearest: merge_state"),
        (["--shrink-seconds", "nan"], "take a number of seconds, not nan"),
        (["--provider", "torch_eagre"], "unknown provider"),
        (["--op", "merge_state", "--axis", "heads=5..2"], "write 2..5"),
        (["--op", "merge_state", "--provider", "flashinfer"], "none of the chosen providers runs here"),
        (["--op", "decode_attention", "--provider", "torch_eager", "--axis", "heads=3", "--axis", "kv_heads=2"], "lies within these bounds"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        CliRunner().invoke(
            cli, ["fuzz", *arguments, "--platform", "cpu", "--database", "none", "--examples", "5"], catch_exceptions=False, standalone_mode=False
        )
    assert "\n" not in str(caught.value)


def test_an_interrupt_keeps_what_was_found(plugin, tmp_path):
    command = [sys.executable, "-m", "harness", "fuzz", "--op", "merge_state", "--provider", "planted_numerics", "--platform", "cpu", "--plugin", plugin]
    command += ["--database", str(tmp_path), "--seed", "1", "--seconds", "600", "--axis", "dim=16"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    for line in started.stderr:
        if line.startswith("found: "):
            break
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "merge_state[planted_numerics-t9-h12-d16-fp32]: mismatch (numerics)" in out
