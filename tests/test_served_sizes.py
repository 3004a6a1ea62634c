"""Sizes that no machine holds are refused by `served` before anything runs; what the refusal says is a lower bound."""

from __future__ import annotations

import pytest

from harness.contracts import make_inputs, op
from harness.contracts.models import load_models
from harness.errors import UsageError
from harness.selection import DEFAULT_CASES
from harness.served.attention.cases import MODES, Asked, cases_of
from harness.served.attention.sizes import least_bytes, memory, refuse_too_large

MODELS = load_models(DEFAULT_CASES / "models.toml")
LARGE = ("decode_attention", "b2-h4-kv1-s6000-fp16"), ("mla_prefill", "b1-h12-n600-fp16"), ("extend_attention", "b1-h32-kv1-q800-fp16")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--context", "999999999"), "prefill of --context 999999999 and --batch 2 takes at least "),
        (("--batch", "99999999"), "prefill of --context 32 and --batch 99999999 takes at least "),
        (("--mode", "decode", "--context", "32,99999999"), "decode of --context 99999999 and --batch 2 takes at least "),
    ],
)
def test_what_the_machine_cannot_hold_is_one_line_with_its_bytes(typed, asked, said):
    code, out, err = typed("served", "--model", "llama-3.1-8b", "--platform", "cpu", *asked)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert said in err
    assert err.rstrip().endswith(f"GiB of memory and this machine has {memory({}) / 2**30:,.0f} GiB: give smaller sizes")


def test_a_page_has_a_largest_size(typed):
    code, _, err = typed("served", "--model", "llama-3.1-8b", "--platform", "cpu", "--page-size", "1000000")
    assert code == 2
    assert "'--page-size': 1000000 is not in the range 1<=x<=4096" in err


@pytest.mark.parametrize(("op_name", "case"), LARGE)
def test_the_bytes_are_those_of_the_largest_tensor_while_its_numbers_are_hashed(op_name, case):
    x = make_inputs(op(op_name).axes.parse(case), "cpu")
    elements = max(tensor.numel() for _, tensor in x.tensors())
    assert least_bytes(x.case) == pytest.approx(3 * 8 * elements, rel=0.05)  # three int64 an element


@pytest.mark.parametrize("model", ["llama-3.1-8b", "kimi-k3", "gpt-oss"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_takes_more_with_more_of_anything(model, mode):
    def least(context=4096, batch=8, page=1):
        return [least_bytes(one.case) for one in cases_of(MODELS[model].rank(1), mode, Asked(context, batch, "bf16", page))]

    small = least()
    assert all(many > few for many, few in zip(least(context=65536), small, strict=True))
    assert all(many > few for many, few in zip(least(batch=16), small, strict=True))
    assert all(many >= few for many, few in zip(least(page=64), small, strict=True))


def test_a_device_has_the_memory_that_it_says():
    case = op("decode_attention").axes.parse("b64-h8-kv8-s100000-bf16")
    words = {case: "decode of --context 100000 and --batch 64"}
    refuse_too_large(words, {"name": "Instinct MI355X", "memory_mib": str(288 << 10)})
    with pytest.raises(UsageError, match="takes at least 183 GiB of memory and NVIDIA H200 has 140 GiB"):
        refuse_too_large(words, {"name": "NVIDIA H200", "memory_mib": "143360"})
    refuse_too_large({}, {})
