"""Attention in low precision as kernels do it, written for the tests of the tolerance: not a provider, and no part of a reference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from harness.contracts import Inputs

WIDTH, LATENT = 576, 512


@dataclass(frozen=True)
class How:
    """One way to sum, right or wrong.

    splits of the keys, merged by their log-sum-exps; block: keys a step of the running softmax; backward: last block first; rounded: softmax
    weights rounded to the operands' dtype before P V. Wrong: `accumulator` rounds O after each step, `skip` leaves out that block,
    `unscaled` merges the first split as if its maximum were everybody's, `short` drops so many last keys, `scale` is off by that factor.
    """

    splits: int = 1
    block: int = 64
    backward: bool = False
    rounded: bool = True
    accumulator: torch.dtype = torch.float32
    skip: int | None = None
    unscaled: bool = False
    short: int = 0
    scale: float = 1.0


RIGHT = (How(), How(block=16, backward=True, rounded=False), How(splits=3, block=32), How(splits=8, block=16, rounded=False), How(splits=5, backward=True))


def attend(q, k, v, scale, mask, how):
    """q [nq, heads, d], k [nk, kv_heads, d], v [nk, kv_heads, dv], mask bool [nq, nk] -> o fp32 [nq, heads, dv], lse fp32 [nq, heads]."""
    dtype, group = q.dtype, q.shape[1] // k.shape[1]
    q, k, v = (t.float().transpose(0, 1) for t in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    mask = mask.clone()
    mask[:, mask.shape[1] - how.short :] = False
    scores = ((q @ k.transpose(1, 2)) * (scale * how.scale)).masked_fill(~mask, -math.inf)
    bounds = [round(i * k.shape[1] / how.splits) for i in range(how.splits + 1)]
    blocks = 0
    states = []
    for low, high in itertools.pairwise(bounds):
        top, mass, out = torch.full_like(scores[..., :1], -math.inf), torch.zeros_like(scores[..., :1]), torch.zeros(*scores.shape[:2], v.shape[-1])
        starts = list(range(low, high, how.block))
        for start in reversed(starts) if how.backward else starts:
            blocks += 1
            if how.skip == blocks - 1:
                continue
            end = min(start + how.block, high)
            best = torch.maximum(top, scores[..., start:end].amax(-1, keepdim=True))
            shift = best.masked_fill(best == -math.inf, 0.0)
            weight, keep = torch.exp(scores[..., start:end] - shift), torch.exp(top - shift)
            mass, top = mass * keep + weight.sum(-1, keepdim=True), best
            weight = weight.to(dtype).float() if how.rounded else weight
            out = ((out * keep).to(how.accumulator).float() + weight @ v[:, start:end]).to(how.accumulator).float()
        states.append((torch.where(mass > 0, out / mass, 0.0), top + torch.log(mass)))
    o, lse = merge(states, how.unscaled)
    return o.transpose(0, 1), lse.squeeze(-1).transpose(0, 1)


def merge(states, unscaled=False):
    """Partial states [(o, lse)], lse with a last dimension of 1, in fp32."""
    top = torch.stack([lse for _, lse in states]).amax(0)
    shift = top.masked_fill(top == -math.inf, 0.0)
    weights = [torch.exp(lse - shift) for _, lse in states]
    if unscaled:
        weights[0] = torch.ones_like(weights[0])
    whole = sum(weights)
    return sum(w * o for w, (o, _) in zip(weights, states, strict=True)) / whole.clamp_min(1e-30), top + torch.log(whole)


def requests(x: Inputs) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Rows of q, keys, values and the mask of each request, by the layout of its op; causal masks end at the last key."""
    if hasattr(x, "indices"):
        for token, chosen in enumerate(x.indices[:, 0].long()):
            kv = x.kv[chosen[chosen >= 0]]
            yield slice(token, token + 1), kv, kv[..., :LATENT], torch.ones(1, len(kv), dtype=torch.bool)
        return
    for request in range(len(x.qo_indptr) - 1):
        rows = slice(*x.qo_indptr[request : request + 2].tolist())
        if hasattr(x, "k_pool"):
            k, v = x.k_flat[x.slots[request]], x.v_flat[x.slots[request]]
        elif hasattr(x, "kv"):
            k = x.kv.view(-1, 1, WIDTH)[x.slots[request]]
            v = k[..., :LATENT]
        else:
            keys = slice(*x.kv_indptr[request : request + 2].tolist())
            k, v = x.k[keys], x.v[keys]
        count = rows.stop - rows.start
        yield rows, k, v, torch.ones(count, len(k), dtype=torch.bool).tril(len(k) - count)


def attention(x: Inputs, how: How) -> dict[str, torch.Tensor]:
    """o in the queries' dtype and lse fp32 of any attention op without flags, all requests."""
    done = [attend(x.q[rows], k, v, x.scale, mask, how) for rows, k, v, mask in requests(x)]
    return {"o": torch.cat([o for o, _ in done]).to(x.q.dtype), "lse": torch.cat([lse for _, lse in done])}


def cut(values: torch.Tensor) -> torch.Tensor:
    """fp32 numbers as a tensor core reads them for tf32: their low 13 bits count as 0."""
    return (values.float().contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def cut_everywhere(x: Inputs) -> dict[str, torch.Tensor]:
    """fp32 attention whose two matrix products read tf32."""
    done = []
    for rows, k, v, mask in requests(x):
        group = x.q.shape[1] // k.shape[1]
        q, k, v = (cut(t).transpose(0, 1) for t in (x.q[rows], k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
        scores = (q @ k.transpose(1, 2) * x.scale).masked_fill(~mask, -math.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        mass = weights.sum(-1, keepdim=True)
        done.append(((cut(weights) @ v / mass).transpose(0, 1), (scores.amax(-1) + mass[..., 0].log()).T))
    return {"o": torch.cat([o for o, _ in done]), "lse": torch.cat([lse for _, lse in done])}


def rounded_everywhere(x: Inputs) -> dict[str, torch.Tensor]:
    """PyTorch in the inputs' own dtype: scores and softmax are rounded to it too."""
    done = []
    for rows, k, v, mask in requests(x):
        group = x.q.shape[1] // k.shape[1]
        q, k, v = x.q[rows].transpose(0, 1), k.repeat_interleave(group, 1).transpose(0, 1), v.repeat_interleave(group, 1).transpose(0, 1)
        scores = (q @ k.transpose(1, 2) * x.scale).masked_fill(~mask, -math.inf)
        done.append((torch.softmax(scores, -1) @ v).transpose(0, 1))
    return {"o": torch.cat(done)}
