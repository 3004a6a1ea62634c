"""chain_verify: speculative sampling of a chain of drafts (Leviathan et al. 2023, Chen et al. 2023) and its block form (Sun et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Drawn, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import Relation
from harness.contracts.sampling.drawing import AGAIN
from harness.contracts.speculative import chain_laws, chain_rules, chances, emitted, trees
from harness.contracts.speculative.walk import Walk, final_range, normalised

BATCH = number("batch", "b", "requests")
SLOTS = number("slots", "n", "verified slots a request: the current token and slots - 1 drafts", search=(1, 33))
VOCAB = number("vocab", "v", "vocabulary size", search=(1, 200_000))


def chain_links(batch: int, slots: int, device: str) -> dict[str, torch.Tensor]:
    """Child and sibling lists of a chain, int64 [batch, slots]."""
    following = torch.arange(1, slots + 1, dtype=torch.int64, device=device)
    following[-1] = -1
    return {
        "retrive_next_token": following.repeat(batch, 1),
        "retrive_next_sibling": torch.full((batch, slots), -1, dtype=torch.int64, device=device),
    }


@contract("speculative")
class chain_verify:
    """Accept drafts of a chain while u q < p (mode `token`) or by joint prefix probability (mode `block`), then draw one more token.

    candidates int64 [batch, slots] (slot 0 is the current token), target_probs [batch, slots, vocab], draft_probs
    [batch, slots - 1, vocab], uniform_samples [batch, slots - 1], uniform_final [batch], all fp32 -> accept_token_num [batch],
    accept_index [batch, slots] (-1 after the path), predicts [batch * slots] (undefined off the path), filled in place.
    The final token is the inverse of the cumulative sum of max(p - q, 0) at the first rejection, of p after the last draft.
    values `drawn` and `grid` (emitted.py): the tokens emitted after each node must follow p, whatever the drafts and whatever the coins
    decide; of mode block the first, which alone has a law of its own.
    A token with p = 0 is never accepted; one with q = 0 cannot have been drafted, so either decision is right (mode block:
    rejected); a draft row of NaN counts as no draft. semantics `uniforms`: own, when the provider cannot take ours.
    """

    axes = (
        BATCH,
        SLOTS,
        VOCAB,
        words("values", chances.VALUES, "input family", default="random"),
        words("mode", ("token", "block"), "verify token by token, or the block as one", default="token"),
    )
    outputs = ("accept_token_num", "accept_index", "predicts")
    semantics = {"uniforms": ("supplied", "own")}
    mutates = ("predicts", "accept_index", "accept_token_num")
    relations: dict[str, Relation] = {}

    def impossible(self, case: Case) -> str | None:
        return chain_laws.impossible(case)

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        batch, slots, vocab, device = case.batch, case.slots, case.vocab, draw.device
        if case.values in emitted.LAWS:
            return self._law(case, draw, chain_laws.rows(case, draw))
        target = torch.empty(batch, slots, vocab, device=device)
        draft = torch.empty(batch, slots - 1, vocab, device=device)
        tokens = draw.integers(batch, slots, low=0, high=vocab)
        for i in range(slots):
            made = chances.step(draw, batch, vocab, case.values)
            target[:, i] = made.p
            if i < slots - 1:
                draft[:, i] = made.q
                tokens[:, i + 1] = made.token.squeeze(1)
        return Inputs(
            case,
            device,
            candidates=tokens,
            target_probs=target,
            draft_probs=draft,
            uniform_samples=chances.coins(draw, batch, slots - 1, values=case.values),
            uniform_final=chances.coins(draw, batch, values=case.values),
            **trees.verify_buffers(batch, slots, slots, device),
            **chain_links(batch, slots, device),
        )

    def _law(self, case: Case, draw: Draw, rows: chain_laws.Rows) -> Inputs:
        buffers = trees.verify_buffers(case.batch, case.slots, case.slots, draw.device)
        return Inputs(case, draw.device, **chain_laws.requests(case, draw, rows), **buffers, **chain_links(case.batch, case.slots, draw.device))

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """Four times the requests, with the same rows and fresh drafts and coins."""
        case = Case(x.case.op, x.case.id, {**x.case.point, "batch": AGAIN * x.case.batch})
        return self._law(case, draw, chain_laws.Rows(x.target_probs[0], x.draft_probs[0]))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Judged | Drawn]:
        if x.case.values in emitted.LAWS:
            return chain_laws.reference(x)
        walk = _walk(x, own=semantics["uniforms"] == "own")
        return {"accept_token_num": Judged(walk.judge_count), "accept_index": Judged(walk.judge_index), "predicts": Judged(walk.judge_predicts)}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        return normalised(x, outputs)

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Request by request in plain Python."""
        batch, slots = x.candidates.shape
        index = torch.full((batch, slots), -1, dtype=torch.int64)
        pairs = torch.full((batch, slots, 2), -1, dtype=torch.int64)
        counts = []
        for b in range(batch):
            p, q = x.target_probs[b].double().tolist(), x.draft_probs[b].double().tolist()
            tokens = x.candidates[b].tolist()
            accepted, scale = chain_rules.accepted(p, q, tokens[1:], x.uniform_samples[b].double().tolist(), x.case.mode == "block")
            row = p[accepted]
            if accepted < slots - 1:
                row = [max(scale * a - (c if 0 <= c <= 1 else 0.0), 0.0) for a, c in zip(row, q[accepted], strict=True)]
            emitted = [*tokens[1 : accepted + 1], chain_rules.inverse(row, float(x.uniform_final[b]))]
            counts.append(accepted)
            index[b, : accepted + 1] = torch.arange(accepted + 1) + b * slots
            pairs[b, : accepted + 1] = torch.tensor(list(enumerate(emitted)))
        return {"accept_token_num": torch.tensor(counts), "accept_index": index, "predicts": pairs}

    def work(self, case: Case) -> Work:
        row = case.batch * case.vocab
        return Work(4 * row, 8 * row)

    def for_model(self, g: Any, small: bool) -> Iterator[dict[str, Any]]:
        for mode in ("token", "block"):
            yield {"batch": 1 if small else 32, "slots": 3 if small else 4, "vocab": g.model.vocab, "mode": mode}


def _walk(x: Inputs, own: bool) -> Walk:
    batch, slots, vocab = x.target_probs.shape
    block, exact = x.case.mode == "block", x.case.values != "float"
    drafted = x.candidates[:, 1:, None]
    p = x.target_probs[:, :-1].gather(2, drafted).squeeze(2).double()
    q = x.draft_probs.gather(2, drafted).squeeze(2).double()
    scale = torch.ones(batch, slots, dtype=torch.float64, device=x.device)
    if block:
        scale[:, 1:], accept, reject = chain_rules.block(x, p, q)
    else:
        accept, reject = chain_rules.token(p, q, x.uniform_samples.double(), chances.band(exact, vocab), own)
    band = 2.0 if own else chances.band(exact and not block, vocab)  # twice the sum: any token
    low = torch.empty(batch, slots, dtype=torch.int64, device=x.device)
    high = torch.empty_like(low)
    support = torch.empty(batch, slots, vocab, dtype=torch.bool, device=x.device)
    for n in range(slots):
        row = x.target_probs[:, n].double()
        support[:, n] = row > 0
        slack = 0.0
        if n < slots - 1:
            slack = rounding.FP32 * (2 * n + 4) if block and n else 0.0
            other = torch.nan_to_num(x.draft_probs[:, n].double(), nan=0.0, posinf=0.0)
            row = scale[:, n, None] * row - other
            support[:, n] &= row > -slack * other
        low[:, n], high[:, n] = final_range(row, x.uniform_final, band, slack)
    place = torch.arange(slots, device=x.device).repeat(batch, 1)
    return Walk(x.candidates, place - 1, chain_rules.stops(accept, reject, block), place, low, high, support, slots)
