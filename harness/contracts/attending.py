"""Softmax attention over one sequence in fp64, with the magnitudes a rounding budget needs. Shared by every attention family."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch

SIGMAS = 6.0


@dataclass(frozen=True)
class Attended:
    """One sequence's result: `o` [q, heads, dv], `lse` [q, heads] (natural log, -inf for a row that sees no key),
    `magnitude` the sum of P|V|, `inner` the error that scores may carry into o, `lse_inner` into lse; all fp64."""

    o: torch.Tensor
    lse: torch.Tensor
    magnitude: torch.Tensor
    inner: torch.Tensor
    lse_inner: torch.Tensor


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    *,
    visible: torch.Tensor | None = None,
    soft_cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    dot: float = rounding.FP32,
) -> Attended:
    """softmax(cap(scale q k^T)) v.

    q [nq, heads, d], k [nk, kv_heads, d], v [nk, kv_heads, dv], any float dtype; visible bool [nq, nk] or None (all);
    soft_cap c > 0 applies c tanh(s / c); sinks [heads] are logits that take mass and have no value (they count in neither
    o nor lse's keys; lse is over the keys alone); dot: roundoff of one product in q k^T.
    """
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1) if group > 1 else t for t in (k, v))
    k, v = k.transpose(0, 1), v.transpose(0, 1)  # [heads, nk, d]
    qh = q.transpose(0, 1)  # [heads, nq, d]
    scores = (qh @ k.transpose(1, 2)) * scale
    spread = ((qh * qh) @ (k * k).transpose(1, 2)).sqrt() * scale
    if soft_cap > 0:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
        spread = spread.masked_fill(~visible, 0.0)
    finite = scores.masked_fill(scores == -math.inf, 0.0)
    lse = torch.logsumexp(scores, dim=-1) if k.shape[1] else scores.new_full(scores.shape[:2], -math.inf)
    total = lse if sinks is None else torch.logaddexp(lse, sinks.double()[:, None])
    weights = torch.exp(scores - total.masked_fill(total == -math.inf, 0.0)[..., None])
    error = scores.new_zeros(lse.shape)
    if k.shape[1]:
        error = (SIGMAS * dot * spread + 4 * rounding.FP32 * finite.abs()).amax(-1) + 4 * rounding.FP32
    magnitude = weights @ v.abs()
    return Attended(
        o=(weights @ v).transpose(0, 1),
        lse=lse.transpose(0, 1),
        magnitude=magnitude.transpose(0, 1),
        inner=(2 * error[..., None] * magnitude).transpose(0, 1),
        lse_inner=error.transpose(0, 1),
    )


def attend_by_chunks(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    *,
    visible: torch.Tensor | None = None,
    soft_cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    chunk: int = 7,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The second formula: keys in chunks with a running maximum, head by head, in powers of two. Returns (o, lse) as `attend`."""
    nq, heads, _ = q.shape
    group = heads // k.shape[1]
    o = torch.zeros(nq, heads, v.shape[-1], dtype=torch.float64, device=q.device)
    lse = torch.full((nq, heads), -math.inf, dtype=torch.float64, device=q.device)
    for head in range(heads):
        top = torch.full((nq, 1), -math.inf, dtype=torch.float64, device=q.device)
        mass, acc = torch.zeros_like(top), o.new_zeros(nq, v.shape[-1])
        for start in range(0, k.shape[0], chunk):
            rows = slice(start, start + chunk)
            score = torch.einsum("qd,kd->qk", q[:, head].double() * scale, k[rows, head // group].double())
            if soft_cap > 0:
                score = soft_cap * (1 - 2 / (torch.exp(2 * score / soft_cap) + 1))
            score = score / math.log(2)
            if visible is not None:
                score = torch.where(visible[:, rows], score, -math.inf)
            new_top = torch.maximum(top, score.amax(-1, keepdim=True))
            shift = new_top.masked_fill(new_top == -math.inf, 0.0)
            part, keep = torch.exp2(score - shift), torch.exp2(top - shift)
            mass, acc, top = mass * keep + part.sum(-1, keepdim=True), acc * keep + part @ v[rows, head // group].double(), new_top
        safe_top = top.masked_fill(top == -math.inf, 0.0)
        lse[:, head] = ((top + torch.log2(mass)) * math.log(2)).squeeze(-1)
        if sinks is not None:
            mass = mass + torch.exp2(sinks[head].double() / math.log(2) - safe_top)
        o[:, head] = torch.where(mass > 0, acc / mass.clamp_min(1e-300), acc.new_zeros(()))
    return o, lse


def split(flat: torch.Tensor, indptr: torch.Tensor) -> list[torch.Tensor]:
    """A ragged tensor [sum, ...] as one tensor a sequence, by its indptr [batch + 1]."""
    bounds: list[Any] = indptr.tolist()
    return [flat[a:b] for a, b in itertools.pairwise(bounds)]


def natural(outputs: dict[str, Any], semantics: Mapping[str, str]) -> dict[str, Any]:
    """Outputs with `lse` in natural log, from the base the provider declares."""
    if semantics["lse"] == "base-2" and outputs.get("lse") is not None:
        return {**outputs, "lse": (outputs["lse"].double() * math.log(2)).to(outputs["lse"].dtype)}
    return outputs
