"""served_sample: a batch of requests with parameters of their own, as a server's sampler gets it; each row is judged as if alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Drawn, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import Relation
from harness.contracts.relations.base import none_of, nothing
from harness.contracts.relations.rows import row_by_row, several
from harness.contracts.sampling import filters
from harness.contracts.sampling.distributions import logits
from harness.contracts.sampling.drawing import AGAIN, DRAWS
from harness.contracts.sampling.requests import BY_ROW, MIXES, adjusted, heat, requests
from harness.contracts.sampling.served_mistakes import mistakes
from harness.contracts.speculative.target_probs import roughness, select

UNLIKELY = 32  # rows that differ between two calls of one seed before chance is spoken of


def _only(seeded: bool, unfit: Any = lambda case: None) -> Any:
    def why(case: Case) -> str | None:
        if (case.mode == "seeded") is not seeded:
            return "two calls draw the same where they have seeds, and else not"
        return unfit(case)

    return why


def _relations() -> dict[str, Relation]:
    """slots and alone to the bit where the rows have seeds; solo: each row alone, its draws judged by themselves."""
    made = row_by_row("batch", *BY_ROW)
    lawful = {word: Relation(law.doc, law.vary, law.back, promise=word, unfit=_only(True, law.unfit)) for word, law in made.items()}
    alone = made["alone"]
    return {**lawful, "solo": Relation("each row alone, judged by itself", alone.vary, nothing, none_of, unfit=_only(False, several("batch", 16)))}


class Requested:
    """What ops on a batch of requests share: each row follows its own parameters."""

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        """Which tokens each row keeps."""
        return supported(x, semantics)

    def weights(self, x: Inputs) -> torch.Tensor:
        """fp64 [batch, vocab]: each row's probabilities before its filters."""
        return torch.softmax(heat(x, adjusted(x)), -1)

    def drawn(self, x: Inputs, semantics: Semantics, **more: Any) -> Drawn:
        """Draws of each row; `more` as for Drawn."""
        support, weights = self.support(x, semantics), self.weights(x)
        gap = float((weights * 4 * roughness(heat(x, adjusted(x)), weights)).amax())
        made: dict[str, Any] = {"weights": weights, "required": support.required, "kept": support.kept, "gap": gap}
        return Drawn(support.allowed, **made, instead=lambda: mistakes(self, x, semantics), **more)


@contract("sampling")
class served_sample(Requested):
    """A batch as a server samples it: penalties, then the grammar's mask, then the logit bias, temperature, softmax, top-k, top-p, min-p, a draw;
    every row by its own parameters, whatever those of its neighbours are.

    logits fp32 [batch, vocab]; temperature (0: greedy), top_p, min_p, frequency, presence, repetition fp32 [batch]; top_k int32 [batch] (2^30: off);
    generated int64 [batch, length]; least int64 [batch]: the row's stop token is forbidden while fewer tokens are generated; stop int64 [batch];
    allowed bool [batch, vocab] and constrained bool [batch]: what the grammar of a constrained row lets through; bias_ids int64, bias fp32 [batch, n];
    seeds, positions int64 [batch] -> ids [batch, draws]. mode `seeded`: draw j is that of position + j, twice: ids [batch, draws, 2].
    order: `joint` takes top-p of the whole mass; `own` takes it of what top-k left in a row that has min-p, and in no other.
    """

    axes = (
        number("batch", "b", "requests"),
        number("vocab", "v", "vocabulary size", least=8, search=(8, 200_000)),  # something is left of every row
        words("mix", tuple(MIXES), "the kinds of request, one row after the other", default="every"),
        words("mode", ("free", "seeded"), "random numbers of the device, or of each row's seed and position", default="free"),
        number("length", "l", "tokens generated so far", default=16),
        DRAWS,
        words("values", ("random", "ties", "peaked", "flat"), "input family of the logits", default="random"),
    )
    outputs = ("ids",)
    semantics = {"ties_k": ("exactly-k", "all"), "ties_p": ("by-rank", "all"), "order": ("joint", "own")}
    relations = _relations()

    def impossible(self, case: Case) -> str | None:
        return "seeds have no min-p" if case.mode == "seeded" and case.mix == "every" else None

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return requests(case, draw, logits(draw, case.batch, case.vocab, case.values))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Drawn]:
        if x.case.mode == "free":
            return {"ids": self.drawn(x, semantics)}
        mass = self.weights(x) * self.support(x, semantics).allowed
        return {"ids": self.drawn(x, semantics, ids=lambda ids: ids[..., 0], first=Judged(lambda ids: _twice(ids, mass)))}

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """The same rows, drawn from four times as often, with seeds at positions that the first look had not."""
        case = Case(x.case.op, x.case.id, {**x.case.point, "draws": AGAIN * x.draws})
        return x.copy_with(draws=AGAIN * x.draws, case=case, positions=x.positions + x.draws)

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row and token by token in plain Python: every token that may be drawn, padded by repeating."""
        from harness.contracts.sampling.requests import kept_alone

        kept = [kept_alone(x, row, semantics) for row in range(x.case.batch)]
        width = max(map(len, kept))
        ids = torch.tensor([(row * width)[:width] for row in kept])
        return {"ids": ids if x.case.mode == "free" else ids[..., None].expand(-1, -1, 2)}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        ids = outputs.get("ids")
        shape = (x.case.batch, x.draws) if x.case.mode == "free" else (x.case.batch, x.draws, 2)
        return {**outputs, "ids": ids.reshape(shape).long()} if isinstance(ids, torch.Tensor) else outputs

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab * case.draws  # a draw is a step of the server
        return Work(30 * elements, 16 * elements)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        for mix in ("every", "narrow", "simple"):
            yield {"batch": 4 if small else 16, "vocab": g.model.vocab, "mix": mix, "draws": 1}


def supported(x: Inputs, semantics: Semantics) -> filters.Support:
    """Which tokens each row keeps by its own parameters; order `top-k-first` takes top-p of what top-k left in every row."""
    scaled = heat(x, adjusted(x))
    weights = torch.softmax(scaled, -1)
    rough = 4 * roughness(scaled, weights)
    slack = torch.where(weights > filters.SMALLEST, rough, 0.0).amax(-1, keepdim=True) + 2.0**-24 * (8 + 4 * x.case.vocab**0.5)
    k = x.top_k.long().clamp(1, x.case.vocab)[:, None]
    target, share = x.top_p.double()[:, None], x.min_p.double()[:, None]
    own = ((share > 0) & (semantics["order"] == "own")) | (semantics["order"] == "top-k-first")
    joint, after = (select(scaled, weights, k, target, slack, {**semantics, "order": word}) for word in ("joint", "top-k-first"))
    required, allowed = (torch.where(own, second, first) for first, second in zip(joint[:2], after[:2], strict=True))
    edge = weights.amax(-1, keepdim=True) * share
    band = 2.0**-22 + rough
    best = weights == weights.amax(-1, keepdim=True)
    required = required & ((weights >= edge * (1 + band)) | best)
    kept = None if joint[2] is None or after[2] is None else torch.where(share[:, 0] > 0, -1, torch.where(own[:, 0], after[2], joint[2]))
    return filters.Support(required, allowed & (weights >= edge * (1 - band)), kept)


def _twice(ids: Any, kept: torch.Tensor) -> tuple[str, str] | None:
    """What two calls with the same seeds have to do with each other: everything; and a seed's draws at other positions are others."""
    if not isinstance(ids, torch.Tensor) or ids.dim() != 3 or len(ids) != len(kept) or ids.shape[2] != 2:
        return "shape", f"expected ids [{len(kept)}, draws, 2], got {list(getattr(ids, 'shape', ()))}"
    draws = ids.shape[1]
    p = kept / kept.sum(1, keepdim=True).clamp_min(1e-300)
    chance = p.square().sum(1)
    differ = (ids[..., 0] != ids[..., 1]).sum(1)
    if bool(differ.any()):
        expected, spread = float(((1 - chance) * draws).sum()), float((chance * (1 - chance) * draws).sum()) ** 0.5
        if int(differ.sum()) >= UNLIKELY and abs(int(differ.sum()) - expected) <= 4 * spread + 1:
            return "ignored-flag", "The seed is ignored: two calls agree no more often than chance has it"
        row = int(torch.nonzero(differ)[0])
        return "invariant", f"Row {row}: the same seed and position gave other tokens on two calls, {int(differ[row])} times in {draws}"
    stuck = (ids[:, :1, 0] == ids[..., 0]).all(1) & (p.amax(1) ** draws < 1e-12)
    if bool(stuck.any()) and bool((stuck | (p.amax(1) ** draws >= 1e-12)).all()):
        return "ignored-flag", f"The position is ignored: all {draws} draws of a row are one token, in every row that could tell"
    return None
