"""The worker and the zygote: cheap restarts, limits, stale build locks, nothing left behind, one clear line when it cannot start."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.contracts import op
from harness.errors import HarnessError
from harness.machine import builds
from harness.machine.nursery import Zygote
from harness.machine.pool import Limits, Worker
from harness.machine.worker import Request

CASE = op("merge_state").axes.case(tokens=3, heads=2, dim=16, dtype="fp32").id
GOOD = Request("merge_state", CASE, "torch_eager", "cpu")
RESTART = 2.0  # seconds, generous: tens of milliseconds on an idle machine


def fault(name: str) -> Request:
    return Request("merge_state", CASE, f"fault_{name}", "cpu")


@pytest.fixture(scope="module")
def extensions(tmp_path_factory):
    """Where torch's extension builder keeps its locks, with one that an old, dead build left."""
    folder = tmp_path_factory.mktemp("extensions")
    old = folder / "dead" / "lock"
    old.parent.mkdir()
    old.touch()
    os.utime(old, (time.time() - 86400,) * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def zygote(extensions):
    opened = Zygote("cpu")
    yield opened
    opened.close()


@pytest.fixture
def worker(zygote):
    opened = Worker(zygote, "cpu", plugins=("harness.faults",), limits=Limits(run=60.0))
    yield opened
    opened.close()


def gone(pids, within=10.0):
    """Whether the processes end in that time."""
    end = time.monotonic() + within
    while not all(builds.ended(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_restart_is_cheap(worker):
    worker.run(GOOD)
    costs = []
    for _ in range(5):
        assert worker.run(fault("exits_with_failure")).status == "crash"
        began = time.monotonic()
        assert worker.run(GOOD).status == "pass"
        costs.append(time.monotonic() - began)
    assert worker.starts == 6
    print(f"restart with one cell: median {1000 * statistics.median(costs):.0f} ms")
    assert statistics.median(costs) < RESTART


def test_a_worker_stays_warm_when_nothing_broke(worker):
    for name in ("refuses", "names_nothing", "writes_nan", "exits_politely", "exhausts_the_host"):
        worker.run(fault(name))
    assert worker.starts == 1


@pytest.mark.parametrize("name", ["breaks_the_device", "writes_past_the_end"])
def test_a_worker_that_cannot_be_trusted_is_replaced(worker, name):
    pid = worker.pid
    worker.run(fault(name))
    assert gone([pid])
    assert worker.run(GOOD).status == "pass"
    assert worker.starts == 2


def test_the_limit_of_a_run_and_of_a_build(zygote):
    hasty = Worker(zygote, "cpu", plugins=("harness.faults",), limits=Limits(run=1.0, build=2.5))
    for name, status, limit in (("hangs", "hang", 1.0), ("builds_for_ever", "build-failed", 2.5)):
        began = time.monotonic()
        result = hasty.run(fault(name))
        assert result.status == status
        assert limit <= time.monotonic() - began < limit + 10
        assert f"in {name}" in result.detail
    hasty.close()


def test_a_worker_killed_between_cells_costs_nothing(worker):
    assert worker.run(GOOD).status == "pass"
    os.kill(worker.pid, signal.SIGKILL)
    assert gone([worker.pid])
    assert worker.run(GOOD).status == "pass"


def test_the_kernels_kill_for_memory_is_told_from_another(worker, monkeypatch):
    assert worker.run(fault("kills_itself")).status == "crash"
    worker.run(GOOD)
    monkeypatch.setattr(builds, "kills_for_memory", lambda: 1 << 40)
    assert worker.run(fault("kills_itself")).status == "out-of-memory"


def test_what_a_worker_leaves_running_ends_with_it(worker, zygote):
    worker.run(fault("exits_leaving_a_child"))
    assert worker.run(GOOD).status == "pass"
    others = builds.children(zygote.pid) - {worker.pid}
    assert all("-m harness.machine.zygote" not in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in others)


def test_locks_of_a_killed_build_are_cleared_and_no_others(worker, extensions):
    assert not (extensions / "dead" / "lock").exists()
    for name in ("held", "before"):
        (extensions / name).mkdir()
    before = extensions / "before" / "lock"
    before.touch()
    os.utime(before, (time.time() - 600,) * 2)
    with open(extensions / "held" / "lock", "w"):
        worker._limits = Limits(run=1.0)
        assert worker.run(fault("hangs_with_a_build_lock")).status == "hang"
        left = {path.parent.name for path in extensions.rglob("lock")}
    assert left == {"held", "before"}


def test_a_dead_zygote_is_one_clear_line():
    zygote = Zygote("cpu")
    worker = Worker(zygote, "cpu")
    os.kill(zygote.pid, signal.SIGKILL)
    assert gone([worker.pid])  # the kernel ends it with its parent
    with pytest.raises(HarnessError, match="the process that forks workers is gone"):
        worker.run(GOOD)
    worker.close()
    zygote.close()


PARENT = """
import sys
from harness.machine.nursery import Zygote
from harness.machine.pool import Limits, Worker
from harness.machine.worker import Request
zygote = Zygote("cpu")
workers = [Worker(zygote, "cpu", plugins=("harness.faults",)) for _ in range(2)]
print(zygote.pid, *(worker.pid for worker in workers), flush=True)
workers[0].run(Request("merge_state", sys.argv[1], "fault_builds_for_ever", "cpu"))
"""


def test_nothing_is_left_when_the_harness_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CASE], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    zygote, *workers = map(int, parent.stdout.readline().split())
    end = time.monotonic() + 60
    while not builds.compiling(workers[0]):
        assert time.monotonic() < end, "the build did not start"
        time.sleep(0.02)
    compilers = builds.children(workers[0])
    parent.kill()
    parent.wait()
    assert gone([zygote, *workers, *compilers])


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ('raise ImportError("libcudart.so.13: cannot open shared object file")', "ImportError: libcudart.so.13: cannot open shared object file"),
        ("import os; print('no device here'); os._exit(1)", "no device here"),
    ],
)
def test_a_torch_that_does_not_import_is_one_clear_line(tmp_path, monkeypatch, torch, said):
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-m", "harness", "run", "--platform", "cpu", "--op", "merge_state", "--provider", "torch_eager"]
    done = subprocess.run([*command, "--results", str(tmp_path / "r.jsonl")], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3
    _, line = done.stderr.splitlines()
    assert line.startswith(f"kernel-parity: the worker process could not start ({said}); check that torch imports")


def test_a_plugin_that_does_not_load_in_the_worker_is_one_clear_line(zygote):
    with pytest.raises(HarnessError, match=r"plugin 'no\.such\.module' does not load"):
        Worker(zygote, "cpu", plugins=("no.such.module",))
