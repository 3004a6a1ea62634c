"""pytest as the face: outcomes, JUnit, results, xdist, and one line for what a user gets wrong."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from harness.store.results import read

ROOT = Path(__file__).resolve().parent.parent
EMPTY = "merge_state[sglang_triton-t4-h12-fp16-bothempty]"


def pytest_cases(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "cases", "-p", "no:cacheprovider", "-q", "--platform", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)


def test_one_test_a_cell_with_junit_and_results(tmp_path):
    results, junit = tmp_path / "r.jsonl", tmp_path / "j.xml"
    done = pytest_cases("--op", "merge_state", "--provider", "torch_eager,flashinfer", "--results", str(results), "--junitxml", str(junit))
    assert done.returncode == 0, done.stdout
    rows = list(read(results))
    assert {row.status for row in rows} == {"pass", "unsupported"}
    suite = next(ElementTree.parse(junit).getroot().iter("testsuite"))
    assert int(suite.attrib["tests"]) == len(rows)
    assert int(suite.attrib["skipped"]) == sum(row.status == "unsupported" for row in rows)
    assert any(case.attrib["name"].startswith("test_merge_state[torch_eager-t") for case in suite)


def test_a_finding_fails_with_its_text_and_the_ledger_makes_it_expected(tmp_path):
    chosen = ("-k", "t4-h12-fp16-bothempty and sglang_triton", "--op", "merge_state")
    done = pytest_cases("--ledger", "none", *chosen)
    assert done.returncode == 1
    assert "NaN where a number belongs" in done.stdout
    assert f"kernel-parity run --cell '{EMPTY}'" in done.stdout
    ledger = tmp_path / "ledger.toml"
    entry = '[[entry]]\nop = "merge_state"\nprovider = "sglang_triton"\nstatus = "mismatch"\nwhy = "two empty parts"\n'
    ledger.write_text(entry + 'where = { values = "bothempty" }\n')
    done = pytest_cases("--ledger", str(ledger), *chosen)
    assert done.returncode == 0
    assert "1 xfailed" in done.stdout


def test_what_the_ledger_lists_and_no_longer_happens_fails(tmp_path):
    ledger = tmp_path / "ledger.toml"
    ledger.write_text('[[entry]]\nop = "merge_state"\nprovider = "torch_eager"\nstatus = "mismatch"\nwhy = "once"\n')
    done = pytest_cases("--ledger", str(ledger), "--op", "merge_state", "--provider", "torch_eager", "-k", "t3-h1-fp32")
    assert done.returncode == 1
    assert "remove or narrow" in done.stdout


def test_xdist_writes_one_whole_log(tmp_path):
    results = tmp_path / "r.jsonl"
    done = pytest_cases("-n", "2", "--op", "merge_state", "--provider", "torch_eager", "--results", str(results))
    assert done.returncode == 0, done.stdout
    cells = [row.cell for row in read(results)]
    assert len(cells) == len(set(cells)) > 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--op", "merge_stat"), "unknown op 'merge_stat'; nearest: merge_state"),
        (("--provider", "sglang_tritn"), "nearest: sglang_triton"),
        (("--preset", "nightley"), "nearest: nightly"),
        (("--model", "kimi-k3", "--tp", "7"), "kimi-k3"),
        (("--plugin", "none.py"), "'none.py' is not a file"),
        (("--ledger", "none.toml"), "cannot read the ledger"),
        (("--results", "/proc/none/r.jsonl"), "give a writable path"),
        (("--cell-timeout", "nan"), "a cell's time limit is a number of seconds above 0, not nan"),
        (("--input-seed", "-1"), f"--input-seed is a number from 0 to {2**62 - 1}, not -1"),
        (("--input-seed", str(2**62)), f"--input-seed is a number from 0 to {2**62 - 1}, not {2**62}"),
    ],
)
def test_what_a_user_gets_wrong_is_one_line_and_exit_code_2(arguments, said):
    done = pytest_cases(*arguments)
    text = done.stdout + done.stderr
    assert done.returncode == 2, text
    assert said in text
    assert "Traceback" not in text
