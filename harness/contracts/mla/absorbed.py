"""Attention over a paged latent cache with weights absorbed: every head reads the same 576-wide keys, whose first 512 are the values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.attending import attend, attend_by_chunks, natural
from harness.contracts.axes import Case
from harness.contracts.expected import Close
from harness.contracts.inputs import Draw, Inputs, dtype_of
from harness.contracts.paging import page_table
from harness.contracts.registry import Semantics

LATENT, ROPE, NOPE = 512, 64, 128
WIDTH = LATENT + ROPE
SCALE = 1 / math.sqrt(NOPE + ROPE)
CACHES = ("samekv", "e4m3fn", "e4m3fnuz", "allfp8", "allfnuz")
ALL_FP8 = ("allfp8", "allfnuz")  # the queries too
KV_SCALE, Q_SCALE = 0.25, 0.5
_SCORES = 1 << 26  # scores held at once, fp64

SEMANTICS = {
    "lse": ("natural", "base-2"),
    "fp32_dot": ("ieee", "tf32"),
    "empty": ("minus-inf", "plus-inf"),  # lse of a row without keys
    # exact: an fp8 cache is widened; cache: q and the softmax weights are rounded to the cache's dtype
    "arithmetic": ("exact", "cache"),
    # operand: lse is the sum of weights already rounded for P V, so it may be off by their roundoff
    "mass": ("fp32", "operand"),
}


class JoinedQuery(Inputs):
    """q [tokens, heads, 576] joined queries, with q_nope and q_pe as views."""

    @property
    def q_nope(self) -> torch.Tensor:
        """[tokens, heads, 512]."""
        return self.q[..., :LATENT]

    @property
    def q_pe(self) -> torch.Tensor:
        """[tokens, heads, 64]."""
        return self.q[..., LATENT:]


class LatentInputs(JoinedQuery):
    """q [tokens, heads, 576] joined queries; kv [pages, page, 576] joined pool; q_len, a list of ints; qo_indptr int32 [batch + 1]
    over queries; kv_indptr int32 [batch + 1] over pages; kv_indices int32 page ids; kv_len int32 [batch]; slots, an int64 tensor a
    request; q_scale, kv_scale: what an fp8 q and kv count times; scale. q_nope, q_pe, ckv, kpe are views."""

    @property
    def ckv(self) -> torch.Tensor:
        """[pages, page, 512]."""
        return self.kv[..., :LATENT]

    @property
    def kpe(self) -> torch.Tensor:
        """[pages, page, 64]."""
        return self.kv[..., LATENT:]

    @property
    def block_table(self) -> torch.Tensor:
        """int32 [batch, most pages (at least 1)]: page ids a request, padded with 0."""
        counts = self.kv_indptr.diff().tolist()
        table = torch.zeros(len(counts), max(1, *counts), dtype=torch.int32, device=self.device)
        for row, ids in zip(table, torch.split(self.kv_indices, counts), strict=True):
            row[: len(ids)] = ids
        return table

    def tokens(self, skip: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """indptr int32 [batch + 1] and token slots int64 of each request's keys but the last `skip`."""
        kept = [slots[: len(slots) - n] for slots, n in zip(self.slots, skip or [0] * len(self.slots), strict=True)]
        return indptr([len(slots) for slots in kept], self.device), torch.cat(kept)


def indptr(lengths: list[int], device: str) -> torch.Tensor:
    """int32 [n + 1]: the running sum of the lengths."""
    return torch.nn.functional.pad(torch.tensor(lengths, dtype=torch.int32, device=device).cumsum(0), (1, 0)).to(torch.int32)


def draw_latent(
    case: Case, draw: Draw, q_len: list[int], kv_len: list[int], *, cache: str = "samekv", top_page: int = 0, poisoned: bool = False
) -> LatentInputs:
    """Requests with these numbers of queries and keys; queries are the last positions. top_page > 0: the highest page id in use,
    in a pool that large whose other pages hold 3.0. `poisoned`: the pool is NaN wherever no request has a key, slot 0 among them."""
    pages = page_table(draw, kv_len, case.page, first=not poisoned)
    dtype = dtype_of(case.dtype)
    flavour = dtype if cache == "samekv" else torch.float8_e4m3fnuz if cache.endswith("fnuz") else torch.float8_e4m3fn
    q = draw.normal(sum(q_len), case.heads, WIDTH, scale=1 / Q_SCALE if cache in ALL_FP8 else 1.0)
    kv = pages.fill_unowned(draw.normal(pages.count, case.page, WIDTH, scale=1.0 if cache == "samekv" else 1 / KV_SCALE)).to(flavour)
    if poisoned:
        kv = pages.fill_unowned(kv, math.nan)
    slots, indices = pages.slots, pages.indices
    if top_page and len(indices):
        shift = top_page - int(indices.max())
        pool = torch.full((shift + pages.count, case.page, WIDTH), 3.0, dtype=flavour, device=draw.device)
        pool[shift:] = kv
        kv, indices, slots = pool, indices + shift, [s + shift * case.page for s in slots]
    return LatentInputs(
        case,
        draw.device,
        q=q.to(flavour if cache in ALL_FP8 else dtype),
        kv=kv,
        q_len=q_len,
        qo_indptr=indptr(q_len, draw.device),
        kv_indptr=pages.indptr,
        kv_indices=indices,
        kv_len=pages.lengths,
        slots=slots,
        scale=SCALE,
        q_scale=Q_SCALE if cache in ALL_FP8 else 1.0,
        kv_scale=1.0 if cache == "samekv" else KV_SCALE,
    )


def _stacks(x: LatentInputs) -> Iterator[list[int]]:
    """Neighbouring requests with equally many queries, as many as fit in memory together; those without queries are left out."""
    stack: list[int] = []
    for request in (i for i, n in enumerate(x.q_len) if n):
        grown = [*stack, request]
        size = len(grown) * max(1, max(len(x.slots[i]) for i in grown)) * max(WIDTH, x.q_len[request] * x.case.heads)
        if stack and (size > _SCORES or x.q_len[stack[0]] != x.q_len[request]):
            yield stack
            grown = [request]
        stack = grown
    if stack:
        yield stack


def _visible(keys: torch.Tensor, queries: int, low: int, high: int) -> torch.Tensor:
    """Causal, bottom-right: bool [n, high - low, most keys] for n requests with `keys` int64 [n] keys and `queries` queries."""
    query = torch.arange(low, high, device=keys.device)[None, :, None]
    return torch.arange(max(1, int(keys.max())), device=keys.device) <= query + (keys[:, None, None] - queries)


def _narrow(x: LatentInputs, semantics: Semantics) -> bool:
    """Whether queries and weights are rounded to the dtype of an fp8 cache."""
    return semantics["arithmetic"] == "cache" and x.kv.dtype != dtype_of(x.case.dtype)


def golden(x: LatentInputs, semantics: Semantics) -> dict[str, Close]:
    """o [tokens, heads, 512] and lse [tokens, heads]; a row that sees no key has o = 0, lse = -inf."""
    dtype = dtype_of(x.case.dtype)
    narrow = _narrow(x, semantics)
    weights = x.kv.dtype if narrow else dtype
    q = (x.q.to(x.kv.dtype) if narrow else x.q).double() * x.q_scale
    flat = x.kv.view(-1, WIDTH)
    how: dict[str, Any] = {**rounding.dot(dtype, semantics["fp32_dot"], WIDTH), "floor": rounding.floor(weights)}
    shape = (x.q.shape[0], x.case.heads)
    parts = {name: torch.zeros(*shape, LATENT, dtype=torch.float64, device=x.device) for name in ("o", "magnitude", "spread", "inner")}
    parts |= {name: torch.zeros(shape, dtype=torch.float64, device=x.device) for name in ("lse", "lse_inner")}
    for stack in _stacks(x):
        count = x.q_len[stack[0]]
        lengths = torch.tensor([len(x.slots[i]) for i in stack], device=x.device)
        slots = torch.zeros(len(stack), max(1, int(lengths.max())), dtype=torch.int64, device=x.device)
        for row, request in zip(slots, stack, strict=True):
            row[: len(x.slots[request])] = x.slots[request]
        beside = torch.arange(slots.shape[1], device=x.device) >= lengths[:, None]
        kv = flat[slots].double().masked_fill(beside[..., None], 0.0)[:, :, None] * x.kv_scale  # slot 0, read beside a request's keys, may hold NaN
        step = max(1, _SCORES // (slots.numel() * x.case.heads))
        for low in range(0, count, step):
            high = min(low + step, count)
            rows = x.qo_indptr.long()[stack][:, None] + torch.arange(low, high, device=x.device)
            part = attend(q[rows], kv, kv[..., :LATENT], x.scale, visible=_visible(lengths, count, low, high), **how)
            for name, values in parts.items():
                values[rows] = getattr(part, name)
    lse = parts["lse"]
    terms = max(1, *map(len, x.slots))
    operand = rounding.operand_roundoff(weights, semantics["fp32_dot"])
    lse_inner = parts["lse_inner"] + (operand if semantics["mass"] == "operand" else 0.0)
    return {
        "o": Close(parts["o"], parts["magnitude"], parts["spread"], operand=operand, inner=parts["inner"], terms=terms, dtype=dtype),
        "lse": Close(lse, lse.masked_fill(lse.isinf(), 0.0).abs(), inner=lse_inner, dtype=torch.float32),
    }


def second(x: LatentInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
    """The second formula, request by request."""
    q = (x.q.to(x.kv.dtype) if _narrow(x, semantics) else x.q).double() * x.q_scale
    o = torch.zeros(*x.q.shape[:2], LATENT, dtype=torch.float64, device=x.device)
    lse = o.new_zeros(o.shape[:2])
    flat = x.kv.view(-1, WIDTH)
    for request, slots in enumerate(x.slots):
        count = x.q_len[request]
        rows = slice(int(x.qo_indptr[request]), int(x.qo_indptr[request]) + count)
        kv = flat[slots].double()[:, None] * x.kv_scale
        visible = torch.ones(count, len(slots), dtype=torch.bool, device=x.device).tril(len(slots) - count)
        o[rows], lse[rows] = attend_by_chunks(q[rows], kv, kv[..., :LATENT], x.scale, visible=visible)
    return {"o": o, "lse": lse}


class Absorbed:
    """What the absorbed contracts share beside their inputs."""

    outputs = ("o", "lse")
    semantics = SEMANTICS

    def reference(self, x: LatentInputs, semantics: Semantics) -> dict[str, Close]:
        """As `golden`; computed once for semantics that differ only in what the conversion undoes or in what the case has not."""
        dtype = dtype_of(x.case.dtype)
        idle = {"lse": True, "empty": True, "fp32_dot": dtype != torch.float32, "arithmetic": x.kv.dtype == dtype}
        key = tuple((name, word) for name, word in semantics.items() if not idle.get(name))
        memo: dict[Any, dict[str, Close]] = x.__dict__.setdefault("memo", {})
        if key not in memo:
            memo[key] = golden(x, semantics)
        return dict(memo[key])

    def second(self, x: LatentInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """As `second`."""
        return second(x, semantics)

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        """lse in natural log, -inf where a row has no keys."""
        return minus_inf(natural(outputs, semantics), semantics)


def minus_inf(outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
    """Outputs with lse = -inf for a row without keys, from the sign the provider declares."""
    if semantics["empty"] == "plus-inf" and outputs.get("lse") is not None:
        lse = outputs["lse"]
        return {**outputs, "lse": lse.masked_fill(lse == math.inf, -math.inf)}
    return outputs
