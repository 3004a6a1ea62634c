"""mla_decode: one query a request (or the few of speculative verification) against a paged latent cache, weights absorbed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts.axes import Case, number, words
from harness.contracts.inputs import DTYPES, Draw, dtype_of
from harness.contracts.mla.absorbed import CACHES, LATENT, ROPE, WIDTH, Absorbed, LatentInputs, draw_latent
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, below_pages, ragged
from harness.contracts.registry import Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.heads import padded
from harness.contracts.relations.keys import KEYS
from harness.contracts.relations.lengths import LONGER
from harness.contracts.relations.pages import PAGED
from harness.contracts.relations.requests import RAGGED


@contract("mla")
class mla_decode(Absorbed):
    """Absorbed multi-head latent attention (576 = 512 latent + 64 rope, values the 512), one query token a request.

    q [batch * queries, heads, 576]; kv [pages, page, 576]; qo_indptr, kv_indptr (over pages) int32 [batch + 1]; kv_indices int32
    (scattered page ids); kv_len int32 [batch] tokens; scale 1/sqrt(192) -> o [batch * queries, heads, 512], lse [.., heads] fp32.
    Several queries are a request's last tokens and causal. An fp8 cache counts times kv_scale, fp8 queries (allfp8, allfnuz) times q_scale.
    A request without keys gives o = 0 and lse = -inf.
    """

    axes = (
        number("batch", "b", "requests", search=(1, 33)),
        number("queries", "q", "queries a request", default=1, search=(1, 9)),
        number("heads", "h", "query heads on this rank"),
        number("length", "s", "longest KV length in tokens", least=0, search=(0, 4097)),
        number("page", "pg", "page size in tokens", default=1, search=(1, 128)),
        number("top_page", "id", "highest page id in use; 0: as few pages as needed", default=0),
        words("dtype", DTYPES, "dtype of queries, cache and output"),
        words("cache", CACHES, "the cache: as the queries, or an fp8 flavour; allfp8 (e4m3fn), allfnuz: the queries too", default="samekv"),
        words("lengths", LENGTHS, "KV lengths of the requests", default="uniform"),
        words("values", ("random", "poisoned"), "pool NaN wherever no request has a key, slot 0 among them (poisoned)", default="random"),
    )

    relations = {**RAGGED, **PAGED, **KEYS, **LONGER, **padded({"q": 1}, {"o": 1, "lse": 1}), "strided": strided("q")}

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        return below_pages(case.batch, case.length, case.page, case.top_page)

    def inputs(self, case: Case, draw: Draw) -> LatentInputs:
        lengths = ragged(draw, case.batch, case.length, case.lengths, low=case.queries)
        return draw_latent(case, draw, [case.queries] * case.batch, lengths, cache=case.cache, top_page=case.top_page, poisoned=case.values == "poisoned")

    def work(self, case: Case) -> Work:
        size = dtype_of(case.dtype).itemsize
        tokens, queries = case.batch * case.length, case.batch * case.queries
        cache = tokens * WIDTH * (size if case.cache == "samekv" else 1)
        return Work(2 * tokens * case.queries * case.heads * (2 * LATENT + ROPE), cache + queries * case.heads * (WIDTH + LATENT) * size)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind != "mla" or g.model.index_topk:
            return
        if small:
            yield {"batch": 2, "heads": g.heads, "length": 9, "dtype": "fp16", "lengths": "ragged"}
            return
        for batch, length in ((1, 4096), (32, 4096), (128, 1024)):
            for page in (1, 64):
                yield {"batch": batch, "heads": g.heads, "length": length, "page": page, "dtype": "bf16"}
