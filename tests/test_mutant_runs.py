"""Runs of mutants: real kernels, processes, and what the outcomes say."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import HarnessError, UsageError
from harness.faults.mutants import runner
from harness.faults.mutants.process import Server
from harness.faults.mutants.server import Timed
from harness.machine.platforms import worker_environment

MERGE = (
    "merge_state[sglang_triton-t2-h3-d64-fp32]",
    "merge_state[sglang_triton-t2-h3-d80-fp32]",
    "merge_state[sglang_triton-t4-h12-fp32-far]",
    "merge_state[sglang_triton-t4-h12-fp32-empty]",
)


@pytest.fixture(scope="module")
def merged():
    pytest.importorskip("sglang")
    said = []
    made = runner.run(24, 3, 1, ("merge_state_kernel",), said.append, names=MERGE)
    assert sorted(map(repr, said)) == sorted(map(repr, made))
    return made


def test_real_mutants_are_killed_and_say_by_what(merged):
    judged = [outcome for outcome in merged if not outcome.equivalent and outcome.reached]
    assert len(judged) >= 15
    assert sum(outcome.killed for outcome in judged) >= 0.8 * len(judged)
    assert all(outcome.by.partition(":")[0] in ("mismatch", "crash", "build-failed", "hang") and outcome.cell in MERGE for outcome in judged if outcome.killed)
    assert len({outcome.operator for outcome in judged}) >= 5


def test_the_summary_counts_what_the_outcomes_say(merged):
    said = runner.summary(merged)
    row = said["kernels"]["sglang.kernels.ops.attention.merge_state:merge_state_kernel"]
    assert json.loads(json.dumps(said)) == said
    assert said["killed"] == row["killed"] == sum(outcome.killed for outcome in merged)
    assert said["mutants"] == row["mutants"] == sum(not outcome.equivalent for outcome in merged)
    assert [survivor["key"] for survivor in said["survivors"]] == [o.key for o in merged if not o.killed and not o.equivalent]


SABOTAGED = """
import sys
from harness import checks
from harness.faults.mutants import server

judge = checks.judge
checks.judge = lambda actual, expected, confirm: judge(expected.value.to(expected.dtype), expected, confirm)
server.serve(int(sys.argv[1]))
"""


def test_a_sabotaged_check_lets_mutants_live(tmp_path, monkeypatch):
    """Numbers are no longer judged: what is left are crashes and strays."""
    pytest.importorskip("sglang")
    script = tmp_path / "sabotaged.py"
    script.write_text(SABOTAGED)
    monkeypatch.setattr("harness.faults.mutants.process.command", lambda descriptor: [sys.executable, str(script), str(descriptor)])
    made = runner.run(24, 3, 1, ("merge_state_kernel",), names=MERGE)
    judged = [outcome for outcome in made if not outcome.equivalent and outcome.reached]
    assert not any(outcome.by in ("mismatch:numerics", "mismatch:unwritten") for outcome in judged)
    assert sum(outcome.killed for outcome in judged) < 0.7 * len(judged)


def test_a_cell_that_gives_a_finding_by_itself_stops_the_run():
    pytest.importorskip("sglang")
    with pytest.raises(HarnessError, match=r"merge_state.*gives mismatch .* without a mutant"):
        runner.run(3, names=("merge_state[sglang_triton-t4-h12-fp32-bothempty]",))


def test_an_unknown_kernel_is_named_with_its_neighbours():
    pytest.importorskip("sglang")
    with pytest.raises(UsageError, match="unknown kernel 'merge_stat_kernel'"):
        runner.run(3, workers=1, kernels=("merge_stat_kernel",), names=MERGE[:1])
    with pytest.raises(UsageError, match="at least one"):
        runner.run(3, workers=0)


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setattr("harness.faults.mutants.runner.LIBRARIES", ("kernel_parity_of_no_release",))
    with pytest.raises(UsageError, match="kernel_parity_of_no_release"):
        runner.run(3, workers=1, names=())


def test_the_process_needs_no_interpreter_in_its_parent():
    code = "import sys; from harness.faults.mutants import run; print([m for m in ('torch', 'triton', 'sglang') if m in sys.modules])"
    env = {key: value for key, value in os.environ.items() if key not in worker_environment("cpu")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, cwd=Path(__file__).resolve().parent.parent)
    assert done.stdout.strip() == "[]"


def test_a_process_that_meets_an_op_late_still_plants_in_what_it_met_before():
    pytest.importorskip("sglang")
    penalty, other = "penalties[sglang_torch-b1-v111-fq0-ps0-rp2]", "merge_state[torch_eager-t3-h2-d16-fp32]"
    with contextlib.closing(Server()) as server:
        (target,) = runner.survey([server], [penalty], ("apply_scaling_penalties",))
        swapped = next(mutant for mutant in target.reached if mutant.operator == "function")
        for cells in ([Timed(penalty, 0.1)], [Timed(other, 0.1)], [Timed(penalty, 0.1)]):
            killed = bool(server.attempt(swapped, cells).by)
            assert killed == (cells[0].name == penalty)
