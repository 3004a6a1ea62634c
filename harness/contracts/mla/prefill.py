"""mla_prefill (192/128, K and V made explicit) and mla_prefill_absorbed (576/512 against the paged latent cache)."""

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
from harness.contracts.mla.absorbed import LATENT, NOPE, ROPE, SEMANTICS, WIDTH, Absorbed, LatentInputs, draw_latent, indptr, minus_inf
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, ragged
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.heads import padded
from harness.contracts.relations.pages import PAGED
from harness.contracts.relations.requests import RAGGED

_SCORES = 1 << 26  # scores held at once, fp64

_BATCH = (
    number("batch", "b", "requests", search=(1, 17)),
    number("heads", "h", "query heads on this rank"),
    number("new", "n", "longest run of new tokens"),
    number("prefix", "pre", "longest cached prefix in tokens", default=0),
)
_TAIL = (
    words("dtype", DTYPES, "dtype of queries, keys, values and output"),
    words("lengths", LENGTHS, "new and prefix lengths; empty: some requests have no prefix, some no new token", default="uniform"),
)


def _lengths(case: Case, draw: Draw) -> tuple[list[int], list[int]]:
    """New and prefix tokens a request. `empty`: every third request without a prefix, and another third without new tokens."""
    new = ragged(draw, case.batch, case.new, "ragged" if case.lengths == "empty" else case.lengths)
    prefix = ragged(draw, case.batch, case.prefix, case.lengths, low=0)
    if case.lengths == "empty":
        new = [0 if i % 3 == 2 else n for i, n in enumerate(new)]
    return new, prefix


class ExplicitInputs(Inputs):
    """q [new tokens, heads, nope + rope]; k, v [keys, heads, ..] ragged, a request's prefix before its new tokens; q_len, prefix_len,
    lists of ints a request; qo_indptr, kv_indptr int32 [batch + 1] over tokens; scale; chunk: prefix tokens a request and chunk."""

    @property
    def kv_len(self) -> list[int]:
        """Keys a request."""
        return [n + m for n, m in zip(self.q_len, self.prefix_len, strict=True)]

    def keys(self, low: list[int], high: list[int]) -> torch.Tensor:
        """int64 rows in k and v of each request's keys low to high."""
        starts = self.kv_indptr.tolist()
        return torch.cat([torch.arange(s + a, s + b, device=self.device) for s, a, b in zip(starts, low, high, strict=False)])

    def chunks(self) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
        """The prefix in chunks: rows in k and v, their indptr int32 [batch + 1], and the longest; a chunk may hold no key of some request."""
        parts = []
        for start in range(0, max(self.prefix_len), self.chunk):
            low = [min(start, n) for n in self.prefix_len]
            high = [min(start + self.chunk, n) for n in self.prefix_len]
            sizes = [b - a for a, b in zip(low, high, strict=True)]
            parts.append((self.keys(low, high), indptr(sizes, self.device), max(sizes)))
        return parts


@contract("mla")
class mla_prefill:
    """Causal attention of new tokens over explicit K (192 = 128 nope + 64 rope) and V (128), with or without a cached prefix.

    q [sum of new, heads, 192]; k [sum of prefix + new, heads, 192], v [.., heads, 128], ragged; qo_indptr, kv_indptr int32
    [batch + 1]; scale 1/sqrt(192); causal, aligned at the last key -> o [sum of new, heads, 128], lse [.., heads] fp32. A prefix may
    be attended to in chunks whose states are merged.
    """

    axes = (
        *_BATCH,
        number("nope", "np", "head dimension without rope", default=NOPE, search=(16, 264)),
        number("v_dim", "dv", "head dimension of values", default=128, search=(16, 264)),
        number("chunk", "c", "prefix tokens a request that chunked providers take at once; 0: all", default=0),
        *_TAIL,
    )
    outputs = ("o", "lse")
    # e4m3fn: queries, keys, values and the softmax weights are rounded to that dtype, with scales of 1
    semantics = {name: SEMANTICS[name] for name in ("lse", "fp32_dot", "empty", "mass")} | {"arithmetic": ("exact", "e4m3fn")}

    def inputs(self, case: Case, draw: Draw) -> ExplicitInputs:
        new, prefix = _lengths(case, draw)
        total = [n + m for n, m in zip(new, prefix, strict=True)]
        dtype, dim = dtype_of(case.dtype), case.nope + ROPE
        return ExplicitInputs(
            case,
            draw.device,
            q=draw.normal(sum(new), case.heads, dim, dtype=dtype),
            k=draw.normal(sum(total), case.heads, dim, dtype=dtype),
            v=draw.normal(sum(total), case.heads, case.v_dim, dtype=dtype),
            q_len=new,
            prefix_len=prefix,
            qo_indptr=indptr(new, draw.device),
            kv_indptr=indptr(total, draw.device),
            scale=1 / math.sqrt(dim),
            chunk=case.chunk or max(1, case.prefix),
        )

    relations = {**RAGGED, **padded({"q": 1, "k": 1, "v": 1}, {"o": 1, "lse": 1}), "strided": strided("q", "k", "v")}

    @staticmethod
    def _operands(x: ExplicitInputs, semantics: Semantics) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.dtype]:
        """q, k and v as the declared arithmetic takes them, and the dtype of the weights."""
        if semantics["arithmetic"] == "exact":
            return x.q, x.k, x.v, x.q.dtype
        narrow = torch.float8_e4m3fn
        return x.q.to(narrow).to(x.q.dtype), x.k.to(narrow).to(x.k.dtype), x.v.to(narrow).to(x.v.dtype), narrow

    @staticmethod
    def _requests(x: ExplicitInputs, most: int) -> Iterator[tuple[slice, slice, torch.Tensor]]:
        """Rows of q, rows of k and v, and the causal mask, for at most `most` queries of a request at a time."""
        starts, bounds = x.qo_indptr.tolist(), x.kv_indptr.tolist()
        for request, count in enumerate(x.q_len):
            for low in range(0, count, most):
                high = min(low + most, count)
                keys = x.prefix_len[request] + high
                mask = torch.ones(high - low, keys, dtype=torch.bool, device=x.device).tril(keys - (high - low))
                yield slice(starts[request] + low, starts[request] + high), slice(bounds[request], bounds[request] + keys), mask

    def reference(self, x: ExplicitInputs, semantics: Semantics) -> dict[str, Close]:
        dot: dict[str, Any] = rounding.dot(x.q.dtype, semantics["fp32_dot"], x.q.shape[-1])
        all_q, all_k, all_v, weights = self._operands(x, semantics)
        most = max(1, _SCORES // (x.case.heads * max(1, *x.kv_len)))
        done = [attend(all_q[q], all_k[k], all_v[k], x.scale, visible=mask, **dot, floor=rounding.floor(weights)) for q, k, mask in self._requests(x, most)]
        parts = {name: torch.cat([getattr(part, name) for part in done]) for name in ("o", "magnitude", "spread", "inner", "lse", "lse_inner")}
        operand = rounding.operand_roundoff(weights, semantics["fp32_dot"])
        lse_inner = parts["lse_inner"] + (operand if semantics["mass"] == "operand" else 0.0)
        return {
            "o": Close(parts["o"], parts["magnitude"], parts["spread"], operand=operand, inner=parts["inner"], terms=max(1, *x.kv_len), dtype=x.q.dtype),
            "lse": Close(parts["lse"], parts["lse"].abs(), inner=lse_inner, dtype=torch.float32),
        }

    def second(self, x: ExplicitInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        all_q, all_k, all_v, _ = self._operands(x, semantics)
        done = [attend_by_chunks(all_q[q], all_k[k], all_v[k], x.scale, visible=mask) for q, k, mask in self._requests(x, max(1, *x.q_len))]
        return {"o": torch.cat([o for o, _ in done]), "lse": torch.cat([lse for _, lse in done])}

    def convert(self, x: Inputs, outputs: dict[str, Any], semantics: Semantics) -> dict[str, Any]:
        return minus_inf(natural(outputs, semantics), semantics)

    def work(self, case: Case) -> Work:
        size, dim = dtype_of(case.dtype).itemsize, case.nope + ROPE
        pairs = case.batch * case.heads * (case.new * case.prefix + case.new * (case.new + 1) // 2)
        rows = case.batch * case.heads
        return Work(2 * pairs * (dim + case.v_dim), rows * ((2 * case.new + case.prefix) * (dim + case.v_dim)) * size)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind != "mla":
            return
        shape = {"heads": g.heads, "nope": g.model.nope, "v_dim": g.model.v_dim, "dtype": "fp16" if small else "bf16"}
        if small:
            yield {"batch": 2, "new": 4, "prefix": 3, "lengths": "ragged", **shape}
            return
        yield {"batch": 1, "new": 4096, **shape}
        yield {"batch": 4, "new": 512, "prefix": 2048, "chunk": 1024, "lengths": "ragged", **shape}


@contract("mla")
class mla_prefill_absorbed(Absorbed):
    """Causal attention of new tokens, already in the paged latent cache, over the whole cache of their request, weights absorbed.

    As mla_decode with ragged runs of queries: q [sum of new, heads, 576]; kv [pages, page, 576]; kv_len counts prefix and new
    tokens -> o [sum of new, heads, 512], lse [.., heads] fp32.
    """

    axes = (*_BATCH, number("page", "pg", "page size in tokens", default=1, search=(1, 128)), *_TAIL)
    relations = {**RAGGED, **PAGED, **padded({"q": 1}, {"o": 1, "lse": 1}), "strided": strided("q")}

    def inputs(self, case: Case, draw: Draw) -> LatentInputs:
        new, prefix = _lengths(case, draw)
        return draw_latent(case, draw, new, [n + m for n, m in zip(new, prefix, strict=True)])

    def work(self, case: Case) -> Work:
        size = dtype_of(case.dtype).itemsize
        pairs = case.batch * case.heads * (case.new * case.prefix + case.new * (case.new + 1) // 2)
        cache = case.batch * (case.prefix + case.new) * WIDTH
        return Work(2 * pairs * (WIDTH + LATENT), (cache + case.batch * case.new * case.heads * (WIDTH + LATENT)) * size)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind != "mla" or g.model.index_topk:
            return
        if small:
            yield {"batch": 2, "heads": g.heads, "new": 3, "prefix": 4, "dtype": "fp16", "lengths": "ragged"}
            return
        for page in (1, 64):
            yield {"batch": 4, "heads": g.heads, "new": 256, "prefix": 2048, "page": page, "dtype": "bf16", "lengths": "ragged"}
