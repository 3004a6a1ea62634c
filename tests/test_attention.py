"""The attention family: hand-computed cases, laws of the references, and wrong outputs that must be caught."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import checks
from harness.contracts import make_inputs, op
from harness.contracts.attention.batch import AttentionInputs, indptr
from harness.contracts.attention.golden import banded, golden
from harness.contracts.merging.states import merged
from harness.providers import providers_of

FEW = settings(max_examples=20, deadline=None)


def of(name: str, case_id: str, **semantics: str):
    """(inputs, expected) of a case."""
    declared = op(name)
    x = make_inputs(declared.axes.parse(case_id), "cpu")
    return x, declared.impl.reference(x, declared.resolve(semantics))


def plain(expected) -> torch.Tensor:
    """The golden value as a perfect kernel would store it."""
    return expected.value.to(expected.dtype or torch.float32)


def by_hand(q, k, v, *, causal=True, window=-1, sinks=None, soft_cap=0.0, scale=1.0) -> AttentionInputs:
    """One request, one head: q [nq, d], k [nk, d], v [nk, dv]; pages of one token in reverse order."""
    case = op("extend_attention").axes.case(batch=1, heads=1, kv_heads=1, new=len(q), dim=q.shape[1], v_dim=v.shape[1], dtype="fp32")
    slots = torch.arange(len(k)).flip(0)
    pool = [torch.zeros(len(k), 1, 1, t.shape[1]) for t in (k, v)]
    for rows, t in zip(pool, (k, v), strict=True):
        rows[slots, 0, 0] = t
    flags = {"scale": scale, "causal": causal, "window": window, "sinks": sinks, "soft_cap": soft_cap, "k_scale": 1.0, "v_scale": 1.0}
    return AttentionInputs(
        case, "cpu", q=q[:, None], k_pool=pool[0], v_pool=pool[1], slots=[slots], q_len=[len(q)], prefix_len=[0], qo_indptr=indptr([len(q)], "cpu"), **flags
    )


def answer(x: AttentionInputs, window: str = "two-sided", **semantics: str):
    resolved = op("extend_attention").resolve(semantics)
    return golden(x, resolved, banded(x, window))


def test_more_queries_than_keys_are_aligned_at_the_last_key():
    x = by_hand(torch.zeros(3, 2), torch.ones(2, 2), torch.tensor([[1.0], [3.0]]))
    got = answer(x)
    assert got["o"].value.flatten().tolist() == pytest.approx([0.0, 1.0, 2.0])
    assert got["lse"].value.flatten().tolist() == pytest.approx([-math.inf, 0.0, math.log(2)])


@pytest.mark.parametrize(
    ("window", "causal", "sides", "seen"), [(1, True, "two-sided", [[0], [0, 1], [1, 2]]), (1, False, "left", [[0, 1, 2], [0, 1, 2], [1, 2]])]
)
def test_windows(window, causal, sides, seen):
    values = torch.tensor([[1.0], [10.0], [100.0]])
    got = answer(by_hand(torch.zeros(3, 2), torch.ones(3, 2), values, causal=causal, window=window), sides)
    assert got["o"].value.flatten().tolist() == pytest.approx([float(values[keys].mean()) for keys in seen])


def test_two_sided_window_without_causal():
    values = torch.tensor([[1.0], [10.0], [100.0]])
    got = answer(by_hand(torch.zeros(3, 2), torch.ones(3, 2), values, causal=False, window=1))
    assert got["o"].value.flatten().tolist() == pytest.approx([5.5, 37.0, 55.0])


def test_a_sink_takes_mass_and_lse_counts_it_only_where_declared():
    x = by_hand(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[8.0]]), sinks=torch.tensor([math.log(3.0)]))
    assert answer(x)["o"].value.item() == pytest.approx(2.0)
    assert answer(x)["lse"].value.item() == pytest.approx(0.0)
    assert answer(x, lse_sinks="sinks")["lse"].value.item() == pytest.approx(math.log(4.0))


def test_a_sink_over_no_key_gives_zero():
    x = by_hand(torch.zeros(2, 2), torch.ones(1, 2), torch.tensor([[8.0]]), sinks=torch.zeros(1))
    assert answer(x)["o"].value.flatten().tolist() == [0.0, 4.0]
    assert answer(x, lse_sinks="sinks")["lse"].value[0].item() == 0.0


def test_keys_far_below_a_sink_have_a_budget_of_their_own():
    x = make_inputs(op("extend_attention").axes.parse("b1-h1-kv1-q3-fp32-sinks-low"), "cpu")
    lse = op("extend_attention").impl.reference(x, op("extend_attention").resolve({"lse_sinks": "keys"}))["lse"]
    budget = checks.tolerance(lse, torch.float32)
    assert bool((lse.value < -4e4).all())
    assert bool(((budget > 0) & (budget < 1)).all())
    assert not checks.judge(lse.value.float() - 2, lse).right


def test_soft_cap():
    x = by_hand(torch.tensor([[100.0]]), torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0], [0.0]]), causal=False, soft_cap=0.5)
    assert answer(x)["o"].value.item() == pytest.approx(1 / (1 + math.exp(-1.0)))


def test_a_request_without_keys():
    _, expected = of("decode_attention", "b3-h2-kv1-s9-d8-fp16-empty")
    assert expected["o"].value[1].abs().sum() == 0
    assert expected["lse"].value[1].tolist() == [-math.inf, -math.inf]
    for wrong in (math.nan, 0.0, math.inf):
        lse = plain(expected["lse"])
        lse[1, 0] = wrong
        assert checks.judge(lse, expected["lse"]).reason == "numerics"


OFF = [
    ("decode_attention", "b2-h4-kv2-s40-d64-fp16", "cap5"),
    ("decode_attention", "b2-h4-kv2-s40-d64-bf16", "cap30"),
    ("decode_attention", "b2-h4-kv2-s40-d64-fp16", "sinks"),
    ("decode_attention", "b2-h4-kv2-s40-d64-fp16", "scaled"),
    ("decode_attention", "b2-h4-kv2-s40-d64-fp16", "w6"),
    ("extend_attention", "b2-h4-kv2-q9-p30-d64-fp16", "cap5"),
    ("extend_attention", "b2-h4-kv2-q9-p30-d64-fp16", "sinks"),
    ("extend_attention", "b2-h4-kv2-q9-p30-d64-fp16", "scaled"),
    ("extend_attention", "b2-h4-kv2-q9-p30-d64-fp16", "w6"),
    ("extend_attention", "b2-h4-kv2-q9-p30-d64-fp16", "full"),
    ("verify_attention", "b2-h4-kv2-n4-p30-d64-fp16", "cap5"),
    ("verify_attention", "b2-h4-kv2-n4-p30-d64-fp16", "sinks"),
    ("verify_attention", "b2-h4-kv2-n4-p30-d64-fp16", "scaled"),
]


@pytest.mark.parametrize(("name", "base", "flag"), OFF)
@pytest.mark.parametrize("loose", [{}, {"tanh": "approximate", "arithmetic": "products"}])
def test_leaving_a_flag_out_is_caught(name, base, flag, loose):
    head, dtype = base.rsplit("-", 1)
    word = f"{head}-{dtype}-{flag}"
    x, expected = of(name, word, **loose)
    without = x.copy_with(soft_cap=0.0, sinks=None, k_scale=1.0, v_scale=1.0, window=-1, causal=name != "verify_attention", memo={})
    declared = op(name)
    bare = declared.impl.reference(without, declared.resolve(loose))
    assert checks.judge(plain(expected["o"]), expected["o"]).right
    assert checks.judge(plain(bare["o"]), expected["o"]).reason == "numerics"


def test_low_logits_are_low():
    x, expected = of("decode_attention", "b1-h2-kv2-s30-d64-fp16-low")
    assert expected["lse"].value.max() < -40_000
    assert expected["o"].value.abs().max() > 0.1
    assert x.q.isfinite().all()


@FEW
@given(st.integers(1, 5), st.sampled_from([(2, 1), (4, 2), (3, 3)]), st.integers(0, 12), st.integers(1, 12), st.sampled_from([1, 4]))
def test_the_whole_is_its_parts_merged(batch, heads, first, rest, page):
    """Attention over all keys is the merge of attention over two shards (LSE convention included)."""
    x, whole = of("decode_attention", f"b{batch}-h{heads[0]}-kv{heads[1]}-s{first + rest}-d8{f'-pg{page}' if page > 1 else ''}-fp32-ragged")
    resolved, parts = op("decode_attention").resolve({}), []
    for shard in ([slots[:first] for slots in x.slots], [slots[first:] for slots in x.slots]):
        y = x.copy_with(slots=shard, memo={})
        parts.append(golden(y, resolved, banded(y, "two-sided")))
    again = merged(*(torch.stack([part[name].value for part in parts], 1) for name in ("o", "lse")), torch.float32)
    for name, expected in whole.items():
        assert torch.allclose(again[name].value, expected.value, atol=1e-12)


@FEW
@given(st.integers(1, 4), st.integers(2, 8), st.integers(0, 9), st.sampled_from(["uniform", "ragged", "empty"]))
def test_a_chain_is_causal(batch, nodes, prefix, lengths):
    tail = "" if lengths == "uniform" else f"-{lengths}"
    x, expected = of("verify_attention", f"b{batch}-h2-kv1-n{nodes}-p{prefix}-d8-fp32{tail}")
    causal = golden(x, op("verify_attention").resolve({}), banded(x, "two-sided"))
    assert torch.equal(causal["o"].value, expected["o"].value)


@FEW
@given(st.sampled_from(["decode_attention", "extend_attention", "verify_attention"]), st.sampled_from(["fp32", "fp16", "bf16"]), st.integers(1, 4), st.data())
def test_plain_torch_sits_below_the_budget_and_a_wrong_head_above(name, dtype, kv_heads, data):
    size = {"decode_attention": "s30", "extend_attention": "q6-p9", "verify_attention": "n4-p9"}[name]
    lengths = data.draw(st.sampled_from(["-ragged", "-empty"]))
    flags = data.draw(st.sampled_from(["", "-cap5", "-sinks", "-scaled", "-peaked", "-flat"]))
    x, expected = of(name, f"b3-h{2 * kv_heads}-kv{kv_heads}-{size}-d64-pg4-{dtype}{lengths}{flags}")
    eager = next(p for p in providers_of(name) if p.name == "torch_eager")
    run = eager.make()
    run.prepare(x, None)
    o, lse = run.run()
    assert checks.judge(o, expected["o"]).error < 0.6
    assert checks.judge(lse, expected["lse"]).right
    if len(o):
        o[:, -1] = o[:, 0] * 1.03 + 0.01
        assert checks.judge(o, expected["o"]).reason == "numerics"


def test_lse_in_the_wrong_base_is_caught():
    x, expected = of("decode_attention", "b2-h2-kv1-s30-d64-fp32")
    declared = op("decode_attention")
    binary = (expected["lse"].value / math.log(2)).float()
    for semantics, right in (({}, False), ({"lse": "base-2"}, True)):
        lse = declared.impl.convert(x, {"lse": binary}, declared.resolve(semantics))["lse"]
        assert checks.judge(lse, expected["lse"]).right is right


def test_top_left_alignment_is_caught():
    x, expected = of("extend_attention", "b2-h2-kv1-q6-p9-d16-fp32")
    wrong = x.copy_with(slots=[slots[:6] for slots in x.slots], memo={})
    got = golden(wrong, op("extend_attention").resolve({}), banded(wrong, "two-sided"))
    assert checks.judge(plain(got["o"]), expected["o"]).reason == "numerics"


def test_causal_in_place_of_a_tree_is_caught():
    x, expected = of("verify_attention", "b3-h2-kv1-n5-p9-d16-fp32-tree")
    causal = x.copy_with(causal=True, memo={})
    got = golden(causal, op("verify_attention").resolve({}), banded(causal, "two-sided"))
    assert checks.judge(plain(got["o"]), expected["o"]).reason == "numerics"


def test_trees():
    x, _ = of("verify_attention", "b4-h1-kv1-n6-p3-d8-fp32-star")
    assert x.tree[0].tolist() == [[j in (0, i) for j in range(6)] for i in range(6)]
    x, _ = of("verify_attention", "b4-h1-kv1-n6-p3-d8-fp32-tree")
    assert bool((x.tree.diagonal(dim1=1, dim2=2) & x.tree[:, :, 0]).all())
    assert not bool(x.tree.triu(1).any())
    assert not bool((x.tree == torch.ones(6, 6).tril().bool()).all())


def test_rounding_to_an_fp8_cache_is_declared():
    """q rounded to the cache's dtype passes only where that is declared; a fresh key is not met by a rounded q."""
    declared = op("extend_attention")
    x, exact = of("extend_attention", "b2-h2-kv1-q6-p40-d64-fp16-e4m3fn")
    cached = declared.impl.reference(x, declared.resolve({"arithmetic": "cache"}))["o"]
    prefix = declared.impl.reference(x, declared.resolve({"arithmetic": "cached-prefix"}))["o"]
    rounded = x.copy_with(q=x.q.to(torch.float8_e4m3fn).to(torch.float16), memo={})
    by_rounded = declared.impl.reference(rounded, declared.resolve({}))["o"]
    assert torch.allclose(by_rounded.value, cached.value)
    assert checks.judge(plain(by_rounded), exact["o"]).reason == "numerics"
    assert not torch.allclose(prefix.value, cached.value)
    assert not torch.allclose(prefix.value, exact["o"].value)


@pytest.mark.parametrize("case_id", ["t5-kv2-d8-fp16", "t5-kv2-d8-dv4-pg4-fp32-run", "t5-kv2-d8-bf16-e4m3fn-scaled"])
def test_a_write_beside_its_slot_is_caught(case_id):
    x, expected = of("kv_write", case_id)
    for name in ("k_pool", "v_pool"):
        right = expected[name].value
        assert checks.judge(right.clone(), expected[name]).right
        assert checks.judge(getattr(x, name), expected[name]).reason == "numerics"
        for row in (x.loc[0], 0):
            wrong = right.float().clone()
            wrong.view(-1, *wrong.shape[2:])[row, 0, 0] += 1
            assert checks.judge(wrong.to(right.dtype), expected[name]).reason == "numerics"


def test_fp8_rounding_is_to_nearest_even():
    x, expected = of("kv_write", "t5-kv2-d8-fp16-e4m3fn")
    wrong = expected["k_pool"].value.clone()
    raw = wrong.view(torch.uint8).view(-1, 2, 8)
    raw[x.loc[0], 0, 0] ^= 1  # one ulp off
    assert checks.judge(wrong, expected["k_pool"]).reason == "numerics"


@pytest.mark.parametrize("name", ["kv_indices", "kv_page_table"])
@pytest.mark.parametrize("case_id", ["b3-s20", "b3-s20-pg4-ragged-later", "b4-s9-pg4-empty"])
def test_a_wrong_index_is_caught(name, case_id):
    _, expected = of(name, case_id)
    only = next(iter(expected.values()))
    right = only.value.to(torch.int32)
    assert checks.judge(right, only).right
    wrong = right.clone()
    wrong.view(-1)[0] += 1
    assert checks.judge(wrong, only).reason == "numerics"
    assert checks.judge(right[:-1], only).reason == "shape"


def test_kv_indices_by_hand():
    x, expected = of("kv_indices", "b2-s3-pg2-later")
    first = [x.req_to_token[x.req_pool_indices[i], x.ahead[i] : x.ahead[i] + 3].tolist() for i in range(2)]
    assert expected["kv_indices"].value.tolist() == first[0] + first[1]
    assert all(start % 2 == 0 for start in x.ahead)


def test_page_tables_address_the_same_tokens_as_slots():
    x, _ = of("decode_attention", "b6-h2-kv1-s21-d8-pg4-fp32-empty")
    for request, slots in enumerate(x.slots):
        tokens = [int(page) * 4 + i for page in x.block_table[request] for i in range(4)][: len(slots)]
        assert tokens == slots.tolist()
        assert int(x.last_page_len[request]) == (0 if not len(slots) else (len(slots) - 1) % 4 + 1)
    starts, every = x.tokens()
    assert starts.diff().tolist() == x.kv_len.tolist()
    assert torch.equal(x.k_flat[every][: int(starts[1])], x.k_flat[x.slots[0]])


def test_a_causal_bias_can_be_made_and_used_in_guarded_memory():
    from harness.machine.memory import Guarded, Scratch
    from harness.providers.torch_sdpa.attention import causal_lower_right

    q, k, v = (torch.randn(2, 4, n, 16, generator=torch.Generator().manual_seed(0)) for n in (3, 5, 5))
    attention = torch.nn.functional.scaled_dot_product_attention
    with Guarded(Scratch("cpu")):
        biased = attention(q, k, v, attn_mask=causal_lower_right(3, 5))
    torch.testing.assert_close(biased, attention(q, k, v, attn_mask=torch.ones(3, 5, dtype=torch.bool).tril(2)))
