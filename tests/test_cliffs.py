"""Steps between neighbours: found where they are planted, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.speed.cliffs import EMBEDDED, STEP, Place, cliffs, lower, neighbours
from harness.speed.gaps import gaps

HEADS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128)


def line(us, *, axis="heads", values=HEADS, runs=3, spread=0.002, seed=0, provider="tested", mode="graph", **point):
    """Cells along an axis: `us` of the value, with run medians that scatter by `spread`."""
    random = np.random.default_rng(seed)
    made = []
    for value in values:
        place = {"dtype": "bf16", "batch": 32, **point, axis: value}
        medians = us(value) * np.exp(spread * random.standard_normal(runs))
        made.append(Place(f"mla_decode[{provider}-{axis}{value}]", "mla_decode", provider, place, mode, medians.tolist()))
    return made


def none(small, neighbour):
    return 0.0


def smooth(heads):
    return 50.0 + heads


def fallen(heads):
    """The fast path takes powers of two; others go the slow way."""
    return smooth(heads) * (1.0 if heads & (heads - 1) == 0 else 2.5)


def test_a_planted_fallback_is_named_with_its_neighbour():
    found = cliffs(line(fallen), none)
    assert {one.small.point["heads"] for one in found} == {12, 24, 48}
    steepest = next(one for one in found if one.small.point["heads"] == 12)
    assert (steepest.neighbour.point["heads"], steepest.axis) == (16, "heads")
    assert steepest.ratio == pytest.approx(2.5 * smooth(12) / smooth(16), rel=0.01)
    assert STEP < steepest.bound < steepest.ratio


@given(st.integers(0, 10**6))
@settings(max_examples=60)
def test_a_line_that_only_rises_has_none(seed):
    assert cliffs(line(smooth, seed=seed, spread=0.004), none) == []


def test_a_flat_line_raises_no_more_claims_than_its_level_allows():
    """All shapes take the same: a claim would need 5 % beyond what the runs scatter by."""
    claims = sum(len(cliffs(line(lambda heads: 60.0, seed=seed, spread=0.01), none)) for seed in range(200))
    assert claims <= 2


def test_the_pad_is_paid_before_there_is_a_claim():
    cells = line(fallen, values=(12, 16))
    assert cliffs(cells, lambda small, neighbour: 60.0)[0].ratio == pytest.approx(2.5 * 62 / 126, rel=0.01)
    assert cliffs(cells, lambda small, neighbour: 100.0) == []


def test_runs_that_disagree_make_no_claim():
    """16 heads take 95 or 148 microseconds, by the process."""
    sixteen = Place("s", "mla_decode", "tested", {"heads": 16}, "graph", [95.0, 148.0, 95.0])
    twelve = Place("t", "mla_decode", "tested", {"heads": 12}, "graph", [148.0, 148.0, 148.0])
    assert cliffs([sixteen, twelve], none) == []


def test_one_run_makes_no_claim():
    assert cliffs(line(fallen, runs=1), none) == []


def test_values_are_held_against_the_plain_family():
    cells = line(lambda value: {"random": 10.0, "masked": 90.0, "peaked": 10.1}[value], axis="values", values=("random", "masked", "peaked"))
    (found,) = cliffs(cells, none)
    assert (found.small.point["values"], found.neighbour.point["values"], found.axis) == ("masked", "random", "values")


def test_neighbours_differ_on_one_axis_alone():
    cells = [*line(fallen), *line(fallen, provider="other"), *line(fallen, mode="eager"), *line(fallen, batch=64), *line(fallen, dtype="fp16")]
    for small, other, axis in neighbours(cells, "random"):
        assert (small.op, small.provider, small.mode) == (other.op, other.provider, other.mode)
        assert {name for name in small.point if small.point[name] != other.point[name]} == {axis}
        assert small.point[axis] < other.point[axis]
        assert axis in EMBEDDED


@given(st.lists(st.floats(0.5, 3.0), min_size=2, max_size=6), st.floats(0.0, 0.2))
def test_the_bound_lies_below_the_mean_and_falls_with_the_spread(ratios, usual):
    logs = np.log(np.asarray(ratios))
    assert lower(logs, usual) <= float(np.mean(logs)) + 1e-12
    assert lower(logs, usual + 0.1) <= lower(logs, usual) + 1e-12


def test_the_bound_holds_as_often_as_it_says():
    random = np.random.default_rng(3)
    held = sum(lower(0.1 + 0.01 * random.standard_normal(3), 0.0) <= 0.1 for _ in range(4000))
    assert held / 4000 == pytest.approx(0.95, abs=0.015)


def test_gaps_are_within_a_case_and_a_mode():
    cells = [*line(lambda heads: 48.0, values=(12,), provider="triton"), *line(lambda heads: 10.0, values=(12,), provider="cudnn")]
    cells += [*line(lambda heads: 1.0, values=(12,), provider="graphless", mode="eager"), *line(lambda heads: 1.0, values=(16,), provider="other")]
    (gap,) = gaps(cells)
    assert (gap.slow.provider, gap.fast.provider) == ("triton", "cudnn")
    assert math.isclose(gap.ratio, 4.8, rel_tol=0.01)
