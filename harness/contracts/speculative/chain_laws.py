"""Chains whose emitted tokens must follow the target: the requests of the input families of emitted.py, and what is expected of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.expected import Drawn, Instead, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.speculative import chances, emitted
from harness.contracts.speculative.emitted import EIGHTHS
from harness.contracts.speculative.walk import Walk


class Rows(NamedTuple):
    """What all requests share: target p [slots, vocab] and draft q [slots - 1, vocab], fp32, sums exact."""

    p: torch.Tensor
    q: torch.Tensor


def _eighths(case: Case) -> tuple[list[list[int]], list[list[int]]]:
    q = emitted.drafted(case.vocab)
    turned = [q[step % case.vocab :] + q[: step % case.vocab] for step in range(case.slots - 1)]
    return [emitted.target(case.vocab, step) for step in range(case.slots)], turned


def sizes(case: Case) -> list[int]:
    """Points of the grid: of each step the draft and the coin, then of the final coin."""
    p, q = _eighths(case)
    if case.values == "gridhot":
        rests = [EIGHTHS - mass for row in p[:-1] for mass in row]
    else:
        rests = [sum(max(a - b, 0) for a, b in zip(one, other, strict=True)) for one, other in zip(p, q, strict=False)]
    drafts = EIGHTHS if case.values == "grid" else case.vocab
    return [*[drafts, EIGHTHS] * (case.slots - 1), emitted.finals(rests)]


def impossible(case: Case) -> str | None:
    """Why there is no such chain or grid, or None."""
    if case.slots < 2:
        return "a chain without drafts has nothing to verify"
    if case.values not in emitted.GRIDS:
        return None
    if case.mode == "block":
        return "accept probabilities of a block are no eighths, so it has no exact grid"
    if not 2 <= case.vocab <= EIGHTHS or case.slots > 3:
        return "a grid has 2 to 8 tokens and at most 3 slots"
    points = math.prod(sizes(case))
    return f"the grid has {points} points, of which the batch must be a multiple" if case.batch % points else None


def rows(case: Case, draw: Draw) -> Rows:
    """The rows of the case."""
    if case.values == "drawn":
        made = [chances.step(draw, 1, case.vocab, "random") for _ in range(case.slots)]
        return Rows(torch.cat([step.p for step in made]), torch.cat([step.q for step in made[:-1]]) if case.slots > 1 else made[0].q[:0])
    p, q = (torch.tensor(part, device=draw.device).float().view(-1, case.vocab) / EIGHTHS for part in _eighths(case))
    return Rows(p, q)


def requests(case: Case, draw: Draw, made: Rows) -> dict[str, Any]:
    """Candidates, rows and coins of a batch of requests with the same rows."""
    batch, slots, vocab, device = case.batch, case.slots, case.vocab, draw.device
    tokens = draw.integers(batch, slots, low=0, high=vocab)
    draft = made.q.expand(batch, -1, -1).contiguous()
    if case.values == "drawn":
        for step in range(slots - 1):
            mass = (made.q[step : step + 1] * chances.UNIT).long()
            through = mass.cumsum(-1)[0]
            tokens[:, step + 1] = torch.searchsorted(through, draw.integers(batch, low=0, high=chances.UNIT), right=True)
        coins, final = draw.uniform(batch, slots - 1), draw.uniform(batch)
    else:
        shape = sizes(case)
        digit = emitted.digits(batch, shape, device)
        coins = emitted.coin(digit[1:-1:2], EIGHTHS).T.contiguous()
        final = emitted.coin(digit[-1], shape[-1])
        for step, drafted in enumerate(digit[:-1:2]):
            held = torch.repeat_interleave(torch.arange(vocab, device=device), (made.q[step] * EIGHTHS).long())
            tokens[:, step + 1] = held[drafted] if case.values == "grid" else drafted
        if case.values == "gridhot":
            draft = torch.zeros_like(draft).scatter_(2, tokens[:, 1:, None], 1.0)
    return {
        "candidates": tokens,
        "target_probs": made.p.expand(batch, -1, -1).contiguous(),
        "draft_probs": draft,
        "uniform_samples": coins,
        "uniform_final": final,
    }


def reference(x: Inputs) -> dict[str, Judged | Drawn]:
    """Structure of every output, and the law of what is emitted."""
    batch, slots, _ = x.target_probs.shape
    place = torch.arange(slots, device=x.device).repeat(batch, 1)
    walk = Walk.structure(x, place - 1, place, slots)
    shown = slots if x.case.mode == "token" else 1
    p, q = x.target_probs[0, :shown].double(), x.draft_probs[0].double()

    def instead() -> list[Instead]:
        other = torch.cat((q, x.target_probs[0, slots - 1 :].double()))[:shown]
        common = torch.minimum(p, other)
        return [
            Instead("distribution", "Every draft is accepted: tokens follow the draft's row", other),
            Instead("distribution", "The draft is not taken off what a rejection leaves", common + (1 - common.sum(1, keepdim=True)) * p),
        ]

    law = emitted.follows(Judged(walk.judge_predicts), lambda pairs: emitted.by_node(pairs, slots)[:shown], p, x.case.values in emitted.GRIDS, "node", instead)
    return {"accept_token_num": Judged(walk.judge_count), "accept_index": Judged(walk.judge_index), "predicts": law}
