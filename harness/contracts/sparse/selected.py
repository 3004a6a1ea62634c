"""sparse_mla_prefill and sparse_mla_decode: absorbed MLA in which each query attends to its own list of cached tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.attending import attend, attend_by_chunks, natural
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Close
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.mla.absorbed import LATENT, ROPE, SCALE, SEMANTICS, WIDTH, JoinedQuery, minus_inf
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.heads import padded
from harness.contracts.relations.rows import row_by_row

CACHES = ("samekv", "e4m3fn", "e4m3fnuz", "allfp8", "packed")
SELECTIONS = ("full", "ragged", "holes", "empty")
VALUES = ("random", "far", "poisoned")
PAGE = 64  # tokens a page of the packed cache
_GATHERED = 1 << 26  # numbers held at once, fp64


class SelectedInputs(JoinedQuery):
    """q [tokens, heads, 576]; kv [slots, 1, 576], values its first 512; indices int32 [tokens, 1, k] token slots, -1 for none, no
    slot twice in a row; topk_length int32 [tokens]: one past the last valid index; scale. With the packed cache `packed` is the
    cache as FlashMLA reads it and kv what it stands for: [pages, 64, 1, 656] of 512 fp8 latents, 4 fp32 scales (one for 128), 64
    bf16 rope numbers. q_nope, q_pe are views."""


def _pack(draw: Draw, slots: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A packed cache and the bf16 [slots, 1, 576] it stands for, exactly: scales are powers of two."""
    latent = draw.normal(slots, LATENT, dtype=torch.float8_e4m3fn, scale=4.0)
    scales = torch.tensor([0.125, 0.25, 0.5], device=draw.device)[draw.integers(slots, LATENT // 128, low=0, high=3)]
    rope = draw.normal(slots, ROPE, dtype=torch.bfloat16)
    raw = torch.cat((latent.view(torch.uint8), scales.view(torch.uint8), rope.view(torch.uint8)), -1)
    plain = (latent.float().view(slots, -1, 128) * scales[..., None]).view(slots, LATENT).to(torch.bfloat16)
    return raw.view(-1, PAGE, 1, raw.shape[-1]), torch.cat((plain, rope), -1)[:, None]


def _indices(case: Case, draw: Draw) -> torch.Tensor:
    """int32 [tokens, k]: distinct slots, less what the selection leaves out. A cache shorter than k leaves the rest out."""
    order = torch.argsort(draw.bits(case.tokens, case.length), dim=-1, stable=True)[:, : case.k]
    chosen = torch.nn.functional.pad(order, (0, case.k - order.shape[1]), value=-1)
    column = torch.arange(case.k, device=draw.device)
    if case.selection == "ragged":
        keep = draw.integers(case.tokens, 1, low=1, high=case.k + 1)
        keep[0] = case.k
        chosen = chosen.masked_fill(column >= keep, -1)
    elif case.selection == "holes":
        chosen = chosen.masked_fill(draw.integers(case.tokens, case.k, low=0, high=3) == 0, -1)
    elif case.selection == "empty":
        chosen[::3] = -1
    return chosen.to(torch.int32)


class _Selected:
    axes = (
        number("tokens", "t", "query tokens"),
        number("heads", "h", "query heads on this rank"),
        number("k", "k", "indices a query", search=(1, 2112)),
        number("length", "s", "cached tokens", search=(1, 4097)),
        words("dtype", DTYPES, "dtype of queries and output; of the cache too, but for fp8"),
        words("cache", CACHES, "the cache: as the queries, an fp8 flavour, the queries fp8 too (allfp8), or FlashMLA's packed form", default="samekv"),
        words("selection", SELECTIONS, "all k valid; a valid run of hashed length; -1 anywhere; every third query without any", default="full"),
        words(
            "values",
            VALUES,
            "queries random; 128 times larger (far); a plain cache NaN where no query looks (poisoned)",
            default="random",
        ),
    )
    outputs = ("o", "lse")
    semantics = SEMANTICS
    relations = {**row_by_row("tokens", "q", "indices", "topk_length"), **padded({"q": 1}, {"o": 1, "lse": 1}), "strided": strided("q")}

    def inputs(self, case: Case, draw: Draw) -> SelectedInputs:
        dtype = dtype_of(case.dtype)
        indices = _indices(case, draw)
        if case.values == "poisoned":
            indices = indices.masked_fill(indices == 0, -1)
        q = draw.normal(case.tokens, case.heads, WIDTH) * (128.0 if case.values == "far" else 1.0)
        extra: dict[str, Any] = {}
        if case.cache == "packed":
            extra["packed"], kv = _pack(draw, -(-case.length // PAGE) * PAGE)
        else:
            flavour = {"samekv": dtype, "e4m3fnuz": torch.float8_e4m3fnuz}.get(case.cache, torch.float8_e4m3fn)
            kv = draw.normal(case.length, 1, WIDTH, dtype=flavour)
            if case.values == "poisoned":
                idle = torch.ones(case.length, dtype=torch.bool, device=draw.device)
                idle[indices[indices >= 0].long()] = False
                kv[idle] = math.nan
        last = torch.arange(1, case.k + 1, device=draw.device).masked_fill(indices < 0, 0).amax(-1)
        return SelectedInputs(
            case,
            draw.device,
            q=q.to(kv.dtype if case.cache == "allfp8" else dtype),
            kv=kv,
            indices=indices[:, None],
            topk_length=last.to(torch.int32),
            scale=SCALE,
            **extra,
        )

    @staticmethod
    def _narrow(x: SelectedInputs, semantics: Semantics) -> bool:
        """Whether queries and weights are rounded to the dtype of an fp8 cache."""
        return semantics["arithmetic"] == "cache" and x.kv.element_size() == 1

    def reference(self, x: SelectedInputs, semantics: Semantics) -> dict[str, Close]:
        """Computed once for semantics that differ only in what the conversion undoes or in what the case has not."""
        dtype = dtype_of(x.case.dtype)
        narrow = self._narrow(x, semantics)
        key = (narrow, semantics["fp32_dot"] if dtype == torch.float32 else "")
        memo: dict[Any, dict[str, Close]] = x.__dict__.setdefault("memo", {})
        if key not in memo:
            memo[key] = self._golden(x, dtype, narrow, semantics["fp32_dot"])
        return dict(memo[key])

    @staticmethod
    def _golden(x: SelectedInputs, dtype: torch.dtype, narrow: bool, fp32_dot: str) -> dict[str, Close]:
        weights = x.kv.dtype if narrow else dtype
        how: dict[str, Any] = {**rounding.dot(dtype, fp32_dot, x.q.shape[-1]), "floor": rounding.floor(weights)}
        q = (x.q.to(x.kv.dtype) if narrow else x.q).double()[:, None]
        indices = x.indices[:, 0].long()
        step = max(1, _GATHERED // (x.case.k * max(WIDTH, x.case.heads)))
        done = []
        for low in range(0, x.case.tokens, step):
            rows = slice(low, low + step)
            kv = x.kv[indices[rows].clamp_min(0)].double()  # [n, k, 1, 576]
            kv = kv.masked_fill_((indices[rows] < 0)[..., None, None], 0.0)  # whatever slot 0 holds
            done.append(attend(q[rows], kv, kv[..., :LATENT], x.scale, visible=(indices[rows] >= 0)[:, None], **how))
        parts = {name: torch.cat([getattr(part, name) for part in done])[:, 0] for name in ("o", "magnitude", "spread", "inner", "lse", "lse_inner")}
        lse = parts["lse"]
        operand = rounding.operand_roundoff(weights, fp32_dot)
        return {
            "o": Close(parts["o"], parts["magnitude"], parts["spread"], operand=operand, inner=parts["inner"], terms=x.case.k, dtype=dtype),
            "lse": Close(lse, lse.masked_fill(lse.isinf(), 0.0).abs(), inner=parts["lse_inner"], dtype=torch.float32),
        }

    def second(self, x: SelectedInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Query by query over its valid slots alone."""
        q = x.q.to(x.kv.dtype) if self._narrow(x, semantics) else x.q
        rows = []
        for token in range(x.case.tokens):
            chosen = x.indices[token, 0]
            kv = x.kv[chosen[chosen >= 0].long()]
            rows.append(attend_by_chunks(q[token : token + 1], kv, kv[..., :LATENT], x.scale))
        return {"o": torch.cat([o for o, _ in rows]), "lse": torch.cat([lse for _, lse in rows])}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        return minus_inf(natural(outputs, semantics), semantics)

    def work(self, case: Case) -> Work:
        size = dtype_of(case.dtype).itemsize
        entry = {"samekv": WIDTH * size, "packed": LATENT + 4 * (LATENT // 128) + 2 * ROPE}.get(case.cache, WIDTH)
        keys = case.tokens * min(case.k, case.length)
        return Work(2 * keys * case.heads * (WIDTH + LATENT), keys * (entry + 4) + case.tokens * case.heads * (WIDTH + LATENT) * size)


def _small(g: Geometry) -> dict[str, Any]:
    return {"tokens": 2, "heads": g.heads, "k": 16, "length": 20, "dtype": "fp16", "selection": "ragged"}


@contract("sparse")
class sparse_mla_prefill(_Selected):
    """Absorbed MLA over the tokens that the indexer picked, many queries (DeepSeek V3.2, GLM-5).

    q [tokens, heads, 576], kv [slots, 1, 576], indices int32 [tokens, 1, k] (-1: none), topk_length int32 [tokens]; scale
    1/sqrt(192) -> o [tokens, heads, 512], lse [tokens, heads] fp32. A query without a valid index gives o = 0 and lse = -inf.
    """

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "mla" and g.model.index_topk:
            full = {"tokens": 512, "heads": g.heads, "k": g.model.index_topk, "length": 8192, "dtype": "bf16", "selection": "ragged"}
            yield _small(g) if small else full


@contract("sparse")
class sparse_mla_decode(_Selected):
    """Absorbed MLA over the tokens that the indexer picked, one query a request; inputs as for sparse_mla_prefill."""

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "mla" and g.model.index_topk:
            if small:
                yield _small(g)
                return
            for tokens in (1, 16, 128):
                for cache in ("samekv", "packed"):
                    yield {"tokens": tokens, "heads": g.heads, "k": g.model.index_topk, "length": 16384, "dtype": "bf16", "cache": cache}
