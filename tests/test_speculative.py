"""The speculative family: laws of the accept rules, hand-made examples, and a wrong output of every op caught."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import checks
from harness.contracts import Inputs, make_inputs, op
from harness.contracts.expected import Exact
from harness.contracts.speculative import chain_rules, chances, trees
from harness.contracts.speculative.accept import accepted
from harness.contracts.speculative.walk import final_range

VOCAB = 4


def masses_of(total: int, size: int = VOCAB) -> st.SearchStrategy[list[int]]:
    cuts = st.lists(st.integers(0, total), min_size=size - 1, max_size=size - 1).map(sorted)
    return cuts.map(lambda inner: [b - a for a, b in zip([0, *inner], [*inner, total], strict=True)])


POWERS = st.permutations([1, 1, 2, 4, 8]).map(lambda parts: [Fraction(part, 16) for part in parts])


def emitted_law(p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    """What one draft from q and its verification emit first, by every coin of a grid that is exact for these masses."""
    law = [Fraction(0)] * len(p)
    for draft, chance in enumerate(q):
        if not chance:
            continue
        for coin in range(16):
            count, _ = chain_rules.accepted([list(map(float, p))] * 2, [list(map(float, q))], [draft], [coin / 16], block=False)
            if count:
                law[draft] += chance / 16
                continue
            left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
            grid = int(sum(left) * 16)
            for second in range(grid):
                law[chain_rules.inverse([float(value) for value in left], second / grid)] += chance / 16 / grid
    return law


@given(masses_of(16, 5), POWERS)
def test_any_draft_leaves_the_target_law(p: list[int], q: list[Fraction]) -> None:
    target = [Fraction(part, 16) for part in p]
    assert emitted_law(target, q) == target


@given(masses_of(16), st.integers(0, VOCAB - 1))
def test_certain_drafts_are_exact(p: list[int], draft: int) -> None:
    target = [Fraction(part, 16) for part in p]
    assert emitted_law(target, [Fraction(int(i == draft)) for i in range(VOCAB)]) == target


def threshold(p: list[list[float]], q: list[list[float]], drafts: list[int], place: int) -> float:
    """The probability that block verification accepts through `place`, from the coins that do."""
    low, high = 0.0, 1.0
    for _ in range(50):
        coin = (low + high) / 2
        coins = [1.0] * len(drafts)
        coins[place] = coin
        low, high = (coin, high) if chain_rules.accepted(p, q, drafts, coins, block=True)[0] == place + 1 else (low, coin)
    return low


@settings(max_examples=30, deadline=None)
@given(*[masses_of(16, 3) for _ in range(4)])
def test_block_verification_leaves_the_joint_law(p1: list[int], p2: list[int], q1: list[int], q2: list[int]) -> None:
    p, q = [[x / 16 for x in row] for row in (p1, p2)], [[x / 16 for x in row] for row in (q1, q2)]
    law = torch.zeros(3, 3, dtype=torch.float64)

    def residual(scale: float, place: int) -> torch.Tensor:
        left = (scale * torch.tensor(p[place], dtype=torch.float64) - torch.tensor(q[place], dtype=torch.float64)).clamp(min=0)
        return left / left.sum()

    for first in range(3):
        for second in range(3):
            chance = q[0][first] * q[1][second]
            if not chance:
                continue
            rows = [*p, p[1]]
            both, one = threshold(rows, q, [first, second], 1), threshold(rows, q, [first, second], 0)
            law[first, second] += chance * both
            if both < 1 - 1e-9 and one > 1e-9:
                law[first] += chance * (1 - both) * one * residual(min(p[0][first] / q[0][first], 1.0), 1)
            if both < 1 - 1e-9 and one < 1 - 1e-9:
                law += chance * (1 - both) * (1 - one) * residual(1.0, 0)[:, None] * torch.tensor(p[1], dtype=torch.float64)
    assert torch.allclose(law, torch.outer(*torch.tensor(p, dtype=torch.float64)), atol=1e-8)


@given(masses_of(64, 6), st.integers(0, 63))
def test_the_range_of_a_final_token_is_its_inverse(mass: list[int], coin: int) -> None:
    row = torch.tensor([mass], dtype=torch.float64)
    low, high = final_range(row, torch.tensor([coin / 64]), 1e-9)
    answer = chain_rules.inverse([float(part) for part in mass], coin / 64)
    assert int(low) <= answer <= int(high)
    if coin not in [sum(mass[:i]) for i in range(7)]:
        assert int(low) == int(high) == answer


def test_masses_are_exact_on_any_order_of_summation() -> None:
    p = make_inputs(op("chain_verify").axes.parse("b3-n3-v1000"), "cpu").target_probs
    assert bool((p.sum(-1) == 1).all())
    assert bool((p.flip(-1).cumsum(-1)[..., -1] == 1).all())


@pytest.mark.parametrize(("values", "only"), [("matching", 3), ("rejected", 0)])
def test_what_no_coin_can_change(values: str, only: int) -> None:
    x = make_inputs(op("chain_verify").axes.case(batch=8, slots=4, vocab=1000, values=values), "cpu")
    for uniforms in ("own", "supplied"):
        judged = op("chain_verify").impl.reference(x, {"uniforms": uniforms})["accept_token_num"]
        assert [judged.judge(torch.full((8,), n)) is None for n in range(4)] == [n == only for n in range(4)]


def test_decided_drafts_leave_one_count() -> None:
    x = make_inputs(op("chain_verify").axes.parse("b64-n5-v111-decided"), "cpu")
    impl = op("chain_verify").impl
    right = impl.second(x, {})["accept_token_num"]
    assert len(set(right.tolist())) > 2
    for shift in (-1, 1):
        assert impl.reference(x, {"uniforms": "own"})["accept_token_num"].judge((right + shift).clamp(0, 4)) is not None


def test_tree_positions_by_hand() -> None:
    """Depths 0, 1, 1, 2 after seven tokens: the root's children are tokens 0 and 1 of the first step, the grandchild expands token 0."""
    case = op("tree_build").axes.case(batch=1, slots=4, topk=2, steps=2, length=7)
    fields = {name: torch.full((1, 4), -1) for name in ("retrive_index", "retrive_next_token", "retrive_next_sibling")}
    lists = {"parent_list": torch.tensor([[-1, 0, 1]]), "selected_index": torch.tensor([[0, 1, 2]]), "seq_lens": torch.tensor([7])}
    golden = op("tree_build").impl.reference(Inputs(case, "cpu", **fields, **lists), {})
    assert golden["positions"].value.tolist() == [7, 8, 8, 9]
    assert golden["retrive_next_token"].value.tolist() == [[1, 3, -1, -1]]
    assert golden["retrive_next_sibling"].value.tolist() == [[-1, 2, -1, -1]]
    mask = golden["tree_mask"].value.view(4, 11)
    assert bool(mask[:, :7].all())
    assert mask[:, 7:].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


@given(st.integers(1, 12), st.sampled_from(trees.SHAPES), st.integers(0, 1000))
def test_links_reach_every_slot_once(slots: int, shape: str, seed: int) -> None:
    from harness.contracts import Draw

    parent = trees.parents(Draw("links", seed), 1, slots, shape)
    links = {name: value[0].tolist() for name, value in trees.links(parent).items()}
    reached, stack = [], [0]
    while stack:
        node = stack.pop()
        reached.append(node)
        child = links["retrive_next_token"][node]
        while child != -1:
            assert int(parent[0, child]) == node
            stack.append(child)
            child = links["retrive_next_sibling"][child]
    assert sorted(reached) == list(range(slots))


def probs_reference(p: list[float], k: int, top_p: float, **semantics: str) -> checks.Outcome | torch.Tensor:
    case = op("verify_target_probs").axes.case(batch=1, slots=1, vocab=len(p), k=k, p=top_p)
    parameters = {"top_ks": torch.tensor([k], dtype=torch.int32), "top_ps": torch.tensor([top_p]), "temperatures": torch.ones(1, 1)}
    x = Inputs(case, "cpu", logits=torch.tensor([p]).log(), **parameters)
    impl, full = op("verify_target_probs").impl, op("verify_target_probs").resolve(semantics)
    second = impl.second(x, full)["probs"]
    assert checks.judge(second, impl.reference(x, full)["probs"]).right
    return second


def test_ties_at_the_kth_value() -> None:
    p = [0.3, 0.2, 0.2, 0.2, 0.1]
    assert int((probs_reference(p, 2, 1.0, ties_k="all") > 0).sum()) == 4
    assert int((probs_reference(p, 2, 1.0, ties_k="exactly-k") > 0).sum()) == 2


def test_filter_order_decides_the_support() -> None:
    p = [0.35, 0.25, 0.2, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03]
    assert int((probs_reference(p, 4, 0.82) > 0).sum()) == 3
    assert int((probs_reference(p, 4, 0.82, order="joint") > 0).sum()) == 4


def test_top_p_of_zero_keeps_the_best_token() -> None:
    assert probs_reference([0.2, 0.5, 0.3], 1 << 30, 0.0)[0].tolist() == [0.0, 1.0, 0.0]


def test_a_match_after_a_mismatch_does_not_count() -> None:
    count, bonus = accepted(torch.tensor([[9, 1, 5, 3]]), torch.tensor([[1, 2, 3, 4]]))
    assert (int(count), int(bonus)) == (1, 2)


CASES = {
    "chain_verify": "b4-n4-v111",
    "tree_verify_greedy": "b4-n6",
    "tree_verify_sample": "b4-n6-v111",
    "tree_build": "b2-n6-k2-d3-s5",
    "verify_target_probs": "b2-n2-v111-k10-p0.9",
    "softmax_temp": "b2-n2-v111",
    "dflash_accept": "b5-n5",
    "dflash_commit": "b5-n5",
    "dspark_accept_greedy": "b4-n5-v111-cut",
    "dspark_accept_sampling": "b4-n5-v111-decided-cut",
    "dspark_cap_len": "b5",
    "dspark_finalize_lens": "b5",
    "dspark_select_mixed": "b5",
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_output_is_caught(name: str) -> None:
    declared = op(name)
    x = make_inputs(declared.axes.parse(CASES[name]), "cpu")
    semantics = declared.resolve({})
    golden, right = declared.impl.reference(x, semantics), declared.impl.second(x, semantics)
    for output in declared.outputs:
        value = right[output]
        if output != "bonus" and name == "dspark_accept_sampling":
            continue  # the lengths are judged with the bonus
        if getattr(golden[output], "dtype", None):
            value = value.to(golden[output].dtype)
        assert checks.judge(value, golden[output]).right, output
        where = golden[output].where if isinstance(golden[output], Exact) else None
        wrong = value.clone().flatten()
        place = int(torch.nonzero(where.flatten())[-1]) if where is not None else wrong.numel() - 1
        if name in ("chain_verify", "tree_verify_sample"):
            place = int(torch.nonzero(wrong >= 0)[-1]) if output != "accept_token_num" else 0
        place = 0 if name == "dspark_accept_sampling" else place
        wrong[place] = ~wrong[place] if wrong.dtype == torch.bool else wrong[place] + (1 if not wrong.is_floating_point() else 0.01)
        assert not checks.judge(wrong.view(value.shape), golden[output]).right, output


def test_lists_that_disagree_are_caught() -> None:
    x = make_inputs(op("chain_verify").axes.parse("b2-n4-v111-matching"), "cpu")
    impl = op("chain_verify").impl
    golden = impl.reference(x, {"uniforms": "supplied"})
    index, count = x.retrive_index.int(), torch.tensor([3, 3], dtype=torch.int32)
    predicts = torch.cat((x.candidates[:, 1:], impl.second(x, {})["predicts"][:, 3:, 1]), 1).flatten().int()
    raw = {"predicts": predicts, "accept_index": index, "accept_token_num": count}
    assert checks.judge(impl.convert(x, raw, {})["predicts"], golden["predicts"]).right
    shorter = {**raw, "accept_token_num": torch.tensor([3, 2], dtype=torch.int32)}
    assert "disagree" in checks.judge(impl.convert(x, shorter, {})["predicts"], golden["predicts"]).text


def test_a_final_token_without_mass_is_caught() -> None:
    x = make_inputs(op("chain_verify").axes.parse("b4-n2-v9-float"), "cpu")
    impl = op("chain_verify").impl
    right = impl.second(x, {})["predicts"]
    wrong = right.clone()
    for row in range(4):
        wrong[row, int((right[row, :, 0] >= 0).sum()) - 1, 1] = 8  # the last token, to which this family gives nothing
    assert checks.judge(wrong, impl.reference(x, {"uniforms": "supplied"})["predicts"]).reason == "support"


def test_an_impossible_draft_is_never_accepted() -> None:
    p = torch.tensor([[0.0]], dtype=torch.float64)
    accept, reject = chain_rules.token(p, torch.ones_like(p), torch.zeros_like(p), 1e-6, own=False)
    assert (bool(accept), bool(reject)) == (False, True)
    assert math.isclose(float(chances.band(True, 9)), 4 * 2.0**-24)
