"""Baselines as files: what goes in comes out, a diff shows a cell a line, and a file that is none is one clear line."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import HarnessError, UsageError
from harness.store import baselines
from harness.store.baselines import Accepted, Baseline, Cell, Start
from harness.store.results import Result
from harness.store.timing import Kernel, Timing

H200 = {"name": "NVIDIA H200", "arch": "sm_90", "memory_mib": "143771", "driver": "580.159", "units": "132"}
MI300 = {"name": "AMD Instinct MI300X", "arch": "gfx942", "memory_mib": "196592", "compute_partition": "SPX", "memory_partition": "NPS1", "power_cap_w": "750"}

TIMES = st.floats(0.5, 1e6).map(lambda us: float(f"{us:.6g}"))
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=12)


@st.composite
def written(draw) -> Baseline:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    cells = {}
    for cell in draw(st.lists(NAMES, max_size=4, unique=True)):
        used = [name for name in names if draw(st.booleans())] or names[:1]
        runs = {name: draw(st.lists(TIMES, min_size=1, max_size=3)) for name in used}
        cells[cell] = Cell(draw(st.sampled_from(["graph", "eager"])), runs, draw(TIMES), draw(st.lists(NAMES, max_size=2)), draw(st.booleans()))
    starts = {name: Start("2026-12-02", "580.159", {"sglang": "0.5.16"}) for name in names if any(name in cell.runs for cell in cells.values())}
    record = draw(st.lists(st.builds(Accepted, NAMES, st.just("slower"), NAMES, NAMES), max_size=2))
    return Baseline("mla", baselines.device_key(H200), starts, cells, record)


def example() -> Baseline:
    cells = {f"mla_decode[p-h{heads}]": Cell("graph", {"a": [90.5, 91.0], "b": [90.25]}, 90.5, ["_fwd"]) for heads in (16, 12)}
    return Baseline("mla", baselines.device_key(H200), {"a": Start("2026-12-01"), "b": Start("2026-12-02")}, cells)


@settings(deadline=None)
@given(written())
def test_what_is_saved_is_loaded(tmp_path_factory, baseline):
    path = tmp_path_factory.mktemp("saved") / "mla.json"
    baselines.save(path, baseline)
    again = baselines.load(path, H200)
    assert again == baseline
    assert [list(cell.runs) for cell in again.cells.values()] == [
        [name for name in baseline.starts if name in baseline.cells[place].runs] for place in again.cells
    ], "the oldest start first"
    assert baselines.text(again) == path.read_text()


def test_a_changed_cell_is_a_changed_line():
    before, after = example(), example()
    after.cells["mla_decode[p-h12]"].runs["b"] = [95.0]
    lines = [baselines.text(one).splitlines() for one in (before, after)]
    assert sum(old != new for old, new in zip(*lines, strict=True)) == 1
    cells = [line for line in lines[0] if line.startswith('  "mla_decode')]
    assert cells == sorted(cells)
    assert max(map(len, cells)) < 120
    assert json.loads("\n".join(lines[0]))["schema"] == 1


def test_a_device_is_its_memory_and_on_amd_its_partitions_and_power_cap():
    assert baselines.folder_of(H200) == "nvidia-h200-sm-90-143771mib"
    assert baselines.folder_of(MI300) == "amd-instinct-mi300x-gfx942-196592mib-spx-nps1-750w"
    assert baselines.folder_of({**H200, "driver": "590"}) == baselines.folder_of(H200)
    assert baselines.folder_of({**MI300, "compute_partition": "CPX"}) != baselines.folder_of(MI300)
    assert baselines.folder_of({}) == "unknown"


def test_no_file_is_no_error(tmp_path):
    assert baselines.load(tmp_path / "mla.json", H200) is None


def _edited(**fields) -> bytes:
    return json.dumps({**json.loads(baselines.text(example())), **fields}).encode()


def _cell(**fields) -> bytes:
    return _edited(cells={"x": {"mode": "graph", "runs": {"a": [1.0]}, "accepted": 1.0, **fields}})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is no baseline"),
        (b"[]", "is no baseline"),
        (b"\xff\xfe", "is no baseline"),
        (b"[" * 100_000, "is no baseline"),
        (_edited(extra=1), "extra"),
        (_edited(schema=2), "schema 2, and this version reads 1"),
        (_edited(family="sampling"), "is of the family sampling, not mla"),
        (_edited(device=baselines.device_key(MI300)), "is of another device (AMD Instinct MI300X, gfx942, 196592, SPX, NPS1, 750)"),
        (_cell(mode="other"), "unknown mode 'other'"),
        (_cell(runs={}), "x has no runs"),
        (_cell(runs={"a": []}), "x has no runs"),
        (_cell(runs={"a": [0.0]}), "x has a time that is none"),
        (_cell(accepted=-1.0), "x has a time that is none"),
        (_cell(runs={"c": [1.0]}), "x has runs of the machine start 'c', which is not described"),
        (_cell(runs={"a": ["fast"]}), "is no baseline"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_line(tmp_path, data, says):
    path = tmp_path / "mla.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        baselines.load(path, H200)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "refresh" in str(caught.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.995])
def test_a_truncated_file_is_one_line(tmp_path, share):
    data = baselines.text(example()).encode()
    (tmp_path / "mla.json").write_bytes(data[: int(share * (len(data) - 2))])
    with pytest.raises(UsageError, match=r"mla\.json is no baseline"):
        baselines.load(tmp_path / "mla.json", H200)


def test_a_folder_in_the_place_of_a_file_is_one_line(tmp_path):
    (tmp_path / "mla.json").mkdir()
    with pytest.raises(UsageError, match=r"cannot read the baseline .*mla\.json: Is a directory"):
        baselines.load(tmp_path / "mla.json", H200)


def _timed(*medians: float, **more) -> Result:
    timings = [Timing(more.get("mode", "graph"), us, us, us, 20, "converged", host_bound=more.get("host", 0.0)) for us in medians]
    timings[-1].kernels = (Kernel("void flashinfer::Foo_64x64<float>(int)"), Kernel("_fwd"), Kernel("_fwd"))
    return Result("c", "o", "p", "a", "pass", "cuda", timings=timings)


def test_a_cell_is_made_of_a_results_runs():
    cell = baselines.measured(_timed(90.1234567, 91.0, 95.0))
    assert cell == Cell("graph", {"": [90.1235, 91.0, 95.0]}, 91.0, ["Foo", "_fwd"])
    assert baselines.measured(_timed(90.0, host=0.5)).host
    assert baselines.measured(Result("c", "o", "p", "a", "pass", "cuda")) is None
    mixed = _timed(90.0, 91.0)
    mixed.timings[0].mode = "eager"
    assert baselines.measured(mixed) is None


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "mla.json"
    baselines.save(path, example())
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    changed = example()
    changed.cells.clear()
    with pytest.raises(HarnessError, match="No space left on device"):
        baselines.save(path, changed)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["mla.json"]


def _hold(folder, ready, leave):
    with baselines.alone(folder):
        ready.set()
        leave.wait(20)


def test_two_refreshes_at_once_do_not_mix(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, leave))
    other.start()
    assert ready.wait(20)
    with pytest.raises(UsageError, match="another refresh is writing to"), baselines.alone(tmp_path):
        pass
    other.kill()  # a lock ends with its process
    other.join()
    with baselines.alone(tmp_path), open(tmp_path / ".refresh.lock", "ab") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write baselines to"), baselines.alone(tmp_path / "file"):
        pass
