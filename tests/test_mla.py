"""The mla contracts: laws, small examples worked by hand, and the wrong answers they must catch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks import judge
from harness.contracts import make_inputs, op
from harness.contracts.merging.states import merged

NATURAL = {"lse": "natural", "fp32_dot": "ieee", "empty": "minus-inf", "arithmetic": "exact", "mass": "fp32"}


def golden(name: str, x, **semantics: str):
    return op(name).impl.reference(x.copy_with(memo={}), NATURAL | semantics)


def inputs(name: str, case_id: str):
    return make_inputs(op(name).axes.parse(case_id), "cpu")


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 5), st.integers(0, 2**31))
def test_absorbed_and_explicit_prefill_are_one_attention(heads: int, new: int, prefix: int, seed: int) -> None:
    """k_nope = U c and v = V c for latents c: q_nope . U c = (U^T q_nope) . c, and the sum of P V c is V times the sum of P c."""
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64}
    up, values = (torch.randn(heads, 128, 512, **draw) / 16 for _ in range(2))
    shape = f"b1-h{heads}-n{new}" + (f"-pre{prefix}" if prefix else "") + "-fp32"
    explicit, absorbed = inputs("mla_prefill", shape), inputs("mla_prefill_absorbed", shape)
    latent = torch.randn(absorbed.kv.shape[0], 1, 576, **draw)
    rows = latent.view(-1, 576)[absorbed.slots[0]]
    q = torch.randn(new, heads, 192, **draw)
    keys = torch.cat((torch.einsum("hdc,kc->khd", up, rows[:, :512]), rows[:, None, 512:].expand(-1, heads, -1)), -1)
    a = golden("mla_prefill", explicit.copy_with(q=q, k=keys, v=torch.einsum("hdc,kc->khd", values, rows[:, :512])))
    joined = torch.cat((torch.einsum("hdc,thd->thc", up, q[..., :128]), q[..., 128:]), -1)
    b = golden("mla_prefill_absorbed", absorbed.copy_with(q=joined, kv=latent))
    torch.testing.assert_close(torch.einsum("hdc,thc->thd", values, b["o"].value), a["o"].value)
    torch.testing.assert_close(b["lse"].value, a["lse"].value)


def test_the_pages_of_a_pool_do_not_matter() -> None:
    x = inputs("mla_decode", "b3-h4-s9-pg4-fp32-ragged")
    single = x.copy_with(kv=x.kv.view(-1, 1, 576))
    torch.testing.assert_close(golden("mla_decode", single)["o"].value, golden("mla_decode", x)["o"].value)
    indptr, slots = x.tokens()
    assert indptr.tolist() == [0, *torch.cumsum(x.kv_len, 0).tolist()]
    table = x.block_table
    for request, length in enumerate(x.kv_len.tolist()):
        pages = table[request, torch.arange(length) // 4].long()
        assert torch.equal(slots[indptr[request] : indptr[request + 1]], pages * 4 + torch.arange(length) % 4)


@pytest.mark.parametrize("page", [65535, 65537])
def test_a_page_id_cut_to_16_bits_is_caught(page: int) -> None:
    x = inputs("mla_decode", f"b1-h1-s3-id{page}-fp16")
    assert int(x.kv_indices.max()) == page
    wrong = golden("mla_decode", x.copy_with(slots=[slots & 0xFFFF for slots in x.slots]))
    outcome = judge(wrong["o"].value.half(), golden("mla_decode", x)["o"])
    assert outcome.right == (page == 65535)


def test_decode_catches_a_lost_key_a_lost_head_and_an_lse_in_base_2() -> None:
    x = inputs("mla_decode", "b2-h12-s9-fp16-ragged")
    expected = golden("mla_decode", x)
    good = expected["o"].value.half()
    assert judge(good, expected["o"]).error <= 0.5
    short = golden("mla_decode", x.copy_with(slots=[slots[:-1] for slots in x.slots]))
    assert judge(short["o"].value.half(), expected["o"]).reason == "numerics"
    good[1, 11] = good[1, 10]
    assert judge(good, expected["o"]).reason == "numerics"
    assert judge((expected["lse"].value / math.log(2)).float(), expected["lse"]).reason == "numerics"


def test_several_queries_are_causal_and_end_at_the_last_key() -> None:
    x = inputs("mla_decode", "b1-q3-h2-s5-fp32")
    last = x.copy_with(q=x.q[2:], q_len=[1], qo_indptr=torch.tensor([0, 1], dtype=torch.int32))
    first = x.copy_with(q=x.q[:1], q_len=[1], qo_indptr=last.qo_indptr, slots=[x.slots[0][:3]])
    whole = golden("mla_decode", x)["o"].value
    torch.testing.assert_close(golden("mla_decode", last)["o"].value[0], whole[2])
    torch.testing.assert_close(golden("mla_decode", first)["o"].value[0], whole[0])


def test_a_request_without_keys_has_no_output_and_nan_is_caught() -> None:
    x = inputs("mla_decode", "b2-h1-s3-fp32-empty")
    expected = golden("mla_decode", x)
    assert expected["o"].value[1].eq(0).all()
    assert expected["lse"].value[1].item() == -math.inf
    assert judge(torch.where(expected["lse"].value[..., None].isinf(), math.nan, expected["o"].value).float(), expected["o"]).reason == "numerics"
    plus = {"lse": torch.full((2, 1), math.inf)}
    assert op("mla_decode").impl.convert(x, plus, NATURAL | {"empty": "plus-inf"})["lse"].eq(-math.inf).all()


@pytest.mark.parametrize("cache", ["e4m3fn", "e4m3fnuz", "allfp8", "allfnuz"])
def test_an_ignored_scale_of_an_fp8_cache_is_caught(cache: str) -> None:
    x = inputs("mla_decode", f"b2-h3-s20-bf16-{cache}")
    for arithmetic in ("exact", "cache"):
        expected = golden("mla_decode", x, arithmetic=arithmetic)["o"]
        assert judge(expected.value.bfloat16(), expected).right
        ignored = golden("mla_decode", x.copy_with(kv_scale=1.0), arithmetic=arithmetic)["o"].value
        assert judge(ignored.bfloat16(), expected).reason == "numerics"


def chunked(x, *, empty_lse: float):
    """mla_prefill as chunks merged: what a provider does; a chunk without keys has the given lse."""
    parts = [(x.keys(x.prefix_len, x.kv_len), x.q_len)]
    for start in range(0, max(x.prefix_len), x.chunk):
        low, high = ([min(edge, n) for n in x.prefix_len] for edge in (start, start + x.chunk))
        parts.append((x.keys(low, high), [b - a for a, b in zip(low, high, strict=True)]))
    states = []
    for at, (rows, lengths) in enumerate(parts):
        o, lse, bounds = torch.zeros(*x.q.shape[:2], 128, dtype=torch.float64), torch.full(x.q.shape[:2], empty_lse, dtype=torch.float64), [0, 0]
        for count, keys in zip(x.q_len, lengths, strict=True):
            q, kv = slice(bounds[0], bounds[0] + count), rows[bounds[1] : bounds[1] + keys]
            bounds = [bounds[0] + count, bounds[1] + keys]
            scores = torch.einsum("qhd,khd->hqk", x.q[q].double(), x.k[kv].double()) * x.scale
            scores = scores.masked_fill(torch.ones(count, keys).triu(1).bool(), -math.inf) if at == 0 else scores
            if keys:
                lse[q] = torch.logsumexp(scores, -1).T
                o[q] = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), x.v[kv].double())
        states.append((o, lse))
    return merged(torch.stack([o for o, _ in states], 1), torch.stack([lse for _, lse in states], 1), x.q.dtype)


def test_chunked_prefill_merges_to_the_whole_and_a_poisoned_chunk_is_caught() -> None:
    x = inputs("mla_prefill", "b4-h2-n3-pre9-c4-fp32-empty")
    assert min(n for _, indptr, _ in x.chunks() for n in indptr.diff().tolist()) == 0
    expected = golden("mla_prefill", x)
    right, wrong = chunked(x, empty_lse=-math.inf), chunked(x, empty_lse=0.0)
    torch.testing.assert_close(right["o"].value, expected["o"].value)
    torch.testing.assert_close(right["lse"].value, expected["lse"].value)
    assert judge(right["o"].value.float(), expected["o"]).right
    assert judge(wrong["o"].value.float(), expected["o"]).reason == "numerics"


def test_prefill_catches_a_mask_aligned_at_the_first_key() -> None:
    x = inputs("mla_prefill", "b1-h2-n3-pre4-fp16")
    scores = torch.einsum("qhd,khd->hqk", x.q.double(), x.k.double()) * x.scale
    weights = torch.softmax(scores.masked_fill(torch.ones(3, 7).triu(1).bool(), -math.inf), -1)
    assert judge(torch.einsum("hqk,khd->qhd", weights, x.v.double()).half(), golden("mla_prefill", x)["o"]).reason == "numerics"


def test_absorbed_prefill_catches_a_key_past_the_query() -> None:
    x = inputs("mla_prefill_absorbed", "b1-h2-n3-pre4-fp16")
    expected = golden("mla_prefill_absorbed", x)["o"]
    assert judge(expected.value.half(), expected).right
    past = golden("mla_prefill_absorbed", x.copy_with(q_len=[1, 1, 1], qo_indptr=torch.arange(4, dtype=torch.int32), slots=x.slots * 3))
    assert judge(past["o"].value.half(), expected).reason == "numerics"


@pytest.mark.parametrize("heads", [8, 12])
def test_k_assembly_that_writes_a_power_of_two_of_heads_is_caught(heads: int) -> None:
    x = inputs("concat_mla_k", f"t3-h{heads}-fp16")
    expected = golden("concat_mla_k", x)["k"]
    k = torch.full(expected.value.shape, math.nan, dtype=torch.float16)
    k[:, :8] = expected.value[:, :8]
    assert judge(k, expected).right == (heads == 8)
    assert not x.k_nope.is_contiguous()


def test_q_assembly_in_the_wrong_order_is_caught() -> None:
    x = inputs("concat_mla_absorb_q", "t3-h2-bf16")
    expected = golden("concat_mla_absorb_q", x)["q"]
    assert judge(torch.cat((x.q_nope, x.q_rope), -1), expected).right
    assert judge(torch.cat((x.q_rope, x.q_nope), -1), expected).reason == "numerics"
