"""What speculative verification emits is the target, exactly: trap T5."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch

from harness import checks
from harness.contracts import make_inputs, op
from harness.contracts.speculative import chain_rules

# --- speculative verification: trap T5, exactly ---


def emitted_law(p: list[list[float]], q: list[list[float]], block: bool, drafts: Iterator[tuple[int, ...]] | None = None) -> dict[tuple[int, ...], float]:
    """Probability of each whole continuation (drafts accepted, the final token, then the target), every accept/reject path weighed exactly."""
    vocab, steps = len(p[0]), len(q)
    law: dict[tuple[int, ...], float] = dict.fromkeys(itertools.product(range(vocab), repeat=steps + 1), 0.0)
    for drafted in drafts or itertools.product(range(vocab), repeat=steps):
        chance_of_draft = math.prod(q[i][token] for i, token in enumerate(drafted))
        if not chance_of_draft:
            continue
        chances = [_threshold(p, q, list(drafted), step, block) for step in range(steps)]
        for path in itertools.product((True, False), repeat=steps):
            chance = chance_of_draft * math.prod(c if taken else 1 - c for c, taken in zip(chances, path, strict=True))
            if not chance:
                continue
            coins = [c / 2 if taken else (1 + c) / 2 for c, taken in zip(chances, path, strict=True)]
            count, scale = chain_rules.accepted(p, q, list(drafted), coins, block)
            rest = p[count] if count == steps else [max(scale * a - b, 0.0) for a, b in zip(p[count], q[count], strict=True)]
            for final, mass in enumerate(rest):
                if mass:
                    for tail in itertools.product(range(vocab), repeat=steps - count):
                        through = math.prod(p[count + 1 + i][token] for i, token in enumerate(tail))
                        law[(*drafted[:count], final, *tail)] += chance * mass / sum(rest) * through
    return law


def _threshold(p: list[list[float]], q: list[list[float]], drafted: list[int], step: int, block: bool) -> float:
    """Below which coin of this step the draft (of a block: the prefix) is accepted, found by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        coins = [2.0 if block or i > step else -1.0 for i in range(len(q))]
        coins[step] = middle
        if block:
            taken = chain_rules.accepted(p, q, drafted, coins, True)[0] == step + 1
        else:
            taken = chain_rules.accepted(p[step:], q[step : step + 1], drafted[step : step + 1], [middle], False)[0] == 1
        low, high = (middle, high) if taken else (low, middle)
    return low


P = [[0.5, 0.3, 0.2], [0.1, 0.25, 0.65], [0.7, 0.3, 0.0]]
Q = [[0.1, 0.1, 0.8], [0.3, 0.6, 0.1]]


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("q", [Q, P[:2], [[0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3]]])
def test_the_reference_emits_the_target_for_any_draft(q: list[list[float]], block: bool) -> None:
    law = emitted_law(P, q, block)
    for tokens, chance in law.items():
        assert chance == pytest.approx(math.prod(P[i][token] for i, token in enumerate(tokens)), abs=1e-9), tokens


def test_a_draft_that_is_certain_of_its_token_leaves_the_target_as_it_is() -> None:
    """Trap T5: accept with p(x), else redraw from p without x, whatever x; acceptance is .24 where the drafted row has .40, by the same law."""
    for drafted in itertools.product(range(3), repeat=2):
        certain = [[float(token == t) for t in range(3)] for token in drafted]
        for tokens, chance in emitted_law(P, certain, block=False).items():
            assert chance == pytest.approx(math.prod(P[i][token] for i, token in enumerate(tokens)), abs=1e-9)
    one_hot = sum(q * p for q, p in zip(Q[0], P[0], strict=True))
    by_ratio = sum(min(q, p) for q, p in zip(Q[0], P[0], strict=True))
    assert (one_hot, by_ratio) == (pytest.approx(0.24), pytest.approx(0.40))


@pytest.mark.parametrize(
    ("name", "case_id"),
    [
        ("chain_verify", "b512-n2-v4-grid"),
        ("chain_verify", "b768-n2-v4-gridhot"),
        ("tree_verify_sample", "b192-n3-v4-wide-grid"),
        ("tree_verify_sample", "b1536-n3-v8-chain-grid"),
    ],
)
def test_every_path_of_the_grid_together_is_the_target_exactly(name: str, case_id: str) -> None:
    impl, x = op(name).impl, make_inputs(op(name).axes.parse(case_id), "cpu")
    made, expected = impl.second(x, op(name).resolve({})), impl.reference(x, op(name).resolve({}))
    assert all(checks.judge(made[output], expected[output]).right for output in expected)
    pairs = made["predicts"].clone()
    last = (pairs[:, :, 0] >= 0).sum(1) - 1
    rows = torch.arange(len(pairs))
    at = int(torch.nonzero(x.target_probs[rows, pairs[rows, last, 0], 0] > 0)[0])
    moved = 1 if int(pairs[at, last[at], 1]) != 1 and float(x.target_probs[at, pairs[at, last[at], 0], 1]) > 0 else 0
    pairs[at, last[at], 1] = moved if int(pairs[at, last[at], 1]) != moved else 2
    said = checks.judge(pairs, expected["predicts"])
    assert said.reason in ("distribution", "support")


def test_a_grid_wants_whole_batches() -> None:
    for name, wrong in (("chain_verify", "b511-n2-v4-grid"), ("tree_verify_sample", "b100-n3-v4-wide-grid"), ("chain_verify", "b512-n2-v4-grid-block")):
        with pytest.raises(Exception, match="grid"):
            op(name).axes.parse(wrong)
    with pytest.raises(Exception, match="thresholds"):
        op("tree_verify_sample").axes.parse("b100-n3-v9-drawn-ta0.5")
