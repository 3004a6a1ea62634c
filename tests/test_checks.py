"""The judges: what they must pass, and the smallest things they must not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.checks import judge, tolerance
from harness.contracts import Close, Exact, Filtered, Judged, OneOf
from harness.reasons import CHECKS, REASONS, check_of
from harness.store.results import FINDINGS


def values(dtype=torch.float32, seed=0, shape=(4, 12, 64)):
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(shape, generator=generator, dtype=torch.float64)
    return golden, Close(golden, golden.abs(), operand=torch.finfo(dtype).eps / 2, terms=100, dtype=dtype)


def test_every_reason_and_status_belongs_to_a_check():
    assert {check_of("mismatch", reason, {}) for reason in REASONS} <= set(CHECKS)
    assert {check_of(status, "", {}) for status in FINDINGS if status != "mismatch"} == {"resolve", "determinism", "isolation"}
    assert check_of("mismatch", "numerics", {"relation": "split"}) == "invariants"
    assert check_of("nondeterministic", "repeat", {"relation": "repeat"}) == "determinism"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_once_is_right_and_one_wrong_head_is_not(dtype):
    golden, expected = values(dtype)
    good = golden.to(dtype)
    assert judge(good, expected).error <= 0.5
    bad = good.clone()
    bad[2, 7] = bad[2, 8]
    outcome = judge(bad, expected)
    assert outcome.reason == "numerics"
    assert "/ 3072" in outcome.text
    assert "(2, 7" in outcome.text


@given(st.integers(0, 3071), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_any_one_element_off_by_twice_its_budget_is_found(index, dtype):
    golden, expected = values(dtype)
    bad = golden.to(dtype)
    flat = bad.view(-1)
    flat[index] = (golden.view(-1)[index] + 3 * tolerance(expected, dtype).view(-1)[index]).to(dtype)
    outcome = judge(bad, expected)
    assert outcome.reason == "numerics"
    assert outcome.figures["count"] == 1


def test_nan_is_never_right_and_infinities_match_in_place_and_sign():
    golden, expected = values()
    bad = golden.float()
    bad[0, 0, 0] = math.nan
    assert "NaN" in judge(bad, expected).text
    lse = torch.tensor([[1.0, -math.inf]], dtype=torch.float64)
    close = Close(lse, torch.ones_like(lse))
    assert judge(lse.float(), close).right
    assert judge(torch.tensor([[1.0, math.inf]]), close).reason == "numerics"
    assert judge(torch.tensor([[-math.inf, -math.inf]]), close).reason == "numerics"
    assert judge(torch.tensor([[1.0, 0.0]]), close).reason == "numerics"


def test_shape_and_dtype_come_first():
    golden, expected = values()
    assert judge(golden.float()[:, :11], expected).reason == "shape"
    assert judge(golden.half(), expected).reason == "dtype"
    assert judge(golden.long(), Close(golden, golden.abs())).reason == "dtype"
    assert judge(None, expected).reason == "shape"
    assert judge([1.0], expected).reason == "shape"


def filtered(kept=None):
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
    required = torch.tensor([[True, False, False, False]])
    allowed = torch.tensor([[True, True, True, False]])
    return Filtered(weights, required, allowed, kept=None if kept is None else torch.tensor([kept]))


def renormalised(*keep):
    row = torch.zeros(1, 4)
    row[0, list(keep)] = torch.tensor([0.4, 0.3, 0.2, 0.1])[list(keep)]
    return row / row.sum()


@pytest.mark.parametrize("keep", [(0,), (0, 1), (0, 1, 2), (0, 2)])
def test_either_way_within_the_band(keep):
    assert judge(renormalised(*keep), filtered()).right


@pytest.mark.parametrize("keep", [(1, 2), (0, 3), (0, 1, 2, 3)])
def test_a_wrong_set_is_support_even_with_the_right_count(keep):
    assert judge(renormalised(*keep), filtered(kept=2)).reason == "support"


def test_count_values_and_zero_output():
    assert judge(renormalised(0, 1), filtered(kept=2)).right
    assert judge(renormalised(0, 1, 2), filtered(kept=2)).reason == "support"
    assert judge(renormalised(0, 1) * 0.999, filtered()).reason == "numerics"
    assert judge(torch.zeros(1, 4), filtered()).reason == "support"
    assert judge(torch.full((1, 4), math.nan), filtered()).reason == "support"
    assert judge(renormalised(0, 1).double()[:, :3], filtered()).reason == "shape"


def test_small_probabilities_are_judged_by_their_own_size():
    weights = torch.full((1, 100_000), 1e-5, dtype=torch.float64)
    everything = torch.ones_like(weights, dtype=torch.bool)
    expected = Filtered(weights, everything, everything)
    assert judge((weights / weights.sum()).float(), expected).right
    assert judge((weights / weights.sum() * 1.01).float(), expected).reason == "numerics"
    assert judge(torch.zeros(1, 100_000), expected).reason == "support"


def test_ids():
    allowed = torch.tensor([[True, False, True], [False, True, False]])
    assert judge(torch.tensor([2, 1]), OneOf(allowed)).right
    assert judge(torch.tensor([[2, 0, 0], [1, 1, 1]]), OneOf(allowed)).right
    assert "which the filters remove" in judge(torch.tensor([1, 1]), OneOf(allowed)).text
    assert "outside [0, 3)" in judge(torch.tensor([2, 3]), OneOf(allowed)).text
    assert judge(torch.tensor([-1, 1]), OneOf(allowed)).reason == "support"
    undefined = OneOf(allowed, valid=torch.tensor([False, True]))
    assert judge(torch.tensor([1, 1]), undefined).right
    assert judge(torch.tensor([7, 1]), undefined).reason == "support"
    assert judge(torch.tensor([2.0, 1.0]), OneOf(allowed)).reason == "dtype"


def test_no_rows_have_no_wrong_ids():
    expected = OneOf(torch.zeros(0, 5, dtype=torch.bool))
    assert judge(torch.zeros(0, 3, dtype=torch.int64), expected).right
    assert judge(torch.zeros(0, dtype=torch.int64), expected).right


def test_exact():
    golden = torch.tensor([1, 2, 3])
    assert judge(golden.int(), Exact(golden)).right
    outcome = judge(torch.tensor([1, 2, 4]), Exact(golden))
    assert outcome.reason == "numerics"
    assert "expected 3, actual 4" in outcome.text
    assert judge(torch.tensor([1, 2, 4]), Exact(golden, where=torch.tensor([True, True, False]))).right
    assert judge(golden.float(), Exact(golden)).reason == "dtype"
    nan = torch.tensor([math.nan, 1.0])
    assert judge(nan.clone(), Exact(nan)).right


def test_the_contract_can_judge():
    assert judge(3, Judged(lambda actual: None)).right
    assert judge(3, Judged(lambda actual: ("invariant", "3 is odd"))).reason == "invariant"
