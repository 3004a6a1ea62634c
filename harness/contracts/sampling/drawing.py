"""The draws: sample, top_k_top_p_sample, min_p_sample and seeded_sample. The verdict: which tokens may be drawn, and how often."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Axis, Case, number, real
from harness.contracts.expected import Drawn
from harness.contracts.inputs import Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import Relation, strided
from harness.contracts.sampling import filters, mistakes
from harness.contracts.sampling.distributions import BATCH, DRAWN_VALUES, DTYPE, FORM, VOCAB, column, of_row, probs
from harness.contracts.sampling.renorm import ORDER, TIES, TOP_K, TOP_P, above_share, both, k_of, min_p_of, p_of

DRAWS = number("draws", "n", "draws from each row", default=16, search=(1, 4096))
AGAIN = 4  # times the draws where the first were suspicious


class DrawnInputs(Inputs):
    """`probs` [batch, vocab], its parameters, and `draws`; for libraries that take one draw a row, every row `draws` times over."""

    @property
    def draw_rows(self) -> torch.Tensor:
        """int32 [batch * draws]: the row each draw is taken from."""
        rows = torch.arange(self.case.batch, dtype=torch.int32, device=self.device)
        return rows.repeat_interleave(self.draws)

    def repeated(self, name: str) -> Any:
        """An input with each row repeated `draws` times; a scalar as it is."""
        value = getattr(self, name)
        return value.repeat_interleave(self.draws, 0) if isinstance(value, torch.Tensor) else value

    def in_batches(self, call: Any) -> Any:
        """The ids of `call(part)` for parts of so few draws that their repeated rows stay within bounded memory: [batch, draws]."""
        most = (1 << 22 if self.device == "cpu" else 1 << 27) // max(1, self.probs.numel())
        if self.draws <= max(1, most):
            return call(self)
        parts = []
        for start in range(0, self.draws, max(1, most)):
            count = min(max(1, most), self.draws - start)
            parts.append(call(self.copy_with(draws=count)).reshape(self.case.batch, count))
        return torch.cat(parts, 1)


REPEATED = 1 << 34  # elements


def too_many(case: Case) -> str | None:
    """Why a library that takes a row of probabilities a draw is not asked for the case, or None."""
    elements = case.batch * case.draws * case.vocab
    return f"a row of probabilities a draw would be {elements:,} of them" if elements > REPEATED else None


def sound(p: torch.Tensor) -> torch.Tensor:
    """bool [rows]: rows with something to draw from (no NaN, some mass)."""
    return ~p.isnan().any(-1) & (p > 0).any(-1)


class Sampler(ABC):
    """What the samplers share: ids [batch, draws] (or [batch * draws]), each in the row's support and all of them by the row's
    probabilities, renormalised over what is kept; rows of NaN or without mass give any id."""

    outputs: tuple[str, ...] = ("ids",)
    semantics: dict[str, tuple[str, ...]] = {}
    axes: tuple[Axis, ...]
    relations: dict[str, Relation] = {"strided": strided("probs")}

    @abstractmethod
    def inputs(self, case: Case, draw: Draw) -> Inputs: ...

    @abstractmethod
    def support(self, x: Inputs, semantics: Semantics) -> filters.Support: ...

    @abstractmethod
    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]: ...

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Any]:
        s, weights = self.support(x, semantics), torch.nan_to_num(x.probs.double())
        valid = sound(x.probs)
        gap = (1 - weights.sum(1)).abs()[valid]
        return {
            "ids": Drawn(
                s.allowed,
                valid,
                weights=weights,
                required=s.required,
                kept=s.kept,
                watched=self.watched(x, s, weights),
                instead=lambda: mistakes.of_rows(weights, lambda y: self.support(y, semantics).allowed, x),
                gap=float(gap.amax()) if len(gap) else 0.0,
            )
        }

    def watched(self, x: Inputs, s: filters.Support, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """The last token that every rule keeps: the k-th where top-k is what binds, else the one that crosses top-p."""
        if not hasattr(x, "top_k"):
            return {}
        k = column(x.top_k, x.case.batch, torch.int64, x.device).squeeze(1)
        last = weights.masked_fill(~s.required, math.inf).argmin(1)
        by_k = s.required.sum(1) >= torch.where((k <= 0) | (k > x.case.vocab), x.case.vocab + 1, k)
        by_p = ~by_k & (column(x.top_p, x.case.batch, torch.float64, x.device).squeeze(1) < 1)
        return {"k-th token": torch.where(by_k, last, -1), "token that crosses top-p": torch.where(by_p, last, -1)}

    def again(self, x: Inputs, draw: Draw) -> Inputs:
        """The same rows, drawn from four times as often."""
        draws = AGAIN * x.draws
        return x.copy_with(draws=draws, case=Case(x.case.op, x.case.id, {**x.case.point, "draws": draws}))

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Every token that may be drawn, row by row in plain Python, padded by repeating."""
        kept = []
        for row, p in enumerate(x.probs.double().tolist()):
            kept.append(self.keep_row(x, row, p, semantics) if bool(sound(x.probs[row : row + 1])) else [0])
        width = max(map(len, kept))
        return {"ids": torch.tensor([(ids * width)[:width] for ids in kept])}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        ids = outputs.get("ids")
        if isinstance(ids, torch.Tensor) and ids.dim() in (1, 2):
            outputs = {**outputs, "ids": ids.reshape(x.case.batch, x.draws)}
        return outputs

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab
        return Work(2 * elements, elements * dtype_of(case.dtype).itemsize + 4 * case.batch * case.draws)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        """Served sampling parameters at the model's vocabulary."""
        served = {"k": 50, "p": 0.95, "min_p": 0.05}
        asked = {axis.name: served[axis.name] for axis in self.axes if axis.name in served}
        for batch in (1,) if small else (1, 8, 64):
            yield {"batch": batch, "vocab": g.model.vocab, **({"form": "rows"} if asked else {}), **asked}


def _probs(case: Case, draw: Draw) -> torch.Tensor:
    return probs(draw, case.batch, case.vocab, case.values, dtype_of(case.dtype))


@contract("sampling")
class sample(Sampler):
    """Draw from each row by its probabilities: probs [batch, vocab] -> ids [batch, draws]; a token of probability 0 is never drawn."""

    axes = (BATCH, VOCAB, DRAWS, DTYPE, DRAWN_VALUES)

    def inputs(self, case: Case, draw: Draw) -> DrawnInputs:
        return DrawnInputs(case, draw.device, draws=case.draws, probs=_probs(case, draw))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        present = x.probs > 0
        return filters.Support(present & (x.probs >= filters.SMALLEST), present)

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return [i for i, value in enumerate(p) if value > 0]


@contract("sampling")
class top_k_top_p_sample(Sampler):
    """Draw from what top-k and top-p leave of each row; the filters as in top_k_top_p_filter.

    probs [batch, vocab], top_k int or int32 [batch], top_p float or fp32 [batch] -> ids [batch, draws].
    """

    axes = (BATCH, VOCAB, TOP_K, TOP_P, FORM, DRAWS, DTYPE, DRAWN_VALUES)
    semantics = {"order": ORDER, "ties": TIES}

    def inputs(self, case: Case, draw: Draw) -> DrawnInputs:
        return DrawnInputs(case, draw.device, draws=case.draws, probs=_probs(case, draw), top_k=k_of(case, draw.device), top_p=p_of(case, draw.device))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        return both(x, semantics)

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return filters.kept_by_rank(p, int(of_row(x.top_k, row)), of_row(x.top_p, row), semantics["ties"], semantics["order"])


@contract("sampling")
class min_p_sample(Sampler):
    """Draw from the tokens at least min_p times as probable as the best one.

    probs [batch, vocab], min_p float or fp32 [batch] in [0, 1] -> ids [batch, draws].
    """

    axes = (
        BATCH,
        VOCAB,
        real("min_p", "mp", "least share of the best token's probability", search=(0.1, 0.05, 0.5, 0.9, 0.0, 1.0, 1e-6)),
        FORM,
        DRAWS,
        DTYPE,
        DRAWN_VALUES,
    )

    def inputs(self, case: Case, draw: Draw) -> DrawnInputs:
        return DrawnInputs(case, draw.device, draws=case.draws, probs=_probs(case, draw), min_p=min_p_of(case, draw.device))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        return filters.min_p(x.probs, column(x.min_p, x.case.batch, torch.float64, x.device))

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return above_share(p, of_row(x.min_p, row))
