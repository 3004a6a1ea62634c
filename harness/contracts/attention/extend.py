"""extend_attention: new tokens of each request over its cached prefix and themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.attention.batch import FLAGS, HEADS_IN, HEADS_OUT, LAYOUT, SEMANTICS, SHAPE, WINDOW, AttentionInputs, cache_dtype, draw_batch, v_dim
from harness.contracts.attention.golden import Attention, Visible, banded
from harness.contracts.axes import Case, number, words
from harness.contracts.inputs import Draw, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, ragged
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.flags import attention_flags
from harness.contracts.relations.heads import padded
from harness.contracts.relations.pages import PAGED
from harness.contracts.relations.requests import RAGGED


def with_fresh(x: AttentionInputs) -> AttentionInputs:
    """Adds k_new [tokens, kv_heads, dim] and v_new: the keys and values of the queries' own tokens as the call's arguments, equal
    to what the pool holds at their slots times the scales (an exact product: the scales are powers of two)."""
    own = torch.cat([slots[prefix:] for slots, prefix in zip(x.slots, x.prefix_len, strict=True)])
    x.k_new = (x.k_flat[own].float() * x.k_scale).to(x.q.dtype)
    x.v_new = (x.v_flat[own].float() * x.v_scale).to(x.q.dtype)
    return x


def refreshed(x: AttentionInputs) -> AttentionInputs:
    """As with_fresh, where the inputs have keys of their own tokens at all."""
    return with_fresh(x) if "k_new" in vars(x) else x


@contract("attention")
class extend_attention(Attention):
    """Attention of each request's new tokens over its cached prefix and themselves; without a prefix, plain prefill.

    q [tokens, heads, dim], qo_indptr int32 [batch + 1]; the pool, page table and kv_len as in decode_attention hold prefix and new
    tokens; k_new, v_new [tokens, kv_heads, dim] repeat the new ones -> o [tokens, heads, v_dim], lse [tokens, heads] fp32.
    The last query stands at the last key: causal and window masks are aligned bottom-right, and with more queries than keys (cut)
    the first rows see nothing. Such a row gives o = 0 and lse = -inf. Requests may have no query or no key.
    """

    axes = (
        *SHAPE,
        number("new", "q", "most new tokens (queries) of a request", least=0),
        number("prefix", "p", "longest cached prefix in tokens", default=0, search=(0, 4097)),
        *LAYOUT,
        words("mask", ("causal", "full"), "whether a new token sees those after it", default="causal"),
        words(
            "lengths", (*LENGTHS, "cut"), "empty: some requests have no new token, some no prefix; cut: some have fewer keys than queries", default="uniform"
        ),
        WINDOW,
        *FLAGS,
    )
    semantics = {**SEMANTICS, "window": ("two-sided", "left")}  # what a window hides after a query that is not causal
    relations = {**RAGGED, **PAGED, **padded(HEADS_IN, HEADS_OUT), "strided": strided("q"), **attention_flags(remake=refreshed)}

    def inputs(self, case: Case, draw: Draw) -> AttentionInputs:
        kind = "ragged" if case.lengths == "cut" else case.lengths
        new = ragged(draw, case.batch, case.new, kind)
        prefix = ragged(draw, case.batch, case.prefix, kind, low=0)
        if kind == "empty":
            prefix = [0 if i % 3 == 2 else n for i, n in enumerate(prefix)]
            prefix[0] = case.prefix
        kv_len = [n + m for n, m in zip(new, prefix, strict=True)]
        if case.lengths == "cut":
            kv_len = [0 if i % 4 == 1 else (n // 2 if i % 2 == 0 else total) for i, (n, total) in enumerate(zip(new, kv_len, strict=True))]
        x = draw_batch(case, draw, new, kv_len, causal=case.mask == "causal", window=case.window)
        return x if case.lengths == "cut" else with_fresh(x)

    def visible(self, x: AttentionInputs, semantics: Semantics) -> Visible:
        return banded(x, semantics["window"])

    def work(self, case: Case) -> Work:
        pairs = case.new * case.prefix + (case.new * (case.new + 1) // 2 if case.mask == "causal" else case.new**2)
        if case.window >= 0:
            pairs = min(pairs, case.new * (case.window + 1))
        row = case.dim + v_dim(case)
        queries = case.batch * case.new * case.heads * row * dtype_of(case.dtype).itemsize
        keys = case.batch * (case.new + case.prefix) * case.kv_heads * row * cache_dtype(case).itemsize
        return Work(2 * case.batch * case.heads * pairs * row, queries + keys)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind != "gqa":
            return
        heads: dict[str, Any] = {"heads": g.heads, "kv_heads": g.kv_heads, "dim": g.model.head_dim, "sinks": "sinks" if g.model.sinks else "nosinks"}
        sizes = ((2, 6, 10),) if small else ((1, 2048, 0), (4, 512, 2048))
        for batch, new, prefix in sizes:
            point = {**heads, "batch": batch, "new": new, "prefix": prefix, "dtype": "fp16" if small else "bf16", "lengths": "ragged"}
            yield point
            if g.model.window:
                yield {**point, "window": 8 if small else g.model.window - 1}
