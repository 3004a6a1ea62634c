"""The sparse contracts: laws, and the wrong answers they must catch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks import judge
from harness.contracts import make_inputs, op

NATURAL = {"lse": "natural", "fp32_dot": "ieee", "empty": "minus-inf", "arithmetic": "exact"}
BOTH = pytest.mark.parametrize("name", ["sparse_mla_prefill", "sparse_mla_decode"])


def inputs(name: str, case_id: str):
    return make_inputs(op(name).axes.parse(case_id), "cpu")


def golden(name: str, x, **semantics: str):
    return op(name).impl.reference(x.copy_with(memo={}), NATURAL | semantics)


@BOTH
def test_all_slots_selected_is_dense_attention(name: str) -> None:
    x = inputs(name, "t2-h3-k16-s16-fp32")
    out = golden(name, x)
    scores = torch.einsum("thd,kd->thk", x.q.double(), x.kv[:, 0].double()) * x.scale
    torch.testing.assert_close(out["o"].value, torch.softmax(scores, -1) @ x.kv[:, 0, :512].double())
    torch.testing.assert_close(out["lse"].value, torch.logsumexp(scores, -1))


@BOTH
@pytest.mark.parametrize("selection", ["ragged", "holes", "empty"])
def test_an_invalid_index_read_as_slot_0_is_caught(name: str, selection: str) -> None:
    x = inputs(name, f"t6-h2-k8-s20-fp16-{selection}")
    expected = golden(name, x)["o"]
    assert judge(expected.value.half(), expected).error <= 0.5
    assert judge(golden(name, x.copy_with(indices=x.indices.clamp_min(0)))["o"].value.half(), expected).reason == "numerics"


@BOTH
def test_indices_are_distinct_and_topk_length_is_past_the_last(name: str) -> None:
    for case_id in ("t9-h1-k8-s20-fp16-ragged", "t9-h1-k8-s20-fp16-holes", "t9-h1-k8-s20-fp16-empty", "t9-h1-k8-s5-fp16"):
        x = inputs(name, case_id)
        for row, last in zip(x.indices[:, 0].tolist(), x.topk_length.tolist(), strict=True):
            valid = [i for i in row if i >= 0]
            assert len(set(valid)) == len(valid)
            assert last == max((at + 1 for at, i in enumerate(row) if i >= 0), default=0)


def test_a_query_without_tokens_has_no_output() -> None:
    out = golden("sparse_mla_prefill", inputs("sparse_mla_prefill", "t4-h2-k8-s20-fp32-empty"))
    assert out["o"].value[::3].eq(0).all()
    assert out["lse"].value[::3].eq(-math.inf).all()


def test_the_packed_cache_stands_for_its_plain_form() -> None:
    x = inputs("sparse_mla_decode", "t1-h1-k8-s70-bf16-packed")
    raw = x.packed.view(-1, 656)
    latent, scales, rope = raw[:, :512].view(torch.float8_e4m3fn), raw[:, 512:528].view(torch.float32), raw[:, 528:].view(torch.bfloat16)
    assert torch.equal((latent.double().view(-1, 4, 128) * scales.double()[..., None]).view(-1, 512), x.kv[:, 0, :512].double())
    assert torch.equal(rope, x.kv[:, 0, 512:])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.sampled_from(["random", "ties", "flat", "narrow"]), st.integers(0, 2**31))
def test_any_choice_of_the_best_passes_in_any_order_and_a_worse_one_does_not(length: int, k: int, values: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = inputs("indexer_topk", f"r3-s{length}-k{k}-ragged" + (f"-{values}" if values != "random" else ""))
    expected = golden("indexer_topk", x)["indices"]
    out = torch.full((3, k), -1, dtype=torch.int32)
    for row, count in enumerate(x.lengths.tolist()):
        shuffled = torch.randperm(count, generator=generator)
        best = shuffled[torch.sort(x.scores[row, shuffled], descending=True, stable=True).indices][:k]
        out[row, torch.randperm(k, generator=generator)[: len(best)]] = best.int()
    assert judge(out, expected).right
    for row, count in enumerate(x.lengths.tolist()):
        left = sorted(set(range(count)) - set(out[row].tolist()), key=lambda i: float(x.scores[row, i]))
        best_at = int(torch.where(out[row] >= 0, x.scores[row][out[row].clamp_min(0).long()], -math.inf).argmax())
        if left and x.scores[row, left[0]] < x.scores[row, out[row, best_at]]:
            wrong = out.clone()
            wrong[row, best_at] = left[0]
            assert judge(wrong, expected).reason == "support"


@pytest.mark.parametrize(("first", "said"), [(60, "outside the row"), (-1, "wrong number"), (None, "index twice"), (0x5A5A5A5A, "outside the row")])
def test_broken_indices_are_caught(first: int | None, said: str) -> None:
    x = inputs("indexer_topk", "r2-s50-k8")
    out = torch.topk(x.scores, 8).indices.int()
    expected = golden("indexer_topk", x)["indices"]
    assert judge(out, expected).right
    broken = out.clone()
    broken[0, 0] = int(out[0, 1]) if first is None else first
    assert said in judge(broken, expected).text
    assert judge(out[:, :4], expected).reason == "shape"
    assert judge(out.float(), expected).reason == "dtype"


def test_indices_count_from_the_start_of_a_row() -> None:
    x = inputs("indexer_topk", "r6-s50-k8-ragged-offset")
    expected = golden("indexer_topk", x)["indices"]
    good = op("indexer_topk").impl.second(x, {})["indices"]
    assert judge(good, expected).right
    assert int(x.row_starts.max()) > 0
    assert not judge(torch.where(good >= 0, good + x.row_starts[:, None], good), expected).right


def test_a_table_lookup_of_an_invalid_index_is_caught() -> None:
    x = inputs("topk_page_table", "s30-r4-k16-holes")
    expected = golden("topk_page_table", x)["slots"]
    assert judge(torch.where(x.indices < 0, -1, x.page_table.gather(1, x.indices.clamp_min(0).long())), expected).right
    assert not judge(x.page_table.gather(1, x.indices.clamp_min(0).long()), expected).right


def test_closing_up_keeps_the_order_and_leaves_the_tail_open() -> None:
    x = inputs("valid_kv_indices", "r4-k16-holes")
    expected = golden("valid_kv_indices", x)["kv_indices"]
    kept = x.slots[x.slots >= 0]
    filled = torch.nn.functional.pad(kept, (0, 64 - len(kept)), value=123)
    assert judge(filled, expected).right
    assert not judge(filled.flip(0), expected).right
