"""The search for the version that changed a cell, and what tells two versions apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.commands import trying
from harness.offline.versions import Index, Untestable
from harness.search.grades import Kernels, Status, Time
from harness.search.versions import first_change
from harness.store.results import Result
from harness.store.timing import Kernel, Timing

CELL = "merge_state[tiny-t3-h1-fp32]"


def row(status: str = "pass", reason: str = "", **more) -> Result:
    return Result(CELL, "merge_state", "tiny", "t3-h1-fp32", status, "cpu", "executed", reason=reason, versions=trying.versions(), **more)


# ---- the search ----


@given(st.integers(2, 60), st.floats(0, 1), st.integers(0, 2**60 - 1))
def test_the_change_lies_between_what_is_told(count, share, bits):
    boundary = 1 + round(share * (count - 2))
    dead = {place for place in range(1, count - 1) if bits >> place & 1}
    asked: list[int] = []

    def ask(place: int) -> bool | None:
        asked.append(place)
        return None if place in dead else place >= boundary

    last, first = first_change(count, ask)
    assert last < boundary <= first
    assert all(place in dead for place in range(last + 1, first))
    assert len(asked) == len(set(asked)) <= math.ceil(math.log2(count)) + len(dead)
    assert 0 not in asked
    assert count - 1 not in asked


# ---- what tells versions apart ----


def timed(*us: float, mode: str = "graph", host: float = 0.0, kernels: tuple[str, ...] = ()) -> Result:
    launched = tuple(map(Kernel, kernels))
    return row(timings=[Timing(mode, one, one, one, 20, "converged", host_bound=host, kernels=launched) for one in us])


def test_kernels_are_told_apart_by_family():
    grade = Kernels()
    good, bad = timed(9.0, kernels=("flash_64x128_kernel", "reduce")), timed(9.0, kernels=("_fwd_kernel", "reduce"))
    assert grade.between(good, bad) == ""
    assert not grade.changed(timed(9.0, kernels=("flash_128x64_kernel", "reduce")))
    assert grade.changed(bad)
    assert "nothing changed" in grade.between(good, good)
    assert grade.without(row("missing", "unbound")) == "not timed: missing: unbound"
    assert grade.without(timed(9.0)) == "the profiler saw no kernel"


def test_times_are_told_apart_by_the_middle_of_both_ends():
    grade = Time()
    assert grade.between(timed(100.0, 100.1, 99.9), timed(121.0, 121.1, 120.9)) == ""
    assert not grade.changed(timed(109.0, 109.5, 109.9))
    assert grade.changed(timed(110.1, 110.5, 111.0))
    assert grade.without(timed(100.0, mode="eager")) == "timed by eager, and times of two modes are not compared"
    assert grade.without(timed(100.0, host=0.5)).startswith("host-bound")


def test_ends_that_take_alike_have_nothing_between_them():
    assert "are alike" in Time().between(timed(100.0, 100.1, 99.9), timed(100.2, 100.3, 100.1))
    assert "exchange --good and --bad" in Time().between(timed(121.0, 121.1, 120.9), timed(100.0, 100.1, 99.9))
    assert "the bad one is timed by eager" in Time().between(timed(100.0), timed(121.0, mode="eager"))


def test_a_status_is_told_with_its_reason():
    grade = Status()
    assert grade.between(row("mismatch", "numerics"), row("mismatch", "support")) == ""
    assert grade.changed(row("mismatch", "unwritten"))
    assert not grade.changed(row("mismatch", "numerics"))


@pytest.mark.parametrize(
    ("said", "absent"),
    [
        ("Missing: unbound: sglang.kernels.x:f (no module torchvision)", "torchvision"),
        ("ModuleNotFoundError: No module named 'orjson'", "orjson"),
        ("Missing: unbound: sglang.kernels.x:f (no module sglang.kernels)", ""),
        ("ValueError: no such name", ""),
    ],
)
def test_what_is_not_installed_is_told_from_what_the_version_has_not(said, absent):
    assert trying._foreign(said, "sglang") == absent


def test_what_ran_must_be_the_version_that_was_asked_for(monkeypatch, tmp_path):
    from harness.providers import providers
    from harness.selection import Cell

    provider = providers()["merge_state", "sglang_triton"]
    trial = trying.Trial(Cell("merge_state", provider, None, "interpret"), Index("sglang"), "cpu")

    def run(command, **_):
        path = next(part for part in command if part.startswith("--results=")).removeprefix("--results=")
        with open(path, "wb") as file:
            file.write(trying.encode(Result("", "", "", "", "pass", "cpu", versions={"sglang": "0.5.23"})) + b"\n")
        return trying.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(trying.subprocess, "run", run)
    assert trial._run("0.5.23", tmp_path).status == "pass"
    with pytest.raises(Untestable, match=r"what ran was sglang 0\.5\.23, not this one"):
        trial._run("0.5.16", tmp_path)
