"""verify_target_probs and softmax_temp: from the verify logits to the target distribution of every slot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real, words
from harness.contracts.expected import Close, Filtered
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.rows import row_by_row
from harness.contracts.sampling.distributions import logits
from harness.contracts.sampling.filters import SMALLEST
from harness.contracts.speculative.chain import BATCH, SLOTS, VOCAB

TOP_K_ALL = 1 << 30
TEMPERATURE = real("temperature", "t", "temperature of the first request", default=1.0, search=(0.01, 0.1, 0.7, 1.5, 10.0))
DTYPE = words("dtype", DTYPES, "dtype of the logits", default="fp32")
VALUES = words("values", ("random", "peaked", "flat", "ties", "masked", "four", "steep"), "input family", default="random")
FORM = words("form", ("rows", "mixed"), "parameters of equal requests, or of requests that differ", default="rows")


def _cycle(case: Case, values: tuple[float, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    values = values[:1] if case.form == "rows" else values
    return torch.tensor([values[i % len(values)] for i in range(case.batch)], dtype=dtype, device=device)


def _scaled(x: Inputs) -> torch.Tensor:
    """fp64 [batch * slots, vocab]: logits over the request's temperature."""
    return x.logits.double() / x.temperatures.view(-1).double().repeat_interleave(x.case.slots)[:, None]


def roughness(scaled: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Relative error of exp(l - max) / sum in fp32 per element: the quotient l, the difference and the exponential round, and so the sum."""
    top = scaled.amax(-1, keepdim=True)
    size = torch.nan_to_num(scaled.abs() + 2 * (top - scaled), posinf=0.0) + top.abs()
    rough = rounding.FP32 * (4 + size)
    return rough + (rough * probs).sum(-1, keepdim=True)


@contract("speculative")
class verify_target_probs:
    """Softmax at the request's temperature, then top-k, then top-p, for every verified slot.

    logits [batch * slots, vocab], temperatures fp32 [batch, 1], top_ks int32 [batch] (2^30: off), top_ps fp32 [batch], and what the
    scheduler knows on the host: need_top_k, need_top_p, max_top_k, uniform_top_k (None when they differ) -> probs [batch, slots,
    vocab], rows that sum to 1. semantics: ties_k at the k-th value, ties_p at the edge of the nucleus, and order: top-k-first takes
    top-p of the mass that top-k kept, joint of the whole row.
    """

    axes = (
        BATCH,
        SLOTS,
        VOCAB,
        number("k", "k", "top-k of the first request; 2^30 is off", default=TOP_K_ALL, search=(1, 2048)),
        real("p", "p", "top-p of the first request; 1 is off", default=1.0, search=(0.9, 0.5, 0.1, 0.95, 0.99, 0.999999)),
        TEMPERATURE,
        FORM,
        DTYPE,
        VALUES,
    )
    outputs = ("probs",)
    relations = row_by_row("batch", "logits", "temperatures", "top_ks", "top_ps")
    semantics = {"ties_k": ("exactly-k", "all"), "ties_p": ("by-rank", "all"), "order": ("top-k-first", "joint")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        mixed_k = (case.k, TOP_K_ALL if case.k == TOP_K_ALL else 1, min(case.k, case.vocab), 3)
        top_ks = _cycle(case, mixed_k, torch.int32, draw.device)
        top_ps = _cycle(case, (case.p, 1.0, 0.5 if case.p < 1 else 1.0), torch.float32, draw.device)
        highest, lowest = int(top_ks.max()), int(top_ks.min())
        return Inputs(
            case,
            draw.device,
            logits=logits(draw, case.batch * case.slots, case.vocab, case.values, dtype_of(case.dtype)),
            temperatures=_cycle(case, (case.temperature, 0.5, 2.0), torch.float32, draw.device).view(-1, 1),
            top_ks=top_ks,
            top_ps=top_ps,
            need_top_k=lowest < TOP_K_ALL,
            need_top_p=float(top_ps.min()) < 1,
            max_top_k=highest,
            uniform_top_k=highest if highest == lowest else None,
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Filtered]:
        scaled = _scaled(x)
        weights = torch.softmax(scaled, -1)
        rough = roughness(scaled, weights)
        k = x.top_ks.long().repeat_interleave(x.case.slots)[:, None].clamp(max=x.case.vocab)
        target = x.top_ps.double().repeat_interleave(x.case.slots)[:, None]
        slack = rounding.FP32 * (8 + 4 * x.case.vocab**0.5) + torch.where(weights > SMALLEST, rough, 0.0).amax(-1, keepdim=True)
        required, allowed, kept = select(x.logits.double(), weights, k, target, slack, semantics)
        return {"probs": Filtered(weights, required, allowed, kept, inner=rough)}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        probs = outputs.get("probs")
        fits = isinstance(probs, torch.Tensor) and tuple(probs.shape) == (x.case.batch, x.case.slots, x.case.vocab)
        return {**outputs, "probs": probs.flatten(0, 1)} if fits else outputs  # type: ignore[union-attr]

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        out = torch.zeros(x.logits.shape, dtype=torch.float64)
        for row, line in enumerate(x.logits.double().tolist()):
            request = row // x.case.slots
            best, heat = max(line), float(x.temperatures[request])
            weight = [math.exp((value - best) / heat) for value in line]
            order = sorted(range(len(line)), key=lambda i: (-line[i], i))
            limit = min(int(x.top_ks[request]), len(line))
            within = [i for i in order if line[i] >= line[order[limit - 1]]] if semantics["ties_k"] == "all" else order[:limit]
            whole = sum(weight[i] for i in (within if semantics["order"] == "top-k-first" else order))
            target, mass = float(x.top_ps[request]), 0.0
            kept: list[int] = []
            for i in within:
                if kept and mass >= target * whole and target < 1:
                    break
                kept.append(i)
                mass += weight[i]
            if semantics["ties_p"] == "all":
                kept = [i for i in within if line[i] >= line[kept[-1]]]
            mass = sum(weight[i] for i in kept)
            for i in kept:
                out[row, i] = weight[i] / mass
        return {"probs": out}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.slots * case.vocab
        return Work(8 * elements, elements * (dtype_of(case.dtype).itemsize + 4))

    def for_model(self, g: Any, small: bool) -> Iterator[dict[str, Any]]:
        for k, p in ((TOP_K_ALL, 1.0), (50, 1.0), (TOP_K_ALL, 0.95), (20, 0.9)):
            yield {"batch": 1 if small else 16, "slots": 2 if small else 4, "vocab": g.model.vocab, "k": k, "p": p}


def select(
    keys: torch.Tensor, weights: torch.Tensor, k: torch.Tensor, target: torch.Tensor, slack: torch.Tensor, semantics: Semantics
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(required, allowed, kept) of filters.Support, with a tie policy for each filter; equal keys are ties, weights follow keys."""
    all_k, all_p = semantics["ties_k"] == "all", semantics["ties_p"] == "all"
    ordered, ids = torch.sort(keys, dim=-1, descending=True)
    weight = weights.gather(1, ids)
    place = torch.arange(keys.shape[1], device=keys.device).expand_as(keys)
    first = torch.searchsorted(-ordered, -ordered, side="left")
    last = torch.searchsorted(-ordered, -ordered, side="right") - 1
    ranked = (first if all_k else place) < k
    through = (weight * ranked).cumsum(-1)
    if semantics["order"] == "top-k-first":
        weight, through = weight / through[:, -1:], through / through[:, -1:]
    before = through - weight
    above = before.gather(1, first)
    whole = torch.ones_like(ranked) if all_k else last < k  # the group of ties is kept whole by top-k
    free = (target >= 1) | (first == 0)
    may = (first < k) & ((above < target + slack) | free)
    if all_p:
        must = (first < k) & whole & ((above < target - slack) | free)
    else:
        must = (first < k) & whole & ((through.gather(1, last) - weight < target - slack) | (target >= 1) | (last == 0))
    present = weight > 0
    allowed = torch.zeros_like(may).scatter_(1, ids, may & present)
    required = torch.zeros_like(must).scatter_(1, ids, must & (weight >= SMALLEST))
    if all_k and all_p:
        return required, allowed, None
    edge, sure = (above, free) if all_p else (before, (target >= 1) | (place == 0))
    low = (ranked & present & ((edge < target - slack) | sure)).sum(-1)
    high = (ranked & present & ((edge < target + slack) | sure)).sum(-1)
    unsure = (low != high) | (ranked & present & (weight < SMALLEST)).any(-1)
    return required, allowed, torch.where(unsure, -1, high)


@contract("speculative")
class softmax_temp:
    """Softmax of every verified slot at its request's temperature, in fp32.

    logits [batch * slots, vocab], temperatures fp32 [batch, 1] -> probs fp32 [batch * slots, vocab]. At least one finite logit a row.
    """

    axes = (BATCH, SLOTS, VOCAB, TEMPERATURE, FORM, DTYPE, VALUES)
    outputs = ("probs",)
    relations = row_by_row("batch", "logits", "temperatures")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        rows = logits(draw, case.batch * case.slots, case.vocab, case.values, dtype_of(case.dtype))
        heat = _cycle(case, (case.temperature, 0.5, 2.0), torch.float32, draw.device)
        return Inputs(case, draw.device, logits=rows, temperatures=heat.view(-1, 1))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Close]:
        scaled = _scaled(x)
        probs = torch.softmax(scaled, -1)
        return {"probs": Close(probs, probs, inner=probs * roughness(scaled, probs), terms=x.case.vocab, dtype=torch.float32)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """2^(l log2 e) over its exact sum, row by row in plain Python."""
        rows = []
        for line in (_scaled(x) * math.log2(math.e)).tolist():
            best = max(line)
            weight = [2.0 ** (value - best) for value in line]
            whole = math.fsum(weight)
            rows.append([value / whole for value in weight])
        return {"probs": torch.tensor(rows, dtype=torch.float64)}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.slots * case.vocab
        return Work(5 * elements, elements * (dtype_of(case.dtype).itemsize + 4))

    def for_model(self, g: Any, small: bool) -> Iterator[dict[str, Any]]:
        yield {"batch": 1 if small else 16, "slots": 2 if small else 4, "vocab": g.model.vocab, "temperature": 0.7}
