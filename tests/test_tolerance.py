"""The budget on a grid: right low-precision implementations stay well under it, small mistakes do not, and how small is invisible."""

from __future__ import annotations

import functools
import math

import pytest
import torch

from harness.checks import judge, tolerance
from harness.checks.visible import visible
from harness.contracts import Close, make_inputs, op
from tests.lowprecision import RIGHT, How, attention, cut_everywhere, merge, requests, rounded_everywhere

DTYPES = ("fp32", "fp16", "bf16")
SHAPES = {
    "decode_attention": {"batch": 2, "heads": 8, "kv_heads": 2, "length": 300, "dim": 64},
    "extend_attention": {"batch": 1, "heads": 4, "kv_heads": 2, "new": 33, "prefix": 100, "dim": 64},
    "verify_attention": {"batch": 2, "heads": 6, "kv_heads": 1, "nodes": 4, "prefix": 100, "dim": 64},
    "mla_decode": {"batch": 1, "heads": 5, "length": 300},
    "mla_prefill": {"batch": 1, "heads": 3, "new": 20, "prefix": 90},
    "mla_prefill_absorbed": {"batch": 1, "heads": 3, "new": 9, "prefix": 90},
    "sparse_mla_prefill": {"tokens": 6, "heads": 3, "k": 128, "length": 200},
}
LONG = {"batch": 1, "heads": 8, "kv_heads": 2, "length": 2048, "dim": 64}
GRID = [(name, dtype, {}) for name in SHAPES for dtype in DTYPES]
GRID += [("decode_attention", dtype, {"values": values}) for dtype in DTYPES for values in ("peaked", "flat")]
GRID += [("decode_attention", dtype, {"length": length}) for dtype in DTYPES for length in (1, 17, 2048)]


@functools.lru_cache(maxsize=64)
def made(name, dtype, axes=()):
    declared = op(name)
    x = make_inputs(declared.axes.case(**{**SHAPES[name], "dtype": dtype, **dict(axes)}), "cpu")
    return x, declared.impl.reference(x, declared.resolve({}))


def shares(outputs, golden):
    """Greatest error of each output as a share of its budget; inf where a number is missing."""
    return {name: judge(value, golden[name]).error for name, value in outputs.items()}


@pytest.mark.parametrize(("name", "dtype", "axes"), GRID)
def test_right_implementations_stay_well_under_the_budget(name, dtype, axes):
    x, golden = made(name, dtype, tuple(axes.items()))
    worst = [shares(attention(x, how), golden) for how in RIGHT]
    print(f"{name} {dtype} {axes}: o {max(share['o'] for share in worst):.2f}, lse {max(share['lse'] for share in worst):.2f} of the budget")
    assert max(max(share.values()) for share in worst) <= 0.5


@pytest.mark.parametrize(("name", "values"), [*((name, "") for name in SHAPES), ("decode_attention", "peaked")])
def test_operands_cut_to_tf32_stay_under_the_budget_of_tf32_and_far_over_that_of_fp32(name, values):
    """The cuts have one sign, so that a score is lost by a share of itself: the greater it is, the more."""
    x, exact = made(name, "fp32", (("values", values),) if values else ())
    golden = op(name).impl.reference(x, op(name).resolve({"fp32_dot": "tf32"}))
    out = cut_everywhere(x)
    print(f"{name} {values or 'random'}: {shares(out, golden)} of the budget of tf32, {shares(out, exact)} of that of fp32")
    assert max(shares(out, golden).values()) <= 0.6
    assert min(shares(out, exact).values()) > 1


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_budget_is_within_a_factor_of_what_a_low_precision_run_errs(name, dtype):
    """Root mean squares: the budget over the error of PyTorch with rounded weights. A looser budget would hide, a tighter one accuse."""
    x, golden = made(name, dtype)
    error = attention(x, How())["o"].double() - golden["o"].value
    ratio = float(tolerance(golden["o"], x.q.dtype).square().mean().sqrt() / error.square().mean().sqrt())
    print(f"{name} {dtype}: budget / error {ratio:.1f}")
    assert 4 <= ratio <= 20


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_run_that_rounds_scores_too_is_within_the_budget_only_where_scores_are_small(dtype):
    """Scores rounded to 16 bits are no arithmetic of a right kernel: where they are large the budget accuses, as it must."""
    small, large = (made("decode_attention", dtype, axes) for axes in ((), (("values", "peaked"),)))
    assert shares(rounded_everywhere(small[0]), small[1])["o"] <= 1
    assert shares(rounded_everywhere(large[0]), large[1])["o"] > 1


def wrong_head(out):
    out["o"][:, 0] = out["o"][:, 1]


def swapped_tokens(out):
    out["o"][[0, -1]] = out["o"][[-1, 0]]


def unwritten(out):
    out["o"].view(-1)[out["o"].numel() // 2] = math.nan


def left_zero(out):
    out["o"].view(-1)[int(out["o"].abs().argmax())] = 0


def other_base(out):
    out["lse"] *= 1 / math.log(2)


SPOILT = [wrong_head, unwritten, left_zero, other_base]


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_spoilt_output_does_not_pass(name, dtype, spoil):
    x, golden = made(name, dtype)
    outputs = attention(x, How())
    spoil(outputs)
    found = shares(outputs, golden)
    assert found["lse" if spoil is other_base else "o"] > 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "mla_decode"])  # one token alone cannot be swapped
def test_a_wrong_token_does_not_pass(name, dtype):
    x, golden = made(name, dtype)
    outputs = attention(x, How())
    swapped_tokens(outputs)
    assert shares(outputs, golden)["o"] > 2


# each shows in o as well, which is all that some providers return
WRONG = {
    "skipped 16 keys": How(block=16, skip=2),
    "skipped 32 keys": How(block=32, skip=1),
    "skipped 64 keys": How(block=64, skip=0),
    "split not rescaled": How(splits=4, unscaled=True),
    "one key short": How(short=1),
    "scale off by 2 %": How(scale=1.02),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_sum_does_not_pass_by_o_or_by_lse(name, dtype, fault):
    x, golden = made(name, dtype)
    found = shares(attention(x, WRONG[fault]), golden)
    print(f"{name} {dtype} {fault}: o {found['o']:.3g}, lse {found['lse']:.3g}")
    assert max(found.values()) > 2
    assert found["o"] > 1


@pytest.mark.parametrize("fault", [fault for fault in WRONG if fault != "scale off by 2 %"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_sum_over_a_long_cache_shows_in_o_alone(dtype, fault):
    """2,048 keys, of which 16 hold less than a hundredth."""
    x, golden = made("decode_attention", dtype, tuple(LONG.items()))
    assert shares(attention(x, WRONG[fault]), golden)["o"] > 1


@pytest.mark.parametrize(("dtype", "length"), [("fp32", 64), ("fp16", 64), ("bf16", 2048)])
@pytest.mark.parametrize("block", [16, 32])
def test_a_bf16_accumulator_does_not_pass(dtype, length, block):
    x, golden = made("decode_attention", dtype, tuple({**LONG, "length": length}.items()))
    assert shares(attention(x, How(block=block)), golden)["o"] <= 0.5
    assert shares(attention(x, How(block=block, accumulator=torch.bfloat16)), golden)["o"] > 1


def test_a_bf16_accumulator_of_few_steps_cannot_be_told_from_rounding():
    """Four roundings of O to bf16, where the output is rounded to bf16 as well: what a merge of four partial states in bf16 does too."""
    x, golden = made("decode_attention", "bf16", tuple({**LONG, "length": 64}.items()))
    assert shares(attention(x, How(block=16, accumulator=torch.bfloat16)), golden)["o"] <= 1


# the mass of a skipped block from which on it shows: in o alone, and in lse, whose budget grows with the scores (here up to 40)
MASS = {"fp32": (3e-5, 1e-4), "fp16": (1e-3, 1e-4), "bf16": (5e-3, 1e-4)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_skipped_block_shows_from_this_mass_on(dtype):
    x, golden = made("decode_attention", dtype, tuple({**LONG, "length": 512, "values": "peaked", "heads": 4}.items()))
    ((_, k, _, _),) = requests(x)
    scores = torch.einsum("hd,khd->hk", x.q[0].double(), k.double().repeat_interleave(2, 1)) * x.scale
    masses = torch.softmax(scores, -1).view(4, -1, 16).sum(-1)
    unseen = {"o": 0.0, "lse": 0.0}
    for block in range(masses.shape[1]):
        outputs = attention(x, How(block=16, skip=block))
        for name in unseen:
            ratio = (outputs[name].double() - golden[name].value).abs() / tolerance(golden[name], outputs[name].dtype)
            for head, passed in enumerate((ratio[0].reshape(4, -1).amax(1) <= 1).tolist()):
                unseen[name] = max(unseen[name], float(masses[head, block]) * passed)
    print(f"{dtype}: a block of 16 keys passed with a mass of {unseen['o']:.2g} by o, {unseen['lse']:.2g} by lse")
    assert unseen["o"] <= MASS[dtype][0]
    assert unseen["lse"] <= MASS[dtype][1]


@pytest.mark.parametrize("values", ["random", "far", "masses", "empty", "bothempty"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_merging_is_right_in_fp32_and_wrong_without_a_weight(dtype, values):
    declared = op("merge_states")
    x = make_inputs(declared.axes.case(parts=3, tokens=4, heads=3, dim=64, dtype=dtype, values=values), "cpu")
    golden = declared.impl.reference(x, declared.resolve({}))
    states = [(x.v[:, part].float(), x.lse[:, part, :, None]) for part in range(3)]
    o, lse = merge(states)
    assert max(shares({"o": o.to(x.v.dtype), "lse": lse.squeeze(-1)}, golden).values()) <= 0.5
    o, lse = merge(states, unscaled=True)
    assert max(shares({"o": o.to(x.v.dtype), "lse": lse.squeeze(-1)}, golden).values()) > 1


@pytest.mark.parametrize("name", ["temperature_softmax", "softmax_temp"])
@pytest.mark.parametrize("values", ["random", "peaked", "ties", "masked"])
def test_softmax_is_right_in_fp32_and_wrong_in_bf16_or_at_another_temperature(name, values):
    declared = op(name)
    shape = {"batch": 2, "vocab": 4097} | ({"slots": 1} if name == "softmax_temp" else {})
    x = make_inputs(declared.axes.case(**shape, temperature=0.75, values=values), "cpu")
    golden = declared.impl.reference(x, declared.resolve({}))
    assert judge(torch.softmax(x.logits / 0.75, -1), golden["probs"]).error <= 0.5
    assert judge(torch.softmax((x.logits / 0.75).bfloat16(), -1).float(), golden["probs"]).error > 1
    assert judge(torch.softmax(x.logits / 0.755, -1), golden["probs"]).error > 1


def test_what_is_visible_is_found_and_half_of_it_is_not():
    golden = made("decode_attention", "bf16")[1]
    o = golden["o"]
    least = visible(o.value, tolerance(o, torch.bfloat16))
    exact = Close(o.value, o.magnitude, o.spread, operand=o.operand, inner=o.inner, terms=o.terms)
    budget = tolerance(exact, torch.float64) + torch.finfo(torch.bfloat16).eps * o.value.abs()

    def found(factor):
        return ((o.value * (factor - 1)).abs() > budget).flatten(0, 1).any(-1)

    assert bool(found(1 + 1.01 * least["scale_worst"]).all())
    assert float(found(1 + 1.01 * least["scale"]).double().mean()) >= 0.5
    assert float(found(1 + 0.5 * least["scale"]).double().mean()) < 0.5
    assert least["scale"] <= least["scale_worst"]
    assert least["element"] <= least["element_worst"]


def test_nothing_is_visible_in_rows_without_values():
    zero = torch.zeros(3, 8, dtype=torch.float64)
    assert visible(zero, zero + 1) == {}
    assert visible(zero[:0], zero[:0]) == {}
    assert visible(torch.tensor(2.0, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64))["scale"] == 0.25
    ragged = torch.tensor([[1.0, -math.inf], [math.nan, 1.0]], dtype=torch.float64)
    assert visible(ragged, torch.full_like(ragged, 0.5))["scale_worst"] == 0.5
