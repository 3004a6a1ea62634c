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
# Each of the d partial sums of a score is rounded too, at up to three deviations of its size.
PARTIAL = 3.0


@dataclass(frozen=True)
class Attended:
    """The result for one sequence (or a stack of equally padded ones): `o` [..., q, heads, dv], `lse` [..., q, heads] (natural log,
    -inf for a row that sees no key), `magnitude` the sum of P|V|, `spread` the root of the sum of (P V)^2, `inner` the error that
    scores may carry into o, `lse_inner` into lse; all fp64."""

    o: torch.Tensor
    lse: torch.Tensor
    magnitude: torch.Tensor
    spread: torch.Tensor
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
    factor: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dot: float = rounding.FP32,
    shared: float = 0.0,
    extra: float = 0.0,
    floor: float = 0.0,
) -> Attended:
    """softmax(factor cap(scale q k^T) + bias) v.

    q [..., nq, heads, d], k [..., nk, kv_heads, d], v [..., nk, kv_heads, dv], any float dtype, leading dimensions alike; visible
    bool [..., nq, nk] or None (all); soft_cap c > 0 applies c tanh(s / c); factor [..., nq] multiplies a query's scores, bias
    [..., heads, nq, nk] is added to them; sinks [heads] are logits that take mass and have no
    value (they count in neither o nor lse's keys; lse is over the keys alone); dot: roundoff of one product in q k^T; shared:
    what all products lose alike, relative to the score; extra: absolute error that a score may carry besides; floor: absolute
    rounding of a softmax weight relative to the largest (half the least number of the format that the weights are rounded to).
    """
    q, k, v = q.double(), k.double(), v.double()
    kv_heads = k.shape[-2]
    shape = (*q.shape[:-3], q.shape[-2], q.shape[-3], k.shape[-3])  # [..., heads, nq, nk]

    def by_kv_head(rows: torch.Tensor) -> torch.Tensor:  # [..., heads, nq, x] -> [..., kv_heads, group * nq, x]
        return rows.reshape(*rows.shape[:-3], kv_heads, shape[-3] * shape[-2] // kv_heads, rows.shape[-1])

    k, v = k.transpose(-3, -2), v.transpose(-3, -2)  # [..., kv_heads, nk, d]
    qh = by_kv_head(q.transpose(-3, -2))
    scores = (qh @ k.transpose(-2, -1)).view(shape) * scale
    error = ((qh * qh) @ (k * k).transpose(-2, -1)).view(shape).sqrt_() * (scale * (SIGMAS * dot + PARTIAL * rounding.FP32 * q.shape[-1] ** 0.5))
    if shared:
        error = error + shared * scores.abs()
    if soft_cap > 0:
        slope = 1 - torch.tanh((scores.abs() - error).clamp_min_(0) / soft_cap) ** 2
        error, scores = error * slope, soft_cap * torch.tanh(scores / soft_cap)
    if factor is not None:
        error, scores = error * factor[..., None, :, None], scores * factor[..., None, :, None]
    if bias is not None:
        scores = scores + bias
    error = torch.expm1((error + 4 * rounding.FP32 * (1 + scores.abs()) + extra).clamp_max_(50))
    if visible is not None:
        scores = scores.masked_fill(~visible.unsqueeze(-3), -math.inf)
    some = shape[-1] > 0
    lse = torch.logsumexp(scores, dim=-1) if some else scores.new_full(shape[:-1], -math.inf)
    total = lse if sinks is None else torch.logaddexp(lse, sinks.double()[:, None])
    safe = total.masked_fill(total == -math.inf, 0.0)
    weights = torch.exp(scores - safe[..., None])
    # o = sum of w v, and a score's error e moves it by w e (v - o)
    moved, size = weights * error, v.abs()
    summed = [weights, moved]
    if floor and some:
        top = scores.amax(-1, keepdim=True)
        top = top.masked_fill(top == -math.inf, 0.0)
        summed.append(torch.exp(scores - top).clamp_max_(floor) * torch.exp(top - safe[..., None]))
    sums = (torch.cat([by_kv_head(part) for part in summed], -2) @ size).chunk(len(summed), -2)  # one pass over |v|
    magnitude, *inner = (part.reshape(*shape[:-1], v.shape[-1]) for part in sums)
    o = (by_kv_head(weights) @ v).view(magnitude.shape)
    spread = (by_kv_head(weights * weights) @ (size * size)).view(magnitude.shape).sqrt_()
    lost = inner[0] + moved.sum(-1, keepdim=True) * o.abs()
    if sinks is not None:  # lse is over the keys alone
        moved = torch.exp(scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None]) * error
    return Attended(
        o=o.transpose(-3, -2),
        lse=lse.transpose(-2, -1),
        magnitude=magnitude.transpose(-3, -2),
        spread=spread.transpose(-3, -2),
        inner=sum(inner[1:], lost).transpose(-3, -2),
        # the weights, all positive, are added up in fp32
        lse_inner=(moved.sum(-1) + (4 + 2 * shape[-1] ** 0.5) * rounding.FP32).transpose(-2, -1),
    )


def attend_by_chunks(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    *,
    visible: torch.Tensor | None = None,
    soft_cap: float = 0.0,
    factor: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
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
            if factor is not None:
                score = score * factor[:, None]
            if bias is not None:
                score = score + bias[head][:, rows]
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
