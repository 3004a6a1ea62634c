"""Trees whose emitted tokens must follow the target: the requests of the input families of emitted.py, and what is expected of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.expected import Drawn, Instead, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.speculative import emitted, trees
from harness.contracts.speculative.emitted import EIGHTHS
from harness.contracts.speculative.walk import Walk


class Rows(NamedTuple):
    """What all requests share: parent and candidates int64 [1, slots], target p fp32 [1, slots, vocab]."""

    parent: torch.Tensor
    tokens: torch.Tensor
    p: torch.Tensor


def _eighths(case: Case) -> list[list[int]]:
    return [emitted.target(case.vocab, node) for node in range(case.slots)]


def sizes(case: Case) -> list[int]:
    """Points of the grid: the coin of each node with children, then the final coin. Node n of the tree holds token n."""
    p = _eighths(case)
    children = [list(range(1, case.slots))] if case.shape == "wide" else [[node + 1] for node in range(case.slots - 1)]
    rests = [EIGHTHS - sum(row[child] for child in below) for row, below in zip(p, children, strict=False)]
    return [*[EIGHTHS] * len(children), emitted.finals(rests)]


def impossible(case: Case) -> str | None:
    """Why there is no such law or grid, or None."""
    if case.values not in emitted.LAWS:
        return None
    if case.single < 1 or case.acc != 1:
        return "thresholds other than 1 change what is emitted: only without them does it follow the target"
    if case.values == "drawn":
        return None
    if case.shape == "mixed" or not 2 <= case.slots <= case.vocab <= EIGHTHS or (case.shape == "chain" and case.slots > 4):
        return "a grid is wide, or a chain of at most 4 slots, with 2 to 8 tokens and no more slots than tokens"
    points = math.prod(sizes(case))
    return f"the grid has {points} points, of which the batch must be a multiple" if case.batch % points else None


def rows(case: Case, draw: Draw, row: Callable[[Draw, Case, dict[str, torch.Tensor], int], torch.Tensor]) -> Rows:
    """The tree and rows of the case; `row` gives the target of a node of a hashed tree."""
    slots = case.slots
    parent = trees.parents(draw, 1, slots, case.shape)
    if case.values != "drawn":
        tokens = torch.arange(slots, device=draw.device)[None]
        return Rows(parent, tokens, torch.tensor(_eighths(case), device=draw.device).float()[None] / EIGHTHS)
    first = draw.integers(1, slots, low=0, high=case.vocab)
    tokens = (first.gather(1, parent.clamp(min=0)) + trees.ranks(parent) * 7 + 1) % case.vocab
    one = Case(case.op, case.id, {**case.point, "batch": 1, "values": "random"})
    return Rows(parent, tokens, torch.stack([row(draw, one, {"parent": parent, "candidates": tokens}, node) for node in range(slots)], 1))


def requests(case: Case, draw: Draw, made: Rows) -> dict[str, Any]:
    """The inputs of a batch of requests with the same tree and rows."""
    batch, slots, device = case.batch, case.slots, draw.device
    parent = made.parent.expand(batch, -1).contiguous()
    tokens = made.tokens.repeat(batch, 1)
    tokens[:, 0] = draw.integers(batch, low=0, high=case.vocab)  # the current token, which nothing depends on
    if case.values == "drawn":
        coins, final = draw.uniform(batch, slots), draw.uniform(batch)
    else:
        shape = sizes(case)
        digit = emitted.digits(batch, shape, device)
        coins = torch.full((batch, slots), 0.5, device=device)
        coins[:, : len(shape) - 1] = emitted.coin(digit[:-1], EIGHTHS).T
        final = emitted.coin(digit[-1], shape[-1])
    target = made.p.expand(batch, -1, -1).contiguous()
    return {
        "parent": parent,
        "candidates": tokens,
        **trees.links(parent),
        **trees.verify_buffers(batch, slots, int(trees.depths(made.parent).max()) + 1, device),
        "target_probs": target,
        "draft_probs": torch.zeros_like(target),
        "uniform_samples": coins,
        "uniform_final": final,
        "threshold_single": case.single,
        "threshold_acc": case.acc,
    }


def reference(x: Inputs) -> dict[str, Judged | Drawn]:
    """Structure of every output, and the law of what is emitted."""
    slots, p = x.case.slots, x.target_probs[0].double()
    walk = Walk.structure(x, x.parent, trees.depths(x.parent), x.accept_index.shape[1])

    def instead() -> list[Instead]:
        return [Instead("distribution", "Rejected children are not taken off what is left", _kept(p, x.parent[0], x.candidates[0]))]

    law = emitted.follows(Judged(walk.judge_predicts), lambda pairs: emitted.by_node(pairs, slots), p, x.case.values in emitted.GRIDS, "node", instead)
    return {"accept_token_num": Judged(walk.judge_count), "accept_index": Judged(walk.judge_index), "predicts": law}


def _kept(p: torch.Tensor, parent: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """What is emitted after each node where a rejected child may be drawn after all."""
    made = torch.empty_like(p)
    for node in range(len(p)):
        taken = torch.zeros_like(p[node])
        taken[tokens[parent == node]] = p[node][tokens[parent == node]]
        made[node] = taken + (1 - taken.sum()) * p[node]
    return made
