"""What is read off logits: temperature_softmax and greedy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.axes import Case, real
from harness.contracts.expected import Close, OneOf
from harness.contracts.inputs import Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.flags import turned_off
from harness.contracts.relations.rows import neighbours, row_by_row
from harness.contracts.relations.vocabulary import permuted, picked, shifted
from harness.contracts.sampling.distributions import BATCH, DTYPE, FORM, LOGIT_VALUES, VOCAB, column, logits, of_row, per_row


def _logits(case: Case, draw: Draw) -> torch.Tensor:
    return logits(draw, case.batch, case.vocab, case.values, dtype_of(case.dtype))


@contract("sampling")
class temperature_softmax:
    """softmax(logits / temperature) row by row, in fp32 whatever the dtype of the logits.

    logits [batch, vocab]; temperature float, or fp32 [batch], above 0 -> probs [batch, vocab]. A logit of -inf gives 0; a
    row that is all -inf or holds a NaN has no defined result.
    """

    axes = (BATCH, VOCAB, real("temperature", "t", "temperature", default=1.0, search=(0.7, 1.5, 0.1, 0.01, 10.0)), FORM, DTYPE, LOGIT_VALUES)
    outputs = ("probs",)
    relations = {
        **row_by_row("batch", "logits", "temperature"),
        "neighbours": neighbours(temperature=5.0),
        "permuted": permuted("logits"),
        "shifted": shifted(),
        "strided": strided("logits"),
        "untempered": turned_off("temperature", 1.0, temperature=1.0),
    }

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        t = per_row(case.form, case.temperature, case.batch, (1.0, 0.1, 2.0), torch.float32, draw.device)
        return Inputs(case, draw.device, logits=_logits(case, draw), temperature=t)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Close]:
        """The budget: two roundings of each scaled logit (a reciprocal may be taken first), one of the difference to the
        best, and exp by exp2 with a rounded log2(e)."""
        scaled = x.logits.double() / column(x.temperature, x.case.batch, torch.float64, x.device)
        best = scaled.amax(-1, keepdim=True)
        undefined = best.isinf() | best.isnan()
        best = best.masked_fill(undefined, 0.0)
        distance = scaled - best
        value = torch.exp(distance)
        value = value / value.sum(-1, keepdim=True)
        size = distance.masked_fill(distance.isinf(), 0.0).abs() + best.abs()
        inner = rounding.FP32 * value * (8 * size + 16)
        return {"probs": Close(value, value, inner=inner, terms=x.case.vocab, undefined=undefined)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Each probability alone, as 1 / sum exp(s_j - s_i), by log-sum-exp in powers of two."""
        rows = []
        for row in range(x.case.batch):
            s = x.logits[row].double() / (of_row(x.temperature, row) * math.log(2))
            top = s.max()
            rows.append(torch.exp2(s - top - torch.log2(torch.exp2(s - top).sum())))
        return {"probs": torch.stack(rows)}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab
        return Work(5 * elements, elements * (dtype_of(case.dtype).itemsize + 4))

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        for batch in (1,) if small else (1, 8, 64):
            yield {"batch": batch, "vocab": g.model.vocab, "temperature": 0.6, "form": "rows"}


def _greatest(rows: torch.Tensor, best: torch.Tensor, finite: torch.Tensor, semantics: Semantics) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids that may be taken, bool [batch, vocab], and the rows of which any other is wrong, bool [batch]."""
    allowed, spoilt = rows == best, torch.isnan(rows)
    valid = finite & ~spoilt.any(-1)
    if semantics["ties"] == "first":
        allowed &= allowed.cumsum(-1) == 1
        valid = ~spoilt.any(-1)
    if semantics["nan"] == "first":
        allowed |= spoilt & (spoilt.cumsum(-1) == 1)
        valid |= spoilt.any(-1)
    return allowed, valid


@contract("sampling")
class greedy:
    """The id of the greatest logit of each row; of equal ones, any. A row that is all -inf or holds a NaN: any id in [0, vocab).

    ties `first`: the first of equal ones, in a row that is all -inf too; nan `first`: the first NaN of a row that holds one.
    logits [batch, vocab] -> ids [batch], any integer dtype. cap c > 0: of c tanh(logits / c), whose rounding makes equals.
    """

    axes = (BATCH, VOCAB, real("cap", "cap", "soft cap; 0: none", default=0.0, search=(30.0, 5.0, 1.0)), DTYPE, LOGIT_VALUES)
    outputs = ("ids",)
    relations = {**row_by_row("batch", "logits"), "permuted": picked(), "strided": strided("logits")}
    semantics = {"ties": ("any", "first"), "nan": ("any", "first")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, logits=_logits(case, draw), cap=case.cap)

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, OneOf]:
        best = x.logits.amax(-1, keepdim=True)
        valid = torch.isfinite(best).squeeze(-1)
        if not x.cap:
            return {"ids": OneOf(*_greatest(x.logits, best, valid, semantics))}
        capped = x.cap * torch.tanh(x.logits.double() / x.cap)
        edge = capped.amax(-1, keepdim=True)
        return {"ids": OneOf(capped >= edge - 8 * rounding.FP32 * edge.abs(), valid)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        ids = []
        for row in x.logits.tolist():
            spoilt = [i for i, value in enumerate(row) if math.isnan(value)]
            ids.append(spoilt[0] if spoilt else max(range(len(row)), key=row.__getitem__))
        return {"ids": torch.tensor(ids)}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab
        return Work(elements, elements * dtype_of(case.dtype).itemsize + 8 * case.batch)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        for batch in (1,) if small else (1, 8, 64):
            yield {"batch": batch, "vocab": g.model.vocab}
