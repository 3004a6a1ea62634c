"""Greedy acceptance of a block of drafts: dflash_accept, dflash_commit, dspark_accept_greedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, words
from harness.contracts.expected import Exact
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.rows import row_by_row
from harness.contracts.sampling.distributions import logits
from harness.contracts.speculative.chain import BATCH, SLOTS, VOCAB

DRAFTS = ("random", "accepted", "rejected")
IDS = 163840


def drafted(draw: Draw, predict: torch.Tensor, values: str) -> torch.Tensor:
    """candidates int64 [batch, slots] against predict [batch, slots]: random: three drafts in four are right, wherever a wrong one lies."""
    right = draw.integers(*predict.shape, low=0, high=4) != 0
    if values != "random":
        right = torch.full_like(right, values == "accepted")
    shifted = torch.roll(predict, 1, 1)
    return torch.where(right, shifted, shifted + 1)


def accepted(candidates: torch.Tensor, predict: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Leading drafts that equal the target's token one slot before, and that token after them; int64 [batch]."""
    wrong = candidates[:, 1:] != predict[:, :-1]
    end = torch.cat((wrong, torch.ones_like(wrong[:, :1]) if wrong.shape[1] else torch.ones_like(candidates, dtype=torch.bool)), 1)
    count = end.int().argmax(1)
    return count, predict.gather(1, count[:, None]).squeeze(1)


def accepted_one(candidates: list[int], predict: list[int]) -> tuple[int, int]:
    """The second formula of `accepted`, one request."""
    count = 0
    while count + 1 < len(candidates) and candidates[count + 1] == predict[count]:
        count += 1
    return count, predict[count]


@contract("speculative")
class dflash_accept:
    """Accept drafts while they equal what the target predicts one slot before.

    candidates, target_predict int64 [batch, slots] (slot 0 of candidates is the current token) -> correct_len int32 [batch], bonus
    int64 [batch], the target's token after the accepted drafts.
    """

    axes = (BATCH, SLOTS, words("values", DRAFTS, "right drafts: three in four, all, none", default="random"))
    outputs = ("correct_len", "bonus")
    relations = row_by_row("batch", "candidates", "target_predict")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        predict = draw.integers(case.batch, case.slots, low=0, high=IDS)
        return Inputs(case, draw.device, candidates=drafted(draw, predict, case.values), target_predict=predict)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        count, bonus = accepted(x.candidates, x.target_predict)
        return {"correct_len": Exact(count, dtype=torch.int32), "bonus": Exact(bonus, dtype=torch.int64)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        rows = [accepted_one(*pair) for pair in zip(x.candidates.tolist(), x.target_predict.tolist(), strict=True)]
        return {"correct_len": torch.tensor([n for n, _ in rows], dtype=torch.int32), "bonus": torch.tensor([token for _, token in rows])}

    def work(self, case: Case) -> Work:
        return Work(case.batch * case.slots, case.batch * (case.slots * 16 + 12))


@contract("speculative")
class dflash_commit:
    """dflash_accept together with what is committed.

    Inputs as dflash_accept and prefix_lens int64 [batch] -> accept_lens int32, commit_lens int32 (accept_lens + 1), bonus_ids int64
    [batch], out_tokens int64 [batch, slots] (accepted drafts, then the bonus; undefined after it), new_seq_lens int64 [batch].
    """

    axes = dflash_accept.axes
    outputs = ("accept_lens", "commit_lens", "bonus_ids", "out_tokens", "new_seq_lens")
    relations = row_by_row("batch", "candidates", "target_predict", "prefix_lens")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        predict = draw.integers(case.batch, case.slots, low=0, high=IDS)
        prefix = draw.integers(case.batch, low=0, high=1 << 20)
        return Inputs(case, draw.device, candidates=drafted(draw, predict, case.values), target_predict=predict, prefix_lens=prefix)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        count, bonus = accepted(x.candidates, x.target_predict)
        place = torch.arange(x.case.slots, device=x.device)
        tokens = torch.where(place < count[:, None], torch.roll(x.candidates, -1, 1), bonus[:, None])
        return {
            "accept_lens": Exact(count),
            "commit_lens": Exact(count + 1),
            "bonus_ids": Exact(bonus),
            "out_tokens": Exact(tokens, where=place <= count[:, None]),
            "new_seq_lens": Exact(x.prefix_lens + count + 1),
        }

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        rows = [accepted_one(*pair) for pair in zip(x.candidates.tolist(), x.target_predict.tolist(), strict=True)]
        tokens = [row[1 : n + 1] + [bonus] + [0] * (x.case.slots - n - 1) for row, (n, bonus) in zip(x.candidates.tolist(), rows, strict=True)]
        return {
            "accept_lens": torch.tensor([n for n, _ in rows]),
            "commit_lens": torch.tensor([n + 1 for n, _ in rows]),
            "bonus_ids": torch.tensor([bonus for _, bonus in rows]),
            "out_tokens": torch.tensor(tokens),
            "new_seq_lens": torch.tensor([old + n + 1 for old, (n, _) in zip(x.prefix_lens.tolist(), rows, strict=True)]),
        }

    def work(self, case: Case) -> Work:
        return Work(case.batch * case.slots, case.batch * (case.slots * 24 + 32))


@contract("speculative")
class dspark_accept_greedy:
    """dflash_accept from the target's logits, cut to a verify budget.

    candidates int64 [batch, slots], target_logits [batch * slots, vocab], verify_lens int32 [batch] (slots verified; None: all)
    -> correct_len int32 (at most verify_lens - 1), bonus int64 (the target's token after them), cap_trim_lens int32 (drafts cut off), all
    [batch]. The target's token is the first of the greatest logits.
    """

    axes = (
        BATCH,
        SLOTS,
        VOCAB,
        words("values", DRAFTS, "right drafts: three in four, all, none", default="random"),
        words("cut", ("whole", "cut"), "verify every slot, or a hashed number of them", default="whole"),
        words("dtype", DTYPES, "dtype of the logits", default="fp32"),
        words("scores", ("distinct", "ties", "masked"), "logits: random, rounded to whole numbers, two in three -inf", default="distinct"),
    )
    outputs = ("correct_len", "bonus", "cap_trim_lens")
    relations = row_by_row("batch", "candidates", "target_logits", "verify_lens")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        family = "random" if case.scores == "distinct" else case.scores
        rows = logits(draw, case.batch * case.slots, case.vocab, family, dtype_of(case.dtype))
        candidates = drafted(draw, _best(rows).view(case.batch, case.slots), case.values)
        lens = draw.integers(case.batch, low=1, high=case.slots + 1).to(torch.int32) if case.cut == "cut" else None
        return Inputs(case, draw.device, candidates=candidates % case.vocab, target_logits=rows, verify_lens=lens)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        predict = _best(x.target_logits).view(x.case.batch, x.case.slots)
        count, _ = accepted(x.candidates, predict)
        kept = count if x.verify_lens is None else torch.minimum(count, x.verify_lens.long() - 1)
        return {"correct_len": Exact(kept), "bonus": Exact(predict.gather(1, kept[:, None]).squeeze(1)), "cap_trim_lens": Exact(count - kept)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        made = []
        for b, row in enumerate(x.candidates.tolist()):
            lines = x.target_logits[b * x.case.slots : (b + 1) * x.case.slots].double().tolist()
            predict = [line.index(max(line)) for line in lines]
            count, _ = accepted_one(row, predict)
            kept = count if x.verify_lens is None else min(count, int(x.verify_lens[b]) - 1)
            made.append((kept, predict[kept], count - kept))
        return dict(zip(self.outputs, torch.tensor(made).unbind(1), strict=True))

    def work(self, case: Case) -> Work:
        elements = case.batch * case.slots * case.vocab
        return Work(elements, elements * dtype_of(case.dtype).itemsize)

    def for_model(self, g: Any, small: bool) -> Iterator[dict[str, Any]]:
        yield {"batch": 1 if small else 32, "slots": 2 if small else 4, "vocab": g.model.vocab}


def _best(rows: torch.Tensor) -> torch.Tensor:
    """The first of the greatest values of each row, whatever argmax does with ties."""
    return (rows == rows.amax(-1, keepdim=True)).int().argmax(-1)
