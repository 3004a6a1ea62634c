"""dspark_accept_sampling: sampled acceptance of a block by the provider's own random numbers, judged by what is possible."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real, words
from harness.contracts.expected import Drawn, Instead, Judged
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.sampling.distributions import logits
from harness.contracts.sampling.drawing import AGAIN
from harness.contracts.speculative import emitted, noise
from harness.contracts.speculative.accept_rows import STRIDE, level, near, rows_inputs
from harness.contracts.speculative.chain import BATCH, SLOTS, VOCAB
from harness.contracts.speculative.chain_rules import stops
from harness.contracts.speculative.walk import Said
from harness.words import plural

CLOSE = 1e-4  # relative: p and q nearer than this may compare either way
NEAR = 2e-5  # the same for p and q of declared noise, whose rounding alone is left


@contract("speculative")
class dspark_accept_sampling:
    """Token-by-token speculative sampling from logits, cut to a verify budget.

    candidates int64 [batch, slots], target_logits fp32 [batch * slots, vocab], draft_logits fp32 and draft_probs, their softmax, [batch,
    slots - 1, vocab], temperatures fp32 [batch, 1], verify_lens int32 [batch] or None -> correct_len int32 (at most
    verify_lens - 1), bonus int64 (a token of max(p - q, 0) at the rejection, of p after the last draft, or the draft after the cut),
    cap_trim_lens int32 (drafts cut off), all [batch]. Draft rows are flat over 2^m tokens, so that q is exact at any temperature.
    values `near`: each target row is its draft row, of any shape, less a share that one token gains; so that token is surely accepted, the
    token that is ruled out surely rejected and the gaining one alone left, while no logit or log-sum-exp may be off by more than the share.
    Temperatures differ from request to request.
    values `level`: by noise `counter` each draft is accepted or rejected by a hair, and of what a row leaves all tokens would have one score but
    for a hair that one of them has more; so a random number that is a little off decides otherwise. One number is the least or, with an odd
    number of slots, the greatest there is.
    noise `counter` and `torch`: the coins and the Gumbel noise follow from noise_key and noise_step, int64 [1], which are not used otherwise
    (`contracts.speculative.noise`); rounding alone may decide between neighbours.
    """

    axes = (
        BATCH,
        SLOTS,
        VOCAB,
        words(
            "values",
            ("random", "decided", "accepted", "rejected", "drawn", "near", "level"),
            "possible, certain, all, none; requests alike; certain by a little; decided by a little by the noise",
            default="random",
        ),
        number("spread", "w", "log2 of the tokens a draft row holds; 0: certain of its token", default=3, least=0, search=(0, 12)),
        real("temperature", "t", "divides the target's logits", default=1.0, least=1e-3, search=(0.01, 0.1, 0.7, 1.5, 10.0)),
        words("cut", ("whole", "cut"), "verify every slot, or a hashed number of them", default="whole"),
    )
    outputs = ("correct_len", "bonus", "cap_trim_lens")
    semantics = {"noise": ("any", "counter", "torch")}

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        if case.slots < 2:
            return "a chain without drafts has nothing to verify"
        if case.values == "near" and (case.vocab < 4 or not case.spread):
            return "a draft row near its target holds at least 4 tokens"
        if case.values == "level" and case.vocab < (1 << case.spread) + 2:
            return "a level row holds two tokens that its draft row does not"
        if case.vocab < 2 and case.values in ("rejected", "decided"):
            return "a draft of the only token cannot be ruled out"
        if 1 << case.spread > case.vocab // math.gcd(STRIDE, case.vocab):
            return f"a draft row of {1 << case.spread} tokens, {STRIDE} apart, does not fit {plural(case.vocab, 'token')}"
        return "a cut hides what was drawn" if case.values == "drawn" and case.cut == "cut" else None

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        if case.values == "drawn":
            rows = logits(draw, case.slots, case.vocab, "random")
            return self._alike(case, draw, rows, draw.integers(case.slots - 1, low=0, high=case.vocab))
        if case.values == "near":
            return near(case, draw)
        if case.values == "level":
            return level(case, draw)
        batch, slots, vocab = case.batch, case.slots, case.vocab
        tokens = draw.integers(batch, slots, low=0, high=vocab)
        rows = logits(draw, batch * slots, vocab, "random").view(batch, slots, vocab)
        sure = draw.integers(batch, slots - 1, low=0, high=4) != 0
        if case.values in ("accepted", "rejected"):
            sure = torch.full_like(sure, case.values == "accepted")
        if case.values != "random":
            rows[:, :-1].scatter_(2, tokens[:, 1:, None], torch.where(sure, 40.0, -math.inf)[:, :, None])
        lens = draw.integers(batch, low=1, high=slots + 1).to(torch.int32) if case.cut == "cut" else None
        return rows_inputs(case, draw, tokens, rows, tokens[:, 1:], lens)

    def _alike(self, case: Case, draw: Draw, rows: torch.Tensor, first: torch.Tensor) -> Inputs:
        """Requests with the same rows: draft row i is flat over tokens from first[i] on, and each draft is drawn from it."""
        tokens = draw.integers(case.batch, case.slots, low=0, high=case.vocab)
        tokens[:, 1:] = (first + STRIDE * draw.integers(case.batch, case.slots - 1, low=0, high=1 << case.spread)) % case.vocab
        return rows_inputs(case, draw, tokens, rows.repeat(case.batch, 1, 1), first.expand(case.batch, -1), None)

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """Four times the requests, with the same rows and fresh drafts."""
        case = Case(x.case.op, x.case.id, {**x.case.point, "batch": AGAIN * x.case.batch})
        return self._alike(case, draw, x.target_logits[: case.slots], x.drafted_from[0])

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Judged | Drawn]:
        p = torch.softmax(x.target_logits.double() / x.temperatures.double().repeat_interleave(x.case.slots, 0), -1).view(x.case.batch, x.case.slots, -1)
        chosen = x.candidates[:, 1:, None]
        at_p, at_q = p[:, :-1].gather(2, chosen).squeeze(2), x.draft_probs.gather(2, chosen).squeeze(2).double()
        accept, reject = at_p > at_q * (1 + CLOSE), at_p <= 0
        support = p > 0
        support[:, :-1] &= p[:, :-1] > x.draft_probs.double() * (1 - CLOSE)
        if semantics["noise"] != "any":
            made = noise.declared(x, semantics["noise"])
            accept, reject = (at_p > made.coins * at_q * (1 + NEAR)) & (at_p > 0), reject | (at_p < made.coins * at_q * (1 - NEAR))
            support &= _picked(p, x.draft_probs.double(), made)
        stop = stops(accept, reject, block=False)
        lens = torch.full_like(x.candidates[:, 0], x.case.slots) if x.verify_lens is None else x.verify_lens.long()

        def joint(actual: Any) -> Said:
            return _joint(actual, x.candidates, stop, support, lens)

        lengths = Judged(lambda actual: _fits(actual, x.case.batch))
        if x.case.values != "drawn":
            return {"correct_len": lengths, "bonus": Judged(joint), "cap_trim_lens": lengths}
        if semantics["noise"] == "any":  # no single request says more than the law does
            stop, support = torch.ones_like(stop), p > 0
        return {"correct_len": lengths, "bonus": _law(x, p[0], joint), "cap_trim_lens": lengths}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        """The bonus is judged with the lengths beside it: int64 [batch, 3] (correct_len, trim, bonus)."""
        parts = [outputs.get(name) for name in ("correct_len", "cap_trim_lens", "bonus")]
        fits = all(isinstance(part, torch.Tensor) and tuple(part.shape) == (x.case.batch,) for part in parts)
        return {**outputs, "bonus": torch.stack([part.long() for part in parts], 1)} if fits else outputs  # type: ignore[union-attr]

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """One possible answer, in plain Python: accept whatever may be accepted, then take the likeliest token left; with noise what it picks."""
        declared = semantics["noise"] != "any"
        coins, gumbel = noise.one_by_one(x, semantics["noise"]) if declared else ([[0.0] * x.case.slots] * x.case.batch, None)
        made = []
        for b, tokens in enumerate(x.candidates.tolist()):
            lines = x.target_logits.view(x.case.batch, x.case.slots, -1)[b].double().tolist()
            count, left = 0, _chances(lines[0], float(x.temperatures[b]))
            while count + 1 < len(tokens) and left[tokens[count + 1]] > coins[b][count] * float(x.draft_probs[b, count, tokens[count + 1]]):
                count += 1
                left = _chances(lines[count], float(x.temperatures[b]))
            if count + 1 < len(tokens):
                left = [w - q for w, q in zip(left, x.draft_probs[b, count].tolist(), strict=True)]
            score = [math.log(w) + gumbel[b][i] if w > 0 else -math.inf for i, w in enumerate(left)] if gumbel else left
            bonus, kept = score.index(max(score)), count
            if x.verify_lens is not None and count >= int(x.verify_lens[b]):
                kept = int(x.verify_lens[b]) - 1
                bonus = tokens[kept + 1]
            made.append((kept, count - kept, bonus))
        lens = torch.tensor(made)
        return {"correct_len": lens[:, 0], "bonus": lens, "cap_trim_lens": lens[:, 1]}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.slots * case.vocab
        return Work(6 * elements, 8 * elements)


def _chances(line: list[float], temperature: float) -> list[float]:
    top = max(line)
    weight = [math.exp((value - top) / temperature) for value in line]
    whole = sum(weight)
    return [w / whole for w in weight]


def _picked(p: torch.Tensor, q: torch.Tensor, made: noise.Noise) -> torch.Tensor:
    """bool [batch, slots, vocab]: the tokens of what is left after each slot whose logarithm and noise may be the greatest."""
    left = torch.cat((p[:, :-1] - q, p[:, -1:]), 1)
    error = NEAR * (p + torch.cat((q, torch.zeros_like(p[:, -1:])), 1))
    gumbel, margin = made.gumbel[:, None], made.margin[:, None]
    most = torch.log((left + error).clamp(min=0)) + gumbel + margin
    least = torch.log((left - error).clamp(min=0)) + gumbel - margin
    return most >= least.amax(-1, keepdim=True)


def _law(x: Inputs, p: torch.Tensor, first: Callable[[Any], Said]) -> Drawn | Judged:
    """The token emitted after each slot, where the slots before it were accepted, follows the target. `first`: what each request must be."""
    slots = x.case.slots
    q = torch.cat((x.draft_probs[0].double(), p[-1:]))
    place = torch.arange(slots, device=p.device)
    following = torch.roll(x.candidates, -1, 1)

    def ids(lens: torch.Tensor) -> torch.Tensor:
        count, bonus = lens[:, :1], lens[:, 2:]
        return torch.where(place < count, following, torch.where(place == count, bonus, -1)).T

    def instead() -> list[Instead]:
        plain, common = torch.softmax(x.target_logits[:slots].double(), -1), torch.minimum(p, q)
        return [
            Instead("ignored-flag", "temperature is ignored: tokens follow the logits as they are", plain),
            Instead("distribution", "Every draft is accepted: tokens follow the draft's row", q),
            Instead("distribution", "The draft is not taken off what a rejection leaves", common + (1 - common.sum(1, keepdim=True)) * p),
        ]

    return emitted.follows(Judged(first), ids, p, False, "slot", instead)


def _fits(actual: Any, batch: int) -> Said:
    fits = isinstance(actual, torch.Tensor) and tuple(actual.shape) == (batch,) and not actual.is_floating_point()
    return None if fits else ("shape", f"expected {batch} integers")


def _joint(actual: Any, candidates: torch.Tensor, stop: torch.Tensor, support: torch.Tensor, lens: torch.Tensor) -> Said:
    batch, slots = candidates.shape
    if not isinstance(actual, torch.Tensor) or tuple(actual.shape) != (batch, 3):
        return "shape", f"expected {batch} tokens with their lengths"
    kept, trim, bonus = actual.unbind(1)
    count = kept + trim
    rows = torch.arange(batch, device=kept.device)
    inside = (kept >= 0) & (trim >= 0) & (count < slots)
    safe = count.clamp(0, slots - 1)
    wrong = ~inside | ~stop[rows, safe] | (kept != torch.minimum(safe, lens - 1))
    if bool(wrong.any()):
        row = int(torch.nonzero(wrong)[0])
        may = torch.nonzero(stop[row]).flatten().tolist()
        said = f"correct_len {int(kept[row])} after cutting {int(trim[row])} off, expected {may} cut to {int(lens[row]) - 1}"
        return "numerics", f"Wrong requests: {int(wrong.sum())} / {batch}\nRequest {row}: {said}"
    following = candidates[rows, (kept + 1).clamp(max=slots - 1)]
    known = (bonus >= 0) & (bonus < support.shape[2])
    drawn = known & support[rows, safe, bonus.clamp(0, support.shape[2] - 1)]
    wrong = torch.where(trim > 0, bonus != following, ~drawn)
    if bool(wrong.any()):
        row = int(torch.nonzero(wrong)[0])
        meant = f"the draft {int(following[row])}" if int(trim[row]) else "a token with mass left"
        return (
            "support",
            f"Wrong requests: {int(wrong.sum())} / {batch}\nRequest {row}: bonus {int(bonus[row])} after {int(count[row])} drafts, expected {meant}",
        )
    return None
