"""`pytest --timing`, on workers that answer as told, and desk mode, on this CPU and on a described device."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from _pytest.pytester import SysModulesSnapshot
from clockwork import Clockwork

from harness import plugin, plugin_desk
from harness.commands import run as _run  # noqa: F401  # before pytester takes note of what is imported
from harness.errors import HarnessError
from harness.machine import desk as desks
from harness.machine.platforms import Device
from harness.session import Session
from harness.store.results import Result, read
from harness.store.timing import Kernel, Timing

ROOT = Path(__file__).resolve().parent.parent
CELLS = ("merge_state[torch_eager-t3-h1-fp32]", "merge_state[torch_eager-t1-h3-fp16]")
CHOSEN = ("--op", "merge_state", "--provider", "torch_eager", "-k", "t1-h3-fp16] or t3-h1-fp32]")


def timed(us: float) -> Timing:
    return Timing("graph", us, us, us, 20, "converged", control="copy", control_us=67.0)


@pytest.fixture(autouse=True)
def as_if_alone(monkeypatch):
    """The runs below are pytest's own, whatever runs these tests: pytest-benchmark reads these and switches itself off."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    # what a run below imports first stays imported: torch registers its operators once a process
    kept = partial(SysModulesSnapshot, preserve=lambda name: not name.startswith("test_"))
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot", lambda preserve=None: kept())


@pytest.fixture
def cases(pytester, monkeypatch):
    """Runs pytest in this process on a module with one op; `answers` are those of the workers, by request."""

    def run(answers, *more: str):
        def kernels(requests):
            return [(Kernel(f"k-{request.case}"),) for request in requests]

        monkeypatch.setattr(Session, "_worker", lambda self, slot: SimpleNamespace(run=answers, kernels=kernels, renew=lambda: None))
        pytester.makepyfile(test_timed_merges="def test_merge_state(cell, judge):\n    judge(cell)\n")
        fixed = ("-p", "harness.plugin", "-p", "no:cacheprovider", "-rA", "--platform", "cuda", "--preset", "smoke", "--ledger", "none")
        return pytester.runpytest_inprocess(*fixed, *CHOSEN, *more)

    return run


def answer(request, **more) -> Result:
    cell = f"{request.op}[{request.provider}-{request.case}]"
    return Result(cell, request.op, request.provider, request.case, "pass", "cuda", "measured", **more)


def test_what_passed_is_timed_after_all_of_it_was_judged(cases, tmp_path):
    asked = []

    def answers(request):
        asked.append((request.task, request.case))
        return answer(request, timings=[] if request.task == "judge" else [timed(40.0 + len(asked))])

    done = cases(answers, "--timing", "--runs", "2", "--results", str(tmp_path / "r.jsonl"))
    assert done.ret == 0
    assert [task for task, _ in asked] == ["judge"] * 2 + ["graph"] * 4
    assert [case for _, case in asked] == ["t3-h1-fp32", "t1-h3-fp16"] * 3
    done.stdout.fnmatch_lines(["timing 2 cells: 2 runs, each in a fresh process", "*= times =*", "*of the roofline*", f"{CELLS[0].replace('[', '[[]')}*44.00*"])
    rows = {row.cell: row for row in read(tmp_path / "r.jsonl")}
    assert [[one.median for one in rows[cell].timings] for cell in CELLS] == [[43.0, 45.0], [44.0, 46.0]]
    assert rows[CELLS[0]].timings[-1].kernels == (Kernel("k-t3-h1-fp32"),)


def test_what_ends_otherwise_when_it_is_timed_is_a_failure_of_its_own(cases, tmp_path):
    def answers(request):
        if request.task == "judge" or request.case == "t1-h3-fp16":
            return answer(request, timings=[] if request.task == "judge" else [timed(40.0)])
        return Result(CELLS[0], request.op, request.provider, request.case, "crash", "cuda", reason="signal SIGABRT")

    done = cases(answers, "--timing", "--junitxml", str(tmp_path / "j.xml"), "--results", str(tmp_path / "r.jsonl"))
    assert done.ret == 1
    done.stdout.fnmatch_lines(["*crash (signal SIGABRT)*", "FAILED *test_merge_state[[]torch_eager-t3-h1-fp32-timed]*", "*1 failed, 2 passed*"])
    assert "torch_eager-t3-h1-fp32-timed]" in (tmp_path / "j.xml").read_text()
    assert [row.status for row in read(tmp_path / "r.jsonl") if row.cell == CELLS[0]] == ["pass", "crash"]


def test_what_is_wrong_is_not_timed(cases):
    tasks = []

    def answers(request):
        tasks.append(request.task)
        wrong = answer(request)
        wrong.status, wrong.reason = "mismatch", "numerics"
        return wrong

    done = cases(answers, "--timing")
    assert (done.ret, tasks) == (1, ["judge"] * 2)
    done.stdout.fnmatch_lines(["no cell was timed: none of those whose time is asked for (docs/timing.md) passed on the device"])


def test_a_harness_that_cannot_go_on_ends_with_3(cases):
    def answers(request):
        if request.task == "judge":
            return answer(request)
        raise HarnessError("no worker")

    assert cases(answers, "--timing").ret == 3


# ---- what does not go together ----


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"--platform": "cpu"}, "--timing needs a GPU"),
        ({"--runs": 0}, "--runs is at least 1, not 0"),
        ({"dist": "load"}, "--timing does not go with -n"),
        ({"benchmark_only": True}, "two ways to time: give one"),
        ({"--timing": False, "benchmark_only": True, "dist": "load"}, "--benchmark-only does not go with -n"),
        ({"--timing": False, "benchmark_only": True, "--platform": "tpu"}, "unknown platform 'tpu'"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_exit_code_2(options, said):
    given = {
        "--timing": True,
        "--runs": 3,
        "--platform": "cuda",
        "--input-seed": 0,
        "benchmark_only": False,
        "dist": "no",
        "benchmark_min_rounds": 5,
        "benchmark_max_time": 1.0,
    }
    config = SimpleNamespace(getoption=lambda name, default=None: (given | options)[name], stash={}, pluginmanager=None)
    with pytest.raises(pytest.exit.Exception, match=said) as ended:
        plugin.pytest_configure(config)
    assert ended.value.returncode == 2
    assert "\n" not in ended.value.msg


def test_a_user_sees_that_line_alone():
    done = typed("--platform", "cpu", "--timing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Exit: --timing needs a GPU")
    assert len(done.stderr.splitlines()) == 1


# ---- the desk ----


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", str(ROOT / "cases"), "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)


@pytest.fixture
def desk(cases, monkeypatch):
    """Desk mode in this process, which keeps its environment and threads."""
    monkeypatch.setattr(plugin_desk, "os", SimpleNamespace(environ={}))
    threads = torch.get_num_threads()
    yield lambda *more: cases(None, "--benchmark-only", "--benchmark-max-time", "0.01", "--benchmark-min-rounds", "2", *more)
    torch.set_num_threads(threads)


def test_the_desk_times_in_this_process_and_compares_with_an_earlier_look(desk, pytester, tmp_path):
    pytester.makepyfile(test_desk_masks="def test_token_bitmask(cell, judge):\n    judge(cell)\n")
    chosen = (
        "--platform",
        "cpu",
        "--op",
        "token_bitmask",
        "--provider",
        "sglang_triton",
        "-k",
        "h3-fp16 or b4-v9]",
        "--benchmark-storage",
        f"file://{tmp_path}",
    )
    first = desk(*chosen, "--benchmark-autosave")
    assert first.ret == 0
    text = first.stdout.str()
    assert "desk mode: calls in this process, no isolation" in text
    assert "Triton's interpreter: its time says nothing" in text
    assert "a law between calls: it has no time of its own" in text
    (path,) = tmp_path.rglob("*.json")
    saved = json.loads(path.read_text())
    assert {one["group"]: one["extra_info"]["cell"] for one in saved["benchmarks"]} == {
        "merge_state": CELLS[1],
        "token_bitmask": "token_bitmask[torch_eager-b4-v9]",
    }
    assert {one["extra_info"]["evidence"] for one in saved["benchmarks"]} == {"executed"}
    assert saved["machine_info"]["kernel_parity"]["torch"] == torch.__version__
    second = desk(*chosen, "--benchmark-compare")
    assert second.ret == 0
    assert "(NOW)" in second.stdout.str()
    assert "machine_info is different" not in second.stdout.str() + second.stderr.str()


def test_without_the_desk_nothing_of_it_is_imported():
    code = (
        "import sys, pytest; pytest.main(['-q', 'cases', '-p', 'no:benchmark', '-p', 'no:cacheprovider', '--co', '--op', 'merge_state', '--platform', 'cpu'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print([n for n in sys.modules if 'benchmark' in n or 'desk' in n])"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_on_a_device_the_clock_waits_for_it(monkeypatch):
    clock = Clockwork()
    clock.install(monkeypatch)
    monkeypatch.setattr(desks.time, "perf_counter", lambda: clock.host * 1e-6)
    began = desks.settled_seconds()
    clock.launch(500.0)
    assert desks.settled_seconds() - began == pytest.approx(504e-6)


def test_a_call_that_ruins_the_device_ends_the_desk(monkeypatch):
    monkeypatch.setattr(desks, "open_device", lambda machine: Device(machine, "cpu", {"name": "described", "arch": "sm_90"}))
    desk = desks.Desk("cuda")
    result = Result(CELLS[0], "merge_state", "torch_eager", "t3-h1-fp32", "crash", "cuda", reason="device error")
    monkeypatch.setattr(desk, "_bench", SimpleNamespace(run=lambda *_: (result, False)))
    with pytest.raises(HarnessError, match=r"crash \(device error\) and left this process' device unusable"):
        desk.run(None, None, "cuda", 0)


def test_the_desk_on_a_device_gives_pytest_benchmark_its_clock(desk, monkeypatch, tmp_path):
    monkeypatch.setattr(desks, "open_device", lambda machine: Device(machine, "cpu", {"name": "described", "arch": "sm_90"}))
    monkeypatch.setattr("harness.machine.timed.synchronise", lambda device: None)
    Clockwork().install(monkeypatch)
    path = tmp_path / "b.json"
    done = desk("--benchmark-json", str(path))
    assert done.ret == 0
    saved = json.loads(path.read_text())
    assert [one["options"]["timer"] for one in saved["benchmarks"]] == ["settled_seconds"] * 2
    assert {one["extra_info"]["device"]["name"] for one in saved["benchmarks"]} == {"described"}
