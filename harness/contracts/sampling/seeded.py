"""seeded_sample: the same seed, position and row give the same token, in any slot of a batch and on any call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real, words
from harness.contracts.expected import Drawn, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.sampling import filters, murmur
from harness.contracts.sampling.distributions import BATCH, VALUES, VOCAB, probs
from harness.contracts.sampling.drawing import AGAIN

FEW = ("fewseeds", "fewpositions", "highseeds")
HAIR = 2e-5  # relative: by how much one token of a level row has more than the noise asks for
GROUPS = 8  # distinct seeds or positions there


@contract("sampling")
class seeded_sample:
    """One token a row, fixed by the row's seed and position.

    probs fp32 [2 batch, vocab]; seeds, positions int64 [2 batch]; twin int64 [batch]: row batch + i is row twin[i] again,
    in another slot; top_k int, top_p float (off by default; joint) -> ids [2 batch, 2], the second column from a second call.
    seeds `unlucky`: one column without mass hashes to 2^32 - 1, whose Gumbel noise is infinite unless it is bounded.
    seeds `fewseeds`: one row of probabilities for all, GROUPS seeds each at consecutive positions; `fewpositions`: consecutive seeds at
    GROUPS positions; `highseeds`: the same, the seeds consecutive above their lower 32 bits. What they draw must follow the row, and no
    two rows may share a random number.
    seeds `level`: each token is as improbable as its MurmurHash3 noise is high, but for one that has a hair more; so a hash that is a little off
    decides otherwise.
    noise `murmur3`: the token is the one with the greatest log(p) - log(-log(h / (2^32 - 1))), h the MurmurHash3 of seed,
    position and column; rounding of log(p) to fp32 may decide between neighbours.
    """

    axes = (
        BATCH,
        VOCAB,
        number("k", "k", "tokens kept", default=0, least=None, search=(-1, 2048)),
        real("p", "p", "mass kept", default=1.0, search=(0.9, 0.5, 0.1, 0.95, 0.99, 0.999999, 1e-6)),
        words(
            "seeds",
            ("plain", "unlucky", *FEW, "level"),
            "as they come, solved for the worst hash, few with many positions, many with few, as they come with rows made for them",
            default="plain",
        ),
        VALUES,
    )
    outputs = ("ids",)
    relations = {"strided": strided("probs")}
    semantics = {"ties": ("all", "exactly-k"), "noise": ("any", "murmur3")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        p = probs(draw, case.batch, case.vocab, case.values)
        seeds = draw.bits(case.batch) & 0x7FFFFFFFFFFFFFFF
        positions = draw.integers(case.batch, low=0, high=1 << 17)
        if case.seeds == "unlucky":
            columns = (p > 0).int().argmin(-1) if not case.k else torch.full((case.batch,), case.vocab - 1)
            solved = [murmur.seed_for(murmur.WORD, at, column) for at, column in zip(positions.tolist(), columns.tolist(), strict=True)]
            seeds = torch.tensor(solved, dtype=torch.int64, device=draw.device)
        if case.seeds in FEW:
            p = p[:1].expand(case.batch, -1)
            place = torch.arange(case.batch, device=draw.device)
            few, many = seeds[place % GROUPS], int(seeds[0] >> 1) + place // GROUPS
            if case.seeds == "highseeds":
                many = (int(seeds[0]) & murmur.WORD) + (place // GROUPS << 32)
            seeds, positions = (few, int(positions[0]) + place // GROUPS) if case.seeds == "fewseeds" else (many, positions[place % GROUPS])
        if case.seeds == "level":
            best = draw.integers(case.batch, 1, low=0, high=case.vocab)
            score = (-_noise(seeds, positions, case.vocab)).scatter_add(1, best, torch.full_like(best, HAIR, dtype=torch.float64))
            p = torch.softmax(score, -1).float()
        twin = draw.permutation(case.batch)
        order = torch.cat((torch.arange(case.batch, device=draw.device), twin))
        return Inputs(case, draw.device, probs=p[order], seeds=seeds[order], positions=positions[order], twin=twin, top_k=case.k, top_p=case.p)

    def _support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        k = torch.full((x.probs.shape[0], 1), x.top_k, dtype=torch.int64, device=x.device)
        return filters.nucleus(x.probs, k, torch.full_like(k, x.top_p, dtype=torch.float64), semantics["ties"])

    def allowed(self, x: Inputs, semantics: Semantics) -> torch.Tensor:
        """bool [2 batch, vocab]: what the filters leave, and of it what the declared noise picks."""
        support = self._support(x, semantics)
        if semantics["noise"] == "any" or x.top_k or x.top_p < 1:
            return support.allowed
        score = torch.log(x.probs.double())
        band = 4 * rounding.FP32 * (1 + score.masked_fill(score.isinf(), 0.0).abs())
        score = score + _noise(x.seeds, x.positions, x.case.vocab)
        return support.allowed & (score + band >= (score - band).amax(-1, keepdim=True))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Judged | Drawn]:
        allowed, batch, twin = self.allowed(x, semantics), x.case.batch, x.twin
        support = self._support(x, semantics)
        weights, kept, required = x.probs.double() * support.allowed, support.allowed[:1], support.required[:1]

        def judge(ids: Any) -> tuple[str, str] | None:
            if not isinstance(ids, torch.Tensor) or tuple(ids.shape) != (2 * batch, 2):
                return "shape", f"expected ids of shape {(2 * batch, 2)}, got {tuple(getattr(ids, 'shape', ()))}"
            ids = ids.long()
            outside = (ids < 0) | (ids >= allowed.shape[1])
            wrong = outside | ~allowed.gather(1, ids.clamp(0, allowed.shape[1] - 1))
            if bool(wrong.any()):
                row, call = torch.nonzero(wrong)[0].tolist()
                return "support", f"Wrong draws: {int(wrong.sum())} / {wrong.numel()}\nRow {row}, call {call}: drew id {int(ids[row, call])}"
            if unseeded(ids, weights):
                return "ignored-flag", "The seed is ignored: two calls agree no more often than chance has it"
            if bool((ids[:, 0] != ids[:, 1]).any()):
                row = int(torch.nonzero(ids[:, 0] != ids[:, 1])[0])
                return "invariant", f"Row {row}: the same seed and position gave {ids[row].tolist()} on two calls"
            moved = ids[:batch][twin] != ids[batch:]
            if bool(moved.any()):
                at = int(torch.nonzero(moved[:, 0])[0])
                first, second = int(ids[int(twin[at]), 0]), int(ids[batch + at, 0])
                text = f"Rows that depend on their slot: {int(moved[:, 0].sum())} / {batch}"
                return "invariant", f"{text}\nSlots {int(twin[at])} and {batch + at}: same row, seed and position, ids {first} and {second}"
            return ungrouped(ids[:batch, 0], weights[0], x.case.seeds) if x.case.seeds in FEW else None

        if x.case.seeds not in FEW:
            return {"ids": Judged(judge)}
        return {"ids": Drawn(kept, weights=weights[:1], required=required, ids=lambda ids: ids[None, :batch, 0], first=Judged(judge))}

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """Four times the rows, of the same probabilities, with seeds and positions of their own."""
        case = Case(x.case.op, x.case.id, {**x.case.point, "batch": AGAIN * x.case.batch})
        made = self.inputs(case, draw)
        return made.copy_with(probs=x.probs[:1].expand(2 * case.batch, -1).contiguous())

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python: the best of log(p) plus Gumbel noise among what is kept by rank."""
        ids = []
        for p, seed, position in zip(x.probs.double().tolist(), x.seeds.tolist(), x.positions.tolist(), strict=True):

            def score(i: int, p: list[float] = p, seed: int = seed, position: int = position) -> float:
                share = min(max(murmur.hash_one(seed, position, i) / murmur.WORD, 1e-300), 1 - 2.0**-33)
                return math.log(p[i]) - math.log(-math.log(share))

            kept = filters.kept_by_rank(p, x.top_k, x.top_p, semantics["ties"])
            ids.append(max(kept, key=score))
        return {"ids": torch.tensor(ids)[:, None].expand(-1, 2)}

    def work(self, case: Case) -> Work:
        elements = 2 * case.batch * case.vocab
        return Work(20 * elements, elements * 4)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        for batch in (1,) if small else (1, 8, 32):
            yield {"batch": batch, "vocab": g.model.vocab}


def _noise(seeds: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """Gumbel noise fp64 [rows, vocab] of MurmurHash3."""
    share = (murmur.hashes(seeds, positions, vocab).double() / murmur.WORD).clamp(1e-300, 1 - 2.0**-33)
    return -torch.log(-torch.log(share))


def _chance(p: torch.Tensor) -> torch.Tensor:
    """Probability that two draws of each row are the same token."""
    return (p / p.sum(1, keepdim=True).clamp_min(1e-300)).square().sum(1)


def unseeded(ids: torch.Tensor, weights: torch.Tensor) -> bool:
    """Whether two calls agree as two unrelated draws would (told from other faults by 32 rows that differ), where one seed makes them agree."""
    rows = torch.arange(len(ids), device=ids.device)
    agree = ids[:, 0] == ids[:, 1]
    chance = _chance(weights)
    expected, spread = float(chance.sum()), float((chance * (1 - chance)).sum()) ** 0.5
    plausible = bool((weights[rows[:, None], ids] > 0).all())
    return plausible and float((~agree).sum()) >= 32 and abs(float(agree.sum()) - expected) <= 4 * spread + 1


def ungrouped(ids: torch.Tensor, weights: torch.Tensor, seeds: str) -> tuple[str, str] | None:
    """A finding where the rows of each seed (or position) drew one token throughout, which chance would not have: the other is ignored."""
    groups = ids[: len(ids) // GROUPS * GROUPS].view(-1, GROUPS)
    best = float(weights.max() / weights.sum())
    if len(groups) < 2 or bool((groups != groups[0]).any()) or bool((groups[0] == groups[0, 0]).all()):
        return None
    if (groups.numel() - GROUPS) * math.log(best) > math.log(1e-12):
        return None
    ignored, same = ("position", "seed") if seeds == "fewseeds" else ("seed", "position")
    return "ignored-flag", f"The {ignored} is ignored: all {len(groups)} rows of one {same} drew the same token, for each of {GROUPS}"
