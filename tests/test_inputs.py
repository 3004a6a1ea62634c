"""Inputs are exact: golden bits, laws of the draws, and a fingerprint that sees every change."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import Draw, fingerprint
from harness.contracts.inputs import hashed, mix


def test_the_hash_is_splitmix64():
    # the first outputs of splitmix64 seeded with 0 (Vigna's reference): state advances by the golden ratio
    assert [hex(int(v) & 0xFFFFFFFFFFFFFFFF) for v in mix(torch.tensor([1, 2, 3]))] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_draws_are_fixed_for_ever():
    draw = Draw("op:case", seed=0)
    assert draw.integers(4, low=0, high=1000).tolist() == Draw("op:case", seed=0).integers(4, low=0, high=1000).tolist()
    first = Draw("a").normal(3)
    assert not torch.equal(first, Draw("b").normal(3))
    assert not torch.equal(first, Draw("a", seed=1).normal(3))


def test_streams_do_not_overlap():
    draw = Draw("a")
    assert len(torch.cat([draw.bits(1000) for _ in range(5)]).unique()) == 5000


def test_normal_is_nearly_normal_and_exact():
    values = Draw("n").normal(200_000)
    assert abs(float(values.mean())) < 0.02
    assert float(values.std()) == pytest.approx(1.155, abs=0.02)
    assert torch.equal(values * 2**15, torch.round(values * 2**15))


@given(st.integers(1, 300))
def test_permutation_is_one(count):
    assert sorted(Draw("p").permutation(count).tolist()) == list(range(count))


@given(st.integers(0, 59), st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool]))
def test_the_fingerprint_sees_any_one_change(index, dtype):
    tensor = Draw("f").integers(5, 12, low=0, high=2).to(dtype)
    before = int(fingerprint(tensor))
    changed = tensor.clone()
    changed.view(-1)[index] = 1 - changed.view(-1)[index].to(torch.int32)
    assert int(fingerprint(tensor)) == before
    assert int(fingerprint(changed)) != before


def test_the_fingerprint_sees_places_and_nothing_of_layout():
    tensor = torch.arange(12.0).view(3, 4)
    assert int(fingerprint(tensor)) == int(fingerprint(tensor.t().contiguous().t()))
    assert int(fingerprint(tensor)) != int(fingerprint(tensor.flip(0)))
    assert int(fingerprint(torch.empty(0))) == 0


@pytest.mark.parametrize("key", ["grid:3:0", "grid:8:2", "x"])
def test_the_hash_in_plain_python_is_the_same(key):
    assert hashed(key, 9) == [bits & (1 << 64) - 1 for bits in Draw(key).bits(9).tolist()]
