"""The ratchet of a refresh: laws that hold whatever is measured in whatever order, and each change by itself."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from harness.errors import UsageError
from harness.store import baselines, ratchet
from harness.store.baselines import Baseline, Cell, Start

CELLS = ["a", "b", "c", "d"]
LEVEL = dict(zip(CELLS, (50.0, 90.0, 200.0, 800.0), strict=True))
DAY = Start("2026-12-02", "580", {"sglang": "0.5.16"})
WOBBLE = (1.0, 1.002, 0.999)


def cell(us: float, *, runs: int = 3, kernels: tuple[str, ...] = ("_fwd",), mode: str = "graph") -> Cell:
    times = [float(f"{us * share:.6g}") for share in WOBBLE[:runs]]
    return Cell(mode, {"": times}, sorted(times)[len(times) // 2], list(kernels))


def empty() -> Baseline:
    return Baseline("mla", {"arch": "sm_90"})


def take(before: Baseline, start: str, *, accept: dict[str, str] | None = None, append: bool = True, expected=None, **cells: Cell):
    after, changes = ratchet.refresh(before, cells, start, DAY, accept=accept or {}, append=append, expected=expected)
    return after, {change.cell: change for change in changes}


def settled() -> Baseline:
    baseline = empty()
    for start in "xyz":
        baseline, _ = take(baseline, start, **{name: cell(us) for name, us in LEVEL.items()})
    return baseline


def others(**more: Cell) -> dict[str, Cell]:
    return {**{name: cell(us) for name, us in LEVEL.items()}, **more}


def test_another_start_is_pooled_and_the_oldest_dropped():
    baseline = settled()
    for number in range(4):
        baseline, changes = take(baseline, f"n{number}", **others())
        assert {change.what for change in changes.values()} == {"appended"}
    assert list(baseline.cells["a"].runs) == ["z", "n0", "n1", "n2", "n3"]
    assert set(baseline.starts) == {"z", "n0", "n1", "n2", "n3"}


def test_a_start_counts_once_however_often_it_is_taken():
    baseline = settled()
    again, changes = take(baseline, "z", **others())
    assert again == baseline
    assert {change.what for change in changes.values()} == {"appended"}
    again, _ = take(baseline, "y", **others(a=cell(50.1)))
    assert list(again.cells["a"].runs) == ["x", "y", "z"]
    assert again.cells["a"].runs["y"] == cell(50.1).runs[""]
    refused, _ = take(baseline, "n", **others(a=cell(60.0)))
    accepted, changes = take(refused, "n", accept={"a": "after all"}, **others(a=cell(60.0)))
    assert (changes["a"].what, changes["b"].what) == ("accepted", "appended")
    assert accepted.cells["b"] == refused.cells["b"]


def test_an_unclassified_kernel_needs_a_reason_once():
    strange = {"a": ["_mystery"]}
    cells = {"a": cell(50.0, kernels=("_mystery",)), "b": cell(90.0)}
    after, (first, second) = ratchet.refresh(empty(), cells, "x", DAY, accept={}, unclassified=strange)
    assert (first.what, first.why, second.what) == ("refused", "unclassified", "added")
    assert list(after.cells) == ["b"]
    after, _ = ratchet.refresh(empty(), cells, "x", DAY, accept={"a": "a new library"}, unclassified=strange)
    assert (after.accepted[0].what, after.accepted[0].was) == ("unclassified", "")
    again, changes = ratchet.refresh(after, cells, "y", DAY, accept={}, unclassified=strange)
    assert {change.what for change in changes} == {"appended"}
    assert list(again.cells["a"].runs) == ["x", "y"]


def test_a_confirmed_faster_cell_replaces_and_a_lucky_run_does_not():
    baseline = settled()
    after, changes = take(baseline, "n", **others(a=cell(40.0)))
    assert changes["a"].what == "replaced"
    assert list(after.cells["a"].runs) == ["n"]
    assert after.cells["a"].accepted < baseline.cells["a"].accepted
    after, changes = take(baseline, "n", **others(a=cell(40.0, runs=1)))
    assert changes["a"].what == "kept"
    assert after.cells["a"] == baseline.cells["a"]


@pytest.mark.parametrize(
    ("why", "measured"),
    [("slower", cell(60.0)), ("renamed", cell(50.0, kernels=("_other",))), ("renamed", cell(50.0, mode="eager")), ("renamed", cell(40.0, kernels=("_x",)))],
)
def test_what_is_worse_needs_a_reason(why, measured):
    baseline = settled()
    after, changes = take(baseline, "n", **others(a=measured))
    assert (changes["a"].what, changes["a"].why) == ("refused", why)
    assert after.cells["a"] == baseline.cells["a"]
    after, changes = take(baseline, "n", accept={"a": "a new kernel, see the pull request"}, **others(a=measured))
    assert (changes["a"].what, after.cells["a"].runs) == ("accepted", {"n": measured.runs[""]})
    (record,) = after.accepted
    assert (record.cell, record.what, record.reason, record.at) == ("a", why, "a new kernel, see the pull request", DAY.at)
    assert record.was.startswith("50 us graph (_fwd)")
    assert record.now == changes["a"].now
    assert record.now.startswith(f"{measured.accepted:.4g} us {measured.mode}")


def test_a_cell_that_is_gone_needs_a_reason_unless_it_was_not_asked_for():
    baseline = settled()
    rest = {name: one for name, one in others().items() if name != "a"}
    after, changes = take(baseline, "n", **rest)
    assert (changes["a"].what, changes["a"].why) == ("refused", "gone")
    assert "a" in after.cells
    after, changes = take(baseline, "n", expected=list(rest), **rest)
    assert "a" not in changes
    assert after.cells["a"] == baseline.cells["a"]
    after, _ = take(baseline, "n", accept={"a": "the op was removed"}, **rest)
    assert "a" not in after.cells
    assert after.accepted[-1].what == "gone"


@pytest.mark.parametrize("name", ["a", "nowhere"])
def test_an_acceptance_that_nothing_needs_is_one_line(name):
    with pytest.raises(UsageError, match=f"--accept {name}: it is neither slower, renamed nor gone"):
        take(settled(), "n", accept={name: "why not"}, **others())


def test_starts_that_are_each_a_little_slower_do_not_creep():
    baseline, level, said = settled(), 50.0, []
    for number in range(20):
        level *= 1.004
        baseline, changes = take(baseline, f"n{number}", **others(a=cell(level)))
        said.append(changes["a"].what)
    assert said[0] == "appended"
    assert said[-1] == "refused"
    times = [us for runs in baseline.cells["a"].runs.values() for us in runs]
    assert sorted(times)[len(times) // 2] <= 50.0 * 1.0075 * 1.018 * 1.002


def test_a_slower_start_with_a_reason_is_pooled_when_starts_are_and_takes_the_place_of_what_was_when_not_or_when_it_is_far():
    baseline, reason = settled(), {"a": "the same binary on another device"}
    pooled, changes = take(baseline, "n", accept=reason, **others(a=cell(51.3)))
    assert (changes["a"].what, list(pooled.cells["a"].runs), pooled.cells["a"].accepted) == ("accepted", ["x", "y", "z", "n"], 51.3)
    assert take(pooled, "m", **others(a=cell(50.2)))[1]["a"].what == "appended"
    assert list(take(baseline, "n", accept=reason, append=False, **others(a=cell(51.3)))[0].cells["a"].runs) == ["n"]
    assert list(take(baseline, "n", accept=reason, **others(a=cell(60.0)))[0].cells["a"].runs) == ["n"]


def test_without_append_what_is_unchanged_stays():
    baseline = settled()
    after, changes = take(baseline, "n", append=False, **others(b=cell(80.0)))
    assert {name: change.what for name, change in changes.items()} == {"a": "kept", "b": "replaced", "c": "kept", "d": "kept"}
    assert after.cells["a"] == baseline.cells["a"]


@pytest.mark.parametrize("share", [0.9, 1.1])
def test_what_moved_with_the_control_beside_it_is_kept_as_it_was(share):
    baseline = settled()
    baseline.cells["a"].beside = 67.0
    moved = msgspec.structs.replace(cell(50.0 * share), beside=67.0 * share)
    after, changes = take(baseline, "n", **others(a=moved))
    assert changes["a"].what == "kept"
    assert after.cells["a"] == baseline.cells["a"]
    _, changes = take(baseline, "n", **others(a=msgspec.structs.replace(moved, beside=67.0)))
    assert changes["a"].what == ("replaced" if share < 1 else "refused")


def test_a_doubtful_run_is_not_pooled():
    baseline = settled()
    after, changes = take(baseline, "n", **others(a=cell(60.0, runs=1)))
    assert changes["a"].what == "kept"
    assert after.cells["a"] == baseline.cells["a"]


class Nights(RuleBasedStateMachine):
    """Nights in any order: what a baseline holds is explained by what was measured and accepted."""

    @initialize()
    def first(self) -> None:
        self.baseline, self.night = empty(), 0
        self.model = dict(LEVEL)
        self.refresh({name: cell(us) for name, us in self.model.items()})

    def refresh(self, cells: dict[str, Cell], accept: dict[str, str] | None = None, *, append: bool = True) -> dict[str, ratchet.Change]:
        before = copy.deepcopy(self.baseline)
        self.night += 1
        after, changes = take(self.baseline, f"n{self.night}", accept=accept, append=append, **cells)
        assert self.baseline == before, "the old baseline is left as it was"
        for name, old in before.cells.items():
            change = changes[name]
            if change.what in ("kept", "refused"):
                assert after.cells[name] == old
            if change.what != "accepted":
                assert after.cells[name].accepted <= old.accepted, "slower only with a reason"
                assert after.cells[name].kernels == old.kernels, "renamed only with a reason"
        assert before.cells.keys() - after.cells.keys() <= {name for name in accept or {} if changes[name].why == "gone"}
        assert after.accepted[: len(before.accepted)] == before.accepted, "no reason is lost"
        assert len(after.accepted) - len(before.accepted) == len(accept or {})
        self.baseline = after
        return changes

    def measured(self, **changed: Cell) -> dict[str, Cell]:
        return {**{name: cell(self.model[name], kernels=tuple(one.kernels)) for name, one in self.baseline.cells.items()}, **changed}

    @rule(append=st.booleans())
    def unchanged(self, append: bool) -> None:
        changes = self.refresh(self.measured(), append=append)
        assert {change.what for change in changes.values()} <= {"appended" if append else "kept"}

    @rule(pick=st.integers(0, 9), factor=st.floats(0.5, 0.9), runs=st.integers(1, 3))
    def faster(self, pick: int, factor: float, runs: int) -> None:
        if name := self.any(pick):
            us = self.model[name] * factor
            changes = self.refresh(self.measured(**{name: cell(us, runs=runs, kernels=tuple(self.baseline.cells[name].kernels))}))
            assert changes[name].what == ("replaced" if runs == 3 else "kept")
            if runs == 3:
                self.model[name] = us

    @rule(pick=st.integers(0, 9), factor=st.floats(1.1, 2.0), accepted=st.booleans())
    def slower(self, pick: int, factor: float, accepted: bool) -> None:
        if name := self.any(pick):
            us = self.model[name] * factor
            accept = {name: "known"} if accepted else {}
            changes = self.refresh(self.measured(**{name: cell(us, kernels=tuple(self.baseline.cells[name].kernels))}), accept)
            assert (changes[name].what, changes[name].why) == ("accepted" if accepted else "refused", "slower")
            if accepted:
                self.model[name] = us

    @rule(pick=st.integers(0, 9), kernel=st.sampled_from(["_one", "_two"]), accepted=st.booleans())
    def renamed(self, pick: int, kernel: str, accepted: bool) -> None:
        if (name := self.any(pick)) and self.baseline.cells[name].kernels != [kernel]:
            changes = self.refresh(self.measured(**{name: cell(self.model[name], kernels=(kernel,))}), {name: "known"} if accepted else {})
            assert (changes[name].what, changes[name].why) == ("accepted" if accepted else "refused", "renamed")

    @rule(pick=st.integers(0, 9), accepted=st.booleans())
    def gone(self, pick: int, accepted: bool) -> None:
        if name := self.any(pick):
            rest = {other: one for other, one in self.measured().items() if other != name}
            self.refresh(rest, {name: "removed"} if accepted else {})
            assert (name in self.baseline.cells) is not accepted

    @rule(pick=st.sampled_from(CELLS))
    def back(self, pick: str) -> None:
        if pick not in self.baseline.cells:
            assert self.refresh(self.measured(**{pick: cell(self.model[pick])}))[pick].what == "added"

    def any(self, pick: int) -> str:
        names = sorted(self.baseline.cells)
        return names[pick % len(names)] if names else ""

    @invariant()
    def the_file_holds_it(self) -> None:
        if not hasattr(self, "baseline"):
            return
        import msgspec

        assert msgspec.json.decode(baselines.text(self.baseline), type=Baseline) == self.baseline
        assert all(1 <= len(one.runs) <= ratchet.STARTS for one in self.baseline.cells.values())
        assert {name for one in self.baseline.cells.values() for name in one.runs} == set(self.baseline.starts)


Nights.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestNights = Nights.TestCase
