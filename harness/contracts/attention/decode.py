"""decode_attention: one query a request against a paged cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts.attention.batch import FLAGS, HEADS_IN, HEADS_OUT, LAYOUT, SEMANTICS, SHAPE, WINDOW, AttentionInputs, cache_dtype, draw_batch, v_dim
from harness.contracts.attention.golden import Attention, Visible, banded
from harness.contracts.axes import Case, number, words
from harness.contracts.inputs import Draw, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, below_pages, ragged
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.flags import attention_flags
from harness.contracts.relations.heads import padded
from harness.contracts.relations.keys import KEYS
from harness.contracts.relations.lengths import LONGER
from harness.contracts.relations.pages import PAGED
from harness.contracts.relations.requests import RAGGED


@contract("attention")
class decode_attention(Attention):
    """Attention of one query token a request over its keys in a paged pool (MHA, GQA, MQA).

    q [batch, heads, dim]; k_pool [pages, page, kv_heads, dim], v_pool [..., v_dim]; kv_indptr (over pages) int32 [batch + 1];
    kv_indices int32, scattered page ids; kv_len int32 [batch] tokens; scale 1/sqrt(dim) -> o [batch, heads, v_dim], lse [batch,
    heads] fp32. The query is the request's last token: with a window w it sees keys kv_len - 1 - w to kv_len - 1. A request
    without keys gives o = 0 and lse = -inf. With a soft cap or sinks the inputs are such that leaving the flag out changes o.
    """

    axes = (
        *SHAPE,
        number("length", "s", "longest KV length in tokens", least=0, search=(0, 4097)),
        *LAYOUT,
        words("lengths", LENGTHS, "KV lengths of the requests", default="uniform"),
        WINDOW,
        *FLAGS,
        number("top_page", "id", "highest page id in use; 0: as few pages as needed", default=0),
    )
    semantics = SEMANTICS
    relations = {**RAGGED, **PAGED, **KEYS, **LONGER, **padded(HEADS_IN, HEADS_OUT), "strided": strided("q"), **attention_flags()}

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        return super().impossible(case) or below_pages(case.batch, case.length, case.page, case.top_page)

    def inputs(self, case: Case, draw: Draw) -> AttentionInputs:
        lengths = ragged(draw, case.batch, case.length, case.lengths)
        return draw_batch(case, draw, [1] * case.batch, lengths, causal=True, window=case.window, top_page=case.top_page)

    def visible(self, x: AttentionInputs, semantics: Semantics) -> Visible:
        return banded(x, "two-sided")

    def work(self, case: Case) -> Work:
        seen = min(case.length, case.window + 1) if case.window >= 0 else case.length
        row = case.dim + v_dim(case)
        queries = case.batch * case.heads * row * dtype_of(case.dtype).itemsize
        keys = case.batch * seen * case.kv_heads * row * cache_dtype(case).itemsize
        return Work(2 * case.batch * case.heads * seen * row, queries + keys)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind != "gqa":
            return
        heads: dict[str, Any] = {"heads": g.heads, "kv_heads": g.kv_heads, "dim": g.model.head_dim, "sinks": "sinks" if g.model.sinks else "nosinks"}
        shapes = [{"batch": 2, "length": 40, "dtype": "fp16"}] if small else [{"batch": b, "length": s, "dtype": "bf16"} for b, s in ((1, 8192), (64, 2048))]
        for shape in shapes:
            yield {**heads, **shape}
            if g.model.window:
                yield {**heads, **shape, "window": 16 if small else g.model.window - 1}
