"""A run that is killed, interrupted or out of disk keeps its results, and goes on from them to the same end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.store.results import Result, ResultLog, read

KILLS = 20
CASES = {
    "top_k_renorm": [f"b{batch}-v{vocab}-k{k}" for batch in (1, 2, 3) for vocab in (9, 50, 111, 300) for k in (1, 2, 3, 5, 8)],
    "merge_state": ["t3-h2-d16-fp32", "t4-h3-d16-fp32"],
}
PROVIDERS = "steady,wrong,torch_eager,fault_aborts,fault_exits_with_success,sglang_wrapper"
STEADY = """
import time
from harness.faults.shelf import right
from harness.providers import implements

@implements("top_k_renorm", library="torch", name="steady", platforms={"cpu"})
def top_k_renorm(x):
    time.sleep(0.03)
    return right(x)[0]

@implements("top_k_renorm", library="torch", name="wrong", platforms={"cpu"})
def forgets_to_renormalise(x):
    return x.probs * (right(x)[0] > 0)
"""
MARK = "KERNEL_PARITY_TEST_RUN"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a plugin and a small preset."""
    folder = tmp_path_factory.mktemp("runs")
    preset = folder / "cases" / "presets" / "smoke"
    preset.mkdir(parents=True)
    for name, cases in CASES.items():
        (preset / f"{name}.txt").write_text("\n".join(cases))
    (folder / "steady.py").write_text(STEADY)
    return folder


def start(place: Path, results: str | Path, *more: str, mark: str = "") -> subprocess.Popen[str]:
    plugins = ["--plugin", "harness.faults", "--plugin", str(place / "steady.py")]
    chosen = ["--op", ",".join(CASES), "--provider", PROVIDERS, "--cases", str(place / "cases"), "--platform", "cpu", "--ledger", "none"]
    command = [sys.executable, "-m", "harness", "run", *plugins, *chosen, "--results", str(results), "--show", "0", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, MARK: mark})


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def verdicts(path: Path) -> dict[str, tuple[object, ...]]:
    rows = list(read(path))
    found = {row.cell: (row.status, row.reason, row.errors, row.figures, row.input_hash) for row in rows}
    assert len(found) == len(rows), "a cell was run twice"
    return found


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    while lines(path) < count and process.poll() is None:
        time.sleep(0.002)


def marked(mark: str) -> list[int]:
    """The living processes of a run, by what they inherited."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def undisturbed(place):
    """(seconds until the first result, verdicts) of a run that nothing disturbs."""
    path = place / "undisturbed.jsonl"
    began = time.monotonic()
    process = start(place, path)
    wait_for(path, 1, process)
    first = time.monotonic() - began
    code, out, err = end(process)
    assert code == 1, err
    assert "crash" in out
    return first, verdicts(path)


def test_killed_at_random_twenty_times_and_resumed(place, undisturbed):
    first, expected = undisturbed
    path, mark, chance = place / "killed.jsonl", uuid.uuid4().hex, random.Random()
    seen = []
    for number in range(KILLS):
        process = start(place, path, *(["--resume"] if number else []), "--workers", str(1 + number % 2), mark=mark)
        if number % 2:  # at any moment, most of all while it starts
            moment, most = time.monotonic() + chance.uniform(0, first), lines(path) + 20
            while time.monotonic() < moment and lines(path) < most:  # the machine may have been slower when `first` was taken
                time.sleep(0.005)
        else:  # while it works
            wait_for(path, lines(path) + chance.randrange(1, 12), process)
            time.sleep(chance.uniform(0, 0.05))
        process.kill()
        end(process)
        seen.append(lines(path))
    assert seen == sorted(seen), "a resumed run lost results"
    assert 0 < seen[-1] < len(expected), f"the kills did not fall into the run: {seen}"
    code, out, err = end(start(place, path, "--resume", mark=mark))
    assert code == 1, err
    assert f"{len(expected)} rows" in out
    assert f"{seen[-1]} of them already done" in err
    assert verdicts(path) == expected
    limit = time.monotonic() + 15
    while left := marked(mark):
        assert time.monotonic() < limit, f"left behind: {left}"
        time.sleep(0.05)


def test_a_finished_run_resumes_to_nothing(place, undisturbed):
    path = place / "undisturbed.jsonl"
    before = path.read_bytes()
    began = time.monotonic()
    code, out, _ = end(start(place, path, "--resume"))
    assert (code, path.read_bytes()) == (1, before)
    assert f"{len(undisturbed[1])} rows" in out
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_keeps_the_results_and_is_one_line(place, workers, undisturbed):
    path = place / f"interrupted{workers}.jsonl"
    process = start(place, path, "--workers", workers)
    wait_for(path, 9, process)
    process.send_signal(signal.SIGINT)
    code, _, err = end(process)
    assert code == 130, err
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1] == "kernel-parity: interrupted; finished results are kept (--resume goes on from them)"
    found = verdicts(path)
    assert len(found) >= 9
    assert found == {cell: undisturbed[1][cell] for cell in found}, "the cell in flight was given a verdict"


@pytest.mark.parametrize(
    ("what", "then", "said"),
    [
        ("versions", {"torch": "1.0"}, "of other versions (torch 1.0, now "),
        ("versions", {"aiter": "0.1.9"}, "of other versions (aiter 0.1.9, now absent)"),
        ("device", {"arch": "gfx942"}, "of another device (arch gfx942, now cpu)"),
    ],
)
def test_results_of_another_machine_are_not_mixed_with_these(place, tmp_path, undisturbed, what, then, said):
    path = tmp_path / "r.jsonl"
    row = next(row for row in read(place / "undisturbed.jsonl") if row.device)
    setattr(row, what, {**getattr(row, what), **then})
    with ResultLog(path) as log:
        log.append(row)
    before = path.read_bytes()
    code, out, err = end(start(place, path, "--resume"))
    assert (code, out) == (2, ""), err
    assert said in err.splitlines()[-1]
    assert path.read_bytes() == before


def test_results_that_say_less_of_the_device_are_gone_on_from(place, tmp_path, undisturbed):
    path = tmp_path / "r.jsonl"
    with ResultLog(path) as log:
        for row in read(place / "undisturbed.jsonl"):
            row.device.pop("cores", "")
            log.append(row)
    code, _, err = end(start(place, path, "--resume"))
    assert code == 1, err
    assert verdicts(path) == undisturbed[1]


def test_two_runs_do_not_write_to_one_file(place):
    path = place / "shared.jsonl"
    first = start(place, path)
    wait_for(path, 2, first)
    first.send_signal(signal.SIGSTOP)  # it must not be over before the others have tried
    assert first.poll() is None, "the first run was over too soon to tell"
    for more in ((), ("--resume",)):
        code, out, err = end(start(place, path, *more))
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == f"kernel-parity: another run is writing to {path}; wait for it, or give another file with --results"
    first.send_signal(signal.SIGCONT)
    assert end(first)[0] == 1
    verdicts(path)
    assert end(start(place, path, "--resume"))[0] == 1


def test_a_full_disk_is_one_line(place):
    code, out, err = end(start(place, "/dev/full"))
    assert (code, out) == (3, "")
    assert err.strip().splitlines()[-1] == "kernel-parity: cannot append to /dev/full: No space left on device; the results so far are kept"
    assert "Traceback" not in err


def test_no_writable_path_is_one_line(place):
    code, out, err = end(start(place, place / "steady.py" / "results.jsonl"))
    assert (code, out) == (2, "")
    assert err.strip().splitlines()[-1].startswith("kernel-parity: cannot write results to ")


def test_a_pipe_takes_results_too(place, undisturbed):
    code, out, err = end(start(place, "/dev/stdout"))
    assert code == 1, err
    assert sum(line.startswith('{"cell":') for line in out.splitlines()) == len(undisturbed[1])


def test_a_line_that_is_taken_in_part_is_a_full_disk(tmp_path):
    path = tmp_path / "results.jsonl"
    rows = [Result(f"op[p-{i}]", "op", "p", str(i), "pass", "cpu") for i in range(3)]

    class Filling:
        """A disk with room for a part of the line."""

        def write(self, line):
            with open(path, "ab") as file:
                return file.write(line[:20])

    with ResultLog(path) as log:
        log.append(rows[0])
        whole, log._file = log._file, Filling()
        with pytest.raises(HarnessError, match="No space left on device"):
            log.append(rows[1])
        log._file = whole
    with ResultLog(path, resume=True) as log:
        log.append(rows[2])
    assert [row.cell for row in read(path)] == ["op[p-0]", "op[p-2]"]
