"""served_verify: drafts of a batch of requests with parameters of their own, verified as a server does; each row is judged as if alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Drawn
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.sampling.distributions import logits
from harness.contracts.sampling.drawing import AGAIN, DRAWS
from harness.contracts.sampling.requests import MIXES, kept_alone, requests
from harness.contracts.sampling.served import Requested

SLOTS = 3  # the root and two drafts
HELD = 8  # tokens that a draft row is flat over, so that it is exact at any temperature


@contract("speculative")
class served_verify(Requested):
    """The first token that a verified block emits follows its request's target, whatever the drafts are (Leviathan et al. 2023, theorem 1): the
    target with penalties, mask and bias, at the request's temperature, after its own filters, the best token for a greedy one.

    Fields as of served_sample, `logits` those of the root; later fp32 [batch, SLOTS - 1, vocab]: the target's logits behind it; held int64 [batch,
    SLOTS - 1, HELD]: the tokens that a draft row is flat over; picked int64 [batch, draws, SLOTS - 1]: which of them each block drafts -> ids [batch,
    draws], the first tokens.
    """

    axes = (
        number("batch", "b", "requests"),
        number("vocab", "v", "vocabulary size", least=16, search=(16, 4096)),
        words("mix", tuple(MIXES), "the kinds of request, one row after the other", default="chosen"),
        number("length", "l", "tokens generated so far", default=16),
        DRAWS,
        words("values", ("random", "peaked", "flat"), "input family of the logits", default="random"),
    )
    outputs = ("ids",)
    semantics = {"ties_k": ("exactly-k", "all"), "ties_p": ("by-rank", "all"), "order": ("top-k-first", "joint")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        rows = logits(draw, case.batch, case.vocab, case.values)
        x = requests(case, draw, rows)
        best = rows.argmax(-1).view(-1, 1, 1)
        spread = torch.arange(HELD, device=draw.device) * max(1, case.vocab // HELD - 1)
        later = draw.normal(case.batch, SLOTS - 1, case.vocab, scale=2.0)
        picked = draw.integers(case.batch, case.draws, SLOTS - 1, low=0, high=HELD)
        return x.copy_with(later=later, held=(best + spread).expand(-1, SLOTS - 1, -1) % case.vocab, picked=picked)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Drawn]:
        return {"ids": self.drawn(x, semantics)}

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """The same requests, four times the blocks."""
        case = Case(x.case.op, x.case.id, {**x.case.point, "draws": AGAIN * x.draws})
        picked = draw.integers(case.batch, case.draws, SLOTS - 1, low=0, high=HELD)
        return x.copy_with(draws=case.draws, case=case, picked=picked)

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python: every token that may come first, padded by repeating."""
        kept = [kept_alone(x, row, semantics) for row in range(x.case.batch)]
        width = max(map(len, kept))
        return {"ids": torch.tensor([(row * width)[:width] for row in kept])}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        ids = outputs.get("ids")
        return {**outputs, "ids": ids.reshape(x.case.batch, x.draws).long()} if isinstance(ids, torch.Tensor) else outputs

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab * case.draws * SLOTS  # a draw is a step of the server
        return Work(30 * elements, 16 * elements)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        yield {"batch": 4 if small else 16, "vocab": g.model.vocab, "draws": 1}
