"""A refresh that is killed, out of disk, beside another or before a broken baseline: every file is the old one or the new one."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from timed_logs import DEVICE, H12, MI300, log, result

from harness import cli
from harness.store import baselines

KILLS = 24
FORK = multiprocessing.get_context("fork")


def typed_alone(*arguments: str) -> int:
    """Types a command in this process, which is one of its own, and says nothing."""
    sys.stdout = sys.stderr = open(os.devnull, "w")
    sys.argv = ["kernel-parity", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def refreshing(folder: Path, *logs: str, more: tuple[str, ...] = ()) -> list[str]:
    return ["refresh", "--ledger", "none", "--baselines", str(folder), "--append", *more, *(word for one in logs for word in ("--results", one))]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / DEVICE).glob("*.json")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Logs of two machine starts, the baselines of the first, and those that the second makes of them. Made in this process, so that
    the children that fork from it have everything imported."""
    home = tmp_path_factory.mktemp("made")
    first, second = log(home / "x.jsonl"), log(home / "y.jsonl", start="y", scale=1.001)
    for folder, logs in ((home / "old", [first]), (home / "new", [first, second])):
        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit, match=r"^0$"):
            cli.cli(refreshing(folder, *logs), standalone_mode=False)
    return home


@pytest.fixture
def place(made, tmp_path):
    """A folder with the baselines of the first start, the second's log, the files, and what the second makes of them."""
    shutil.copytree(made / "old", tmp_path / "old")
    return tmp_path / "old", str(made / "y.jsonl"), contents(made / "old"), contents(made / "new")


def _child(*arguments: str) -> int:
    process = FORK.Process(target=lambda: os._exit(typed_alone(*arguments)))
    process.start()
    process.join(60)
    return process.exitcode


def _again(folder: Path, before: dict[str, bytes]) -> None:
    for name, data in before.items():
        (folder / DEVICE / name).write_bytes(data)


def _forever(arguments: list[str], folder: Path, before: dict[str, bytes], ready) -> None:
    """Refreshes and puts the old files back, each whole, until it is killed."""
    ready.set()
    while True:
        assert typed_alone(*arguments) == 0
        for name, data in before.items():
            (folder / DEVICE / f"{name}.back").write_bytes(data)
            os.replace(folder / DEVICE / f"{name}.back", folder / DEVICE / name)


def test_a_kill_at_any_moment_leaves_each_file_old_or_new(place):
    folder, second, before, after = place
    chance = random.Random()
    for _ in range(KILLS):
        ready = FORK.Event()
        process = FORK.Process(target=_forever, args=(refreshing(folder, second), folder, before, ready))
        process.start()
        assert ready.wait(20)
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        found = contents(folder)
        assert found.keys() == before.keys()
        assert all(data in (before[name], after[name]) for name, data in found.items())
    assert _child(*refreshing(folder, second)) == 0
    assert contents(folder) == after, "the same refresh again makes the rest"
    assert not list((folder / DEVICE).glob(".*.tmp")), "what the killed ones left is cleared"


def _killed_at(step: int, arguments: list[str]) -> None:
    """Ends at the step-th file that is forced to disk or takes its place, before it does so."""
    left = step

    def dying(real):
        def call(*arguments, **more):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    os.fsync, os.replace = dying(os.fsync), dying(os.replace)
    os._exit(typed_alone(*arguments))


def test_a_kill_at_each_step_of_writing(place):
    folder, second, before, after = place
    seen, step = [], 0
    while True:
        process = FORK.Process(target=_killed_at, args=(step, refreshing(folder, second)))
        process.start()
        process.join(60)
        found = contents(folder)
        assert all(data in (before[name], after[name]) for name, data in found.items())
        seen.append(sum(found[name] != before[name] for name in found))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        _again(folder, before)
        step += 1
    files = len(before)
    assert seen == [0] * (files + 1) + list(range(1, files + 1)), "all are on the disk before the first takes its place"


def _small(most: int, arguments: list[str]) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    os.execv(sys.executable, [sys.executable, "-m", "harness", *arguments])


def test_files_that_do_not_fit_leave_every_old_one(place):
    """The kernel refuses to let any file grow beyond the greatest but one of the new ones."""
    folder, second, before, after = place
    most = sorted(map(len, after.values()))[-2]
    done = subprocess.run(
        [sys.executable, "-c", f"import test_refresh_safety as t; t._small({most}, {refreshing(folder, second)!r})"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    assert "File too large; make room there" in done.stderr
    assert contents(folder) == before
    assert not list((folder / DEVICE).glob(".*.tmp"))
    assert _child(*refreshing(folder, second)) == 0
    assert contents(folder) == after


def _edit(path: Path, **fields) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _in_its_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "is no baseline"),
        (lambda path: path.write_bytes(b""), "is no baseline"),
        (lambda path: _edit(path, schema=7), "schema 7, and this version reads 1"),
        (lambda path: _edit(path, device=baselines.device_key(MI300)), "is of another device (AMD Instinct MI300X, gfx942, 196592)"),
        (lambda path: _edit(path, cells={H12: {"mode": "graph", "runs": {"x": [0.0]}, "accepted": 1.0}}), "has a time that is none"),
        (_in_its_place, "cannot read the baseline"),
    ],
    ids=["truncated", "empty", "schema", "device", "times", "unreadable"],
)
def test_a_broken_baseline_is_one_line_and_no_other_file_is_changed(place, typed, spoil, says):
    folder, second, _, _ = place
    bad = folder / DEVICE / "sampling.json"
    spoil(bad)
    before = {path: path.read_bytes() for path in (folder / DEVICE).glob("*.json") if path.is_file()}
    code, out, err = typed(*refreshing(folder, second))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err
    assert str(bad) in err
    assert {path: path.read_bytes() for path in before} == before
    assert typed(*refreshing(folder, second, more=("--only", "mla")))[0] == 0, "a family that is not refreshed is not read"


def test_beside_another_refresh_it_is_one_line(place, typed):
    folder, second, before, _ = place
    with baselines.alone(folder / DEVICE):
        code, out, err = typed(*refreshing(folder, second))
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "another refresh is writing to" in err
        assert typed(*refreshing(folder, second, more=("--dry-run",)))[0] == 0, "reading needs nobody's leave"
    assert contents(folder) == before


def _until_done(arguments: list[str]) -> None:
    for _ in range(200):
        if typed_alone(*arguments) == 0:
            os._exit(0)
        time.sleep(0.01)
    os._exit(1)


def test_refreshes_at_once_lose_nothing_of_any(made, tmp_path):
    folder = tmp_path / "kept"
    logs = [log(tmp_path / f"{start}.jsonl", result(H12, 95.0, start=start), start=start) for start in ("x", "y", "z")]
    others = [FORK.Process(target=_until_done, args=(refreshing(folder, one),)) for one in logs]
    for process in others:
        process.start()
    for process in others:
        process.join(60)
    assert [process.exitcode for process in others] == [0, 0, 0]
    for path in (folder / DEVICE).glob("*.json"):
        found = baselines.load(path, None)
        assert set(found.starts) == {"x", "y", "z"}
        assert all(set(cell.runs) == {"x", "y", "z"} for cell in found.cells.values())
