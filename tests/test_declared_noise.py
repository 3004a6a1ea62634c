"""Random numbers that a provider declares: two formulas of each, and rows that a number which is a little off decides otherwise."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import checks
from harness.contracts import Inputs, make_inputs, op
from harness.contracts.sampling import murmur
from harness.contracts.speculative import noise

SEEDS = st.integers(0, 2**64 - 1)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(0, 2**31 - 1))
def test_philox_is_the_same_in_tensors_and_in_integers(seed: int, counter: int) -> None:
    assert int(noise.philox(seed, torch.tensor([counter]))[0]) == noise.philox_one(seed, counter)


def test_philox_is_the_one_that_was_published() -> None:
    """Known answers of Random123 for a counter and a key of zeros."""
    assert noise.philox_one(0, 0) == 0x6627E8D5


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([0, 1, murmur.WORD]), st.integers(0, 2**31 - 1), st.integers(0, 1 << 20), st.integers(0, murmur.WORD))
def test_the_hash_runs_backwards_under_any_upper_word(value: int, position: int, column: int, high: int) -> None:
    assert murmur.hash_one(high << 32 | murmur.seed_for(value, position, column, high), position, column) == value


def level(case_id: str = "b12-n4-v111-level") -> Inputs:
    return make_inputs(op("dspark_accept_sampling").axes.parse(case_id), "cpu")


def answer(x: Inputs, made: noise.Noise) -> dict[str, torch.Tensor]:
    """What the noise picks, from fp64 alone."""
    batch, slots = x.candidates.shape
    p = torch.softmax(x.target_logits.double() / x.temperatures.double().repeat_interleave(slots, 0), -1).view(batch, slots, -1)
    rows = torch.arange(batch)
    drafted = x.candidates[:, 1:, None]
    taken = p[:, :-1].gather(2, drafted).squeeze(2) > made.coins * x.draft_probs.double().gather(2, drafted).squeeze(2)
    count = taken.int().cumprod(1).sum(1)
    left = torch.cat((p[:, :-1] - x.draft_probs, p[:, -1:]), 1)[rows, count].clamp(min=0)
    return {"correct_len": count, "bonus": (left.log() + made.gumbel).argmax(1), "cap_trim_lens": torch.zeros_like(count)}


def said(x: Inputs, outputs: dict[str, torch.Tensor]) -> str:
    impl, semantics = op("dspark_accept_sampling").impl, {"noise": "counter"}
    return checks.judge(impl.convert(x, outputs, semantics)["bonus"], impl.reference(x, semantics)["bonus"]).reason


@pytest.mark.parametrize("case_id", ["b12-n4-v111-level", "b12-n3-v111-level-w0", "b5-n3-v9-level-w2"])
def test_what_the_noise_picks_is_right(case_id: str) -> None:
    x = level(case_id)
    assert said(x, answer(x, noise.declared(x, "counter"))) == ""


def test_a_coin_or_a_noise_that_is_a_little_off_decides_otherwise() -> None:
    x = level()
    made = noise.declared(x, "counter")
    off = [1.001, 1 + 0.01 * torch.arange(111) / 111]
    for wrong in (noise.Noise(made.coins * off[0], made.gumbel, made.margin), noise.Noise(made.coins, made.gumbel * off[1], made.margin)):
        assert said(x, answer(x, wrong)) in ("numerics", "support")


def test_another_step_is_other_noise() -> None:
    x = level()
    later = x.copy_with(noise_step=x.noise_step + 1)
    assert said(x, answer(x, noise.declared(later, "counter"))) in ("numerics", "support")


@pytest.mark.parametrize(("slots", "value"), [(4, 0), (3, murmur.WORD)])
def test_a_level_row_has_the_least_or_the_greatest_number(slots: int, value: int) -> None:
    x = level(f"b2-n{slots}-v111-level")
    seed = (int(x.noise_key) + int(x.noise_step) * noise.STEP) % 2**64
    assert murmur.hash_one(seed, 0, 110) == value


def test_a_hash_that_is_a_little_off_draws_another_token() -> None:
    declared, semantics = op("seeded_sample"), {"ties": "all", "noise": "murmur3"}
    x = make_inputs(declared.axes.parse("b6-v111-level"), "cpu")
    golden = declared.impl.reference(x, semantics)["ids"]
    right = declared.impl.second(x, semantics)["ids"]
    assert checks.judge(right, golden).right
    blunt = (murmur.hashes(x.seeds, x.positions, 111) & ~0xFFFF).double() / murmur.WORD  # without its lower 16 bits
    wrong = (x.probs.double().log() - torch.log(-torch.log(blunt.clamp(1e-300, 1 - 2.0**-33)))).argmax(-1)
    assert checks.judge(wrong[:, None].expand(-1, 2), golden).reason == "support"


@pytest.mark.parametrize(
    ("row", "ids"),
    [([1.0, 3.0, 3.0], {"any": {1, 2}, "first": {1}}), ([float("-inf")] * 3, {"any": {0, 1, 2}, "first": {0}})],
)
def test_of_equal_logits_the_first_where_that_is_promised(row: list[float], ids: dict[str, set[int]]) -> None:
    declared = op("greedy")
    x = make_inputs(declared.axes.parse("b1-v3"), "cpu").copy_with(logits=torch.tensor([row]))
    for ties, allowed in ids.items():
        golden = declared.impl.reference(x, declared.resolve({"ties": ties}))["ids"]
        assert {i for i in range(3) if checks.judge(torch.tensor([i]), golden).right} == allowed


def test_of_a_row_with_nan_the_first_where_that_is_promised() -> None:
    declared = op("greedy")
    x = make_inputs(declared.axes.parse("b1-v4"), "cpu").copy_with(logits=torch.tensor([[1.0, float("nan"), 5.0, float("nan")]]))
    golden = declared.impl.reference(x, declared.resolve({"ties": "first", "nan": "first"}))["ids"]
    assert [checks.judge(torch.tensor([i]), golden).right for i in range(4)] == [False, True, False, False]
