"""Traps for whoever writes a reference: each with its worked numbers."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from harness.checks import judge
from harness.contracts import Inputs, make_inputs, op
from harness.contracts.sampling import filters
from harness.contracts.speculative.target_probs import TOP_K_ALL

ORDERS = torch.tensor([[0.35, 0.25, 0.20, 0.05, 0.03, 0.12 / 5, 0.12 / 5, 0.12 / 5, 0.12 / 5, 0.12 / 5]])


def kept(p, k, target, ties, order):
    """How many tokens a declared rule keeps at least and at most."""
    support = filters.nucleus(p, torch.tensor([[k]]), torch.tensor([[target]], dtype=torch.float64), ties, order)
    return int(support.required.sum()), int(support.allowed.sum())


@pytest.mark.parametrize("ties", ["all", "exactly-k"])
def test_the_order_of_filters_decides_between_four_tokens_and_three(ties):
    """.35 .25 .20 hold .80 < .82 of the whole and .9412 >= .82 of what top-k = 4 leaves."""
    assert kept(ORDERS, 4, 0.82, ties, "joint") == (4, 4)
    assert kept(ORDERS, 4, 0.82, ties, "top-k-first") == (3, 3)
    assert filters.kept_by_rank(ORDERS[0].tolist(), 4, 0.82, ties, "joint") == [0, 1, 2, 3]
    assert filters.kept_by_rank(ORDERS[0].tolist(), 4, 0.82, ties, "top-k-first") == [0, 1, 2]


def test_an_answer_in_the_other_order_is_a_mismatch():
    case = op("top_k_top_p_filter").axes.case(batch=2, vocab=20, k=4, p=0.82, values="orders")
    x, contract = make_inputs(case, "cpu"), op("top_k_top_p_filter").impl
    for mine, other in itertools.permutations(("joint", "top-k-first")):
        semantics = {"ties": "all", "mass": "renormalised"}
        answer = contract.second(x, {**semantics, "order": mine})["probs"].float()
        assert judge(answer, contract.reference(x, {**semantics, "order": mine})["probs"]).right
        assert judge(answer, contract.reference(x, {**semantics, "order": other})["probs"]).reason == "support"


@pytest.mark.parametrize(("order", "wanted"), [("top-k-first", [1.0]), ("joint", [0.475, 0.525])])
def test_two_orders_over_four_logits(order, wanted):
    """Logits .1 .2 .3 .4, k = 2, p = .5: top-k first leaves .475 and .525, of which one reaches .5; of the whole row it takes both."""
    case = op("verify_target_probs").axes.case(batch=1, slots=2, vocab=9, k=2, p=0.5, values="four")
    x, contract = make_inputs(case, "cpu"), op("verify_target_probs").impl
    semantics = {"ties_k": "exactly-k", "ties_p": "by-rank", "order": order}
    second = contract.second(x, semantics)["probs"]
    assert [round(value, 3) for value in second[0].tolist() if value] == wanted
    assert judge(second.float(), contract.reference(x, semantics)["probs"]).right


@pytest.mark.parametrize("batch", [1, 8])
def test_equal_values_at_the_third_place(batch):
    """.1 .2 .2 .2 .3 with k = 3: exactly three, any two of the equals; or all four."""
    case = op("top_k_renorm").axes.case(batch=batch, vocab=5, k=3, values="tied")
    x, contract = make_inputs(case, "cpu"), op("top_k_renorm").impl

    def answer(*ids):
        probs = torch.zeros(batch, 5, dtype=torch.float64)
        probs[:, list(ids)] = x.probs[:, list(ids)].double()
        return (probs / probs.sum(1, keepdim=True)).float()

    strict, threshold = (contract.reference(x, {"ties": ties})["probs"] for ties in ("exactly-k", "all"))
    for two in itertools.combinations((1, 2, 3), 2):
        assert judge(answer(*two, 4), strict).right
        assert judge(answer(*two, 4), threshold).reason == "support"
    assert judge(answer(1, 2, 3, 4), threshold).right
    assert judge(answer(1, 2, 3, 4), strict).reason == "support"
    assert judge(answer(0, 1, 4), strict).reason == "support"


def test_more_queries_than_keys_are_aligned_at_the_last_key():
    """Five queries and three keys: the first two rows see nothing, and the first key is no answer for them."""
    case = op("extend_attention").axes.case(batch=1, heads=1, kv_heads=1, new=5, dim=16, dtype="fp32", lengths="cut")
    x, contract = make_inputs(case, "cpu"), op("extend_attention").impl
    keys = int(x.kv_len[0])
    blind = 5 - keys
    assert 0 < blind < 5
    golden = contract.reference(x, op("extend_attention").resolve({}))
    assert bool((golden["o"].value[:blind] == 0).all())
    assert bool((golden["lse"].value[:blind] == -math.inf).all())
    assert bool(golden["lse"].value[blind:].isfinite().all())
    v = x.v_flat[x.slots[0]].float()
    assert torch.allclose(golden["o"].value[blind, 0].float(), v[0, 0], atol=1e-6)  # the first row that sees a key sees one
    top_left = golden["o"].value.float().clone()
    top_left[:blind] = v[0]
    assert judge(top_left, golden["o"]).reason == "numerics"


@pytest.mark.parametrize(("declared", "sign"), [("minus-inf", -1), ("plus-inf", 1)])
def test_the_sign_of_an_empty_row_is_what_the_provider_declares(declared, sign):
    case = op("mla_decode").axes.case(batch=3, heads=2, length=9, dtype="fp32", lengths="empty")
    x, declared_op = make_inputs(case, "cpu"), op("mla_decode")
    semantics = declared_op.resolve({"empty": declared})
    golden = declared_op.impl.reference(x, semantics)
    empty = x.kv_len == 0
    assert bool(empty.any())
    lse = golden["lse"].value.float()
    lse[empty] = sign * math.inf
    given = declared_op.impl.convert(x, {"o": golden["o"].value.float(), "lse": lse}, semantics)
    assert judge(given["lse"], golden["lse"]).right
    lse[empty] = -sign * math.inf
    wrong = declared_op.impl.convert(x, {"o": golden["o"].value.float(), "lse": lse}, semantics)["lse"]
    assert judge(wrong, golden["lse"]).right == (declared == "plus-inf")  # where +inf is declared, -inf is already what it is converted to


def test_one_hot_drafts_leave_the_target_distribution():
    """p = .5 .3 .2, q = .1 .1 .8: accepting x with p(x) and drawing again without x gives p at acceptance .24; the ratio rule p at .40."""
    p, q = (0.5, 0.3, 0.2), (0.1, 0.1, 0.8)
    certain, ratio = [0.0] * 3, [0.0] * 3
    accepted = {"certain": 0.0, "ratio": 0.0}
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    for draft in range(3):
        accepted["certain"] += q[draft] * p[draft]
        take = min(1, p[draft] / q[draft])
        accepted["ratio"] += q[draft] * take
        for token in range(3):
            again = 0.0 if token == draft else p[token] / (1 - p[draft])
            certain[token] += q[draft] * ((token == draft) * p[draft] + (1 - p[draft]) * again)
            ratio[token] += q[draft] * ((token == draft) * take + (1 - take) * left[token] / sum(left))
    assert certain == pytest.approx(p)
    assert ratio == pytest.approx(p)
    assert accepted == pytest.approx({"certain": 0.24, "ratio": 0.40})


@pytest.mark.parametrize("values", ["grid", "gridhot"])
def test_a_grid_of_drafts_accepts_verification_with_one_hot_drafts(values):
    """The contract's own answer to certain drafts raises no alarm."""
    batch = {"grid": 512, "gridhot": 128}[values]
    case = op("chain_verify").axes.case(batch=batch, slots=2, vocab=2, values=values)
    x, declared = make_inputs(case, "cpu"), op("chain_verify")
    semantics = declared.resolve({})
    golden, answer = declared.impl.reference(x, semantics), declared.impl.second(make_inputs(case, "cpu"), semantics)
    assert all(judge(answer[name], golden[name]).right for name in answer)


@pytest.mark.parametrize("factor", [1 / math.log(2), math.log(2)])
def test_a_stray_factor_in_lse_is_found(factor):
    case = op("decode_attention").axes.case(batch=2, heads=2, kv_heads=1, length=9, dim=16, dtype="bf16")
    x, declared = make_inputs(case, "cpu"), op("decode_attention")
    golden = declared.impl.reference(x, declared.resolve({}))["lse"]
    assert judge(golden.value.float(), golden).right
    assert judge((golden.value * factor).float(), golden).reason == "numerics"


def test_merge_weights_in_the_other_base():
    """Masses 2 and 8 weigh .2 and .8; an lse in natural log read as base 2 gives .2767, one in base 2 read as natural .1192."""
    case = op("merge_state").axes.case(tokens=1, heads=1, dim=16, dtype="fp32", values="masses")
    x, contract = make_inputs(case, "cpu"), op("merge_state").impl
    golden = contract.reference(x, {"lse": "natural"})
    for base, first in ((math.e, 0.2), (2.0, 0.2767), (math.e ** (1 / math.log(2)), 0.1192)):
        weights = [base ** float(s) for s in (x.s_a, x.s_b)]
        share = weights[0] / sum(weights)
        assert round(share, 4) == first
        merged = share * x.v_a.double() + (1 - share) * x.v_b.double()
        assert judge(merged.float(), golden["o"]).right == (base == math.e)


def test_mass_at_equality_leaves_two_or_three_never_one_or_four():
    """.3 .1 .1 .5 at p = .8: two tokens hold .8 exactly. Rules differ in < and <=, so the third may stay; nothing else may change."""
    case = op("top_p_renorm").axes.case(batch=1, vocab=4, p=0.8, values="equality")
    x, contract = make_inputs(case, "cpu"), op("top_p_renorm").impl
    assert filters.kept_by_rank(x.probs[0].double().tolist(), 0, float(torch.tensor(0.8)), "exactly-k") == [3, 0]
    golden = contract.reference(x, {"ties": "exactly-k"})["probs"]
    for ids, right in (([3], False), ([3, 0], True), ([3, 0, 1], True), ([3, 0, 1, 2], False)):
        probs = torch.zeros(1, 4)
        probs[:, ids] = x.probs[:, ids]
        assert judge(probs / probs.sum(), golden).right == right


def test_top_p_of_zero_keeps_the_best_token():
    x = Inputs(op("top_p_renorm").axes.case(batch=1, vocab=10, p=0), "cpu", probs=ORDERS, top_p=0.0)
    golden = op("top_p_renorm").impl.reference(x, {"ties": "exactly-k"})["probs"]
    assert golden.allowed.nonzero().tolist() == golden.required.nonzero().tolist() == [[0, 0]]


def test_top_k_off_is_no_filter():
    case = op("verify_target_probs").axes.case(batch=1, slots=2, vocab=9, k=TOP_K_ALL)
    golden = op("verify_target_probs").impl.reference(make_inputs(case, "cpu"), op("verify_target_probs").resolve({}))["probs"]
    assert bool(golden.required.all())
