"""The merging contracts: laws, small examples worked by hand, and the wrong answers they must catch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks import judge
from harness.contracts import make_inputs, op
from harness.contracts.attending import attend
from harness.contracts.merging.states import merged, merged_pairwise


def states(*parts: tuple[float, float]) -> dict:
    """The golden merge of one token and head: (value, lse) a part, values as wide as 8 equal numbers."""
    v = torch.tensor([[[[value] * 8] for value, _ in parts]], dtype=torch.float16)
    lse = torch.tensor([[[lse] for _, lse in parts]], dtype=torch.float32)
    return merged(v, lse, torch.float16)


def case_of(name: str, case_id: str):
    declared = op(name)
    x = make_inputs(declared.axes.parse(case_id), "cpu")
    return x, declared.impl.reference(x, declared.resolve({}))


def test_two_masses_weigh_by_their_sum() -> None:
    out = states((1.0, math.log(2)), (0.0, math.log(8)))
    assert out["o"].value.flatten()[0] == pytest.approx(0.2)
    assert out["lse"].value.item() == pytest.approx(math.log(10))


@pytest.mark.parametrize("weight", [0.2767, 0.1192])  # natural read as base 2, base 2 read as natural
def test_an_lse_in_the_other_base_is_caught(weight: float) -> None:
    expected = states((1.0, math.log(2)), (0.0, math.log(8)))["o"]
    assert judge(torch.full((1, 1, 8), 0.2, dtype=torch.float16), expected).right
    assert judge(torch.full((1, 1, 8), weight, dtype=torch.float16), expected).reason == "numerics"


@pytest.mark.parametrize("parts", [2, 3])
def test_empty_parts_alone_give_nothing_and_nan_is_caught(parts: int) -> None:
    out = states(*[(0.0, -math.inf)] * parts)
    assert out["o"].value.eq(0).all()
    assert out["lse"].value.item() == -math.inf
    assert judge(torch.full((1, 1, 8), math.nan, dtype=torch.float16), out["o"]).reason == "numerics"
    assert judge(torch.tensor([[math.nan]]), out["lse"]).reason == "numerics"
    assert judge(torch.tensor([[-math.inf]]), out["lse"]).right


def test_an_empty_part_with_a_finite_lse_is_caught() -> None:
    right, poisoned = states((1.0, 0.5), (0.0, -math.inf)), states((1.0, 0.5), (0.0, 0.0))
    assert right["o"].value.flatten()[0] == 1
    assert judge(poisoned["o"].value.half(), right["o"]).reason == "numerics"
    assert judge(poisoned["lse"].value.float(), right["lse"]).reason == "numerics"


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(0, 12), max_size=4), st.integers(0, 2**31))
def test_merging_the_parts_of_a_key_set_gives_attention_over_the_whole(keys: int, cuts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(n, 2, 8, generator=generator, dtype=torch.float64) for n in (3, keys, keys))
    bounds = [0, *sorted(min(cut, keys) for cut in cuts), keys]
    parts = [attend(q, k[a:b], v[a:b], 0.5) for a, b in itertools.pairwise(bounds)]
    o, lse = torch.stack([p.o for p in parts], 1), torch.stack([p.lse for p in parts], 1)
    whole = attend(q, k, v, 0.5)
    for got in (merged_pairwise(o, lse), {name: value.value for name, value in merged(o, lse, torch.float32).items()}):
        torch.testing.assert_close(got["o"], whole.o)
        torch.testing.assert_close(got["lse"], whole.lse)


@pytest.mark.parametrize(("name", "case_id"), [("merge_state", "t3-h12-fp16"), ("merge_states", "n4-t3-h12-fp16")])
def test_a_lost_part_and_a_lost_head_are_caught(name: str, case_id: str) -> None:
    x, expected = case_of(name, case_id)
    good = expected["o"].value.half()
    assert judge(good, expected["o"]).error <= 0.5
    lost = good.clone()
    lost[1, 7] = 0
    assert judge(lost, expected["o"]).reason == "numerics"
    alone = x.v_a if name == "merge_state" else x.v[:, 0]
    assert judge(alone, expected["o"]).reason == "numerics"


def test_suffix_merge_without_the_suffix_or_with_a_hidden_key_is_caught() -> None:
    x, expected = case_of("suffix_merge", "t4-h6-g6-s4-d64-fp16")
    good = expected["o"].value.half()
    assert judge(good, expected["o"]).error <= 0.5
    assert judge(x.o, expected["o"]).reason == "numerics"
    more = x.copy_with(suffix_len=torch.full_like(x.suffix_len, x.slots.shape[1]))
    wrong = op("suffix_merge").impl.reference(more, {})["o"].value.half()
    assert judge(wrong, expected["o"]).reason == "numerics"
