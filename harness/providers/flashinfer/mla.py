"""flashinfer.mla on the paged latent cache, the ragged wrapper on explicit K and V, each back end forced, and concat_mla_k."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements

BASE2 = {"lse": "base-2"}
FA2 = {**BASE2, "mass": "operand"}  # it sums the weights on the tensor cores, after rounding them


def _half(case: Case) -> str | None:
    if case.dtype == "fp32":
        return "FlashInfer's attention takes fp16 and bf16"
    return None if case.point.get("cache", "samekv") == "samekv" else "FlashInfer's paged MLA reads a cache of the queries' dtype"


def _explicit(case: Case) -> str | None:
    built = (case.nope + 64, case.v_dim) in ((64, 64), (128, 128), (256, 256), (192, 128))
    return _half(case) or (None if built else "FlashInfer's ragged prefill is built for head dimensions 64, 128, 256 and 192/128")


def _chunked(case: Case) -> str | None:
    return _explicit(case) or (None if case.prefix else "without a prefix there is nothing to take in chunks")


class _Paged:
    backend = ""

    def prepare(self, x: Any, scratch: Any) -> None:
        from flashinfer.mla import BatchMLAPagedAttentionWrapper

        self.x = x
        self.out = scratch.output("o", like=x.q_nope)
        self.wrapper = BatchMLAPagedAttentionWrapper(scratch.workspace(128 << 20), backend=self.backend)
        causal = max(x.q_len) > 1
        self.wrapper.plan(x.qo_indptr, x.kv_indptr, x.kv_indices, x.kv_len, x.case.heads, 512, 64, x.case.page, causal, x.scale, x.q.dtype, x.kv.dtype)

    def run(self) -> Any:
        x = self.x
        return self.wrapper.run(x.q_nope, x.q_pe, x.ckv, x.kpe, out=self.out, return_lse=True)


@implements("mla_prefill_absorbed", library="flashinfer", name="flashinfer_fa2", platforms={"cuda"}, semantics=FA2, accepts=_half)
@implements("mla_decode", library="flashinfer", name="flashinfer_fa2", platforms={"cuda"}, semantics=FA2, accepts=_half)
class PagedFa2(_Paged):
    backend = "fa2"


@implements("mla_prefill_absorbed", library="flashinfer", name="flashinfer_fa3", platforms={"cuda"}, semantics=BASE2, accepts=_half)
@implements("mla_decode", library="flashinfer", name="flashinfer_fa3", platforms={"cuda"}, semantics=BASE2, accepts=_half)
class PagedFa3(_Paged):
    backend = "fa3"


class _Ragged:
    backend = ""

    def plan(self, x: Any, workspace: Any, kv_indptr: Any, causal: bool) -> Any:
        from flashinfer.prefill import BatchPrefillWithRaggedKVCacheWrapper

        wrapper = BatchPrefillWithRaggedKVCacheWrapper(workspace, backend=self.backend)
        heads, dims = x.case.heads, (x.q.shape[-1], x.v.shape[-1])
        kinds = {"q_data_type": x.q.dtype, "kv_data_type": x.k.dtype}
        wrapper.plan(x.qo_indptr, kv_indptr, heads, heads, dims[0], head_dim_vo=dims[1], causal=causal, sm_scale=x.scale, **kinds)
        return wrapper

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x = x
        self.out = scratch.output("o", x.q.shape[0], x.case.heads, x.v.shape[-1], dtype=x.q.dtype)
        self.wrapper = self.plan(x, scratch.workspace(128 << 20), x.kv_indptr, True)

    def run(self) -> Any:
        x = self.x
        return self.wrapper.run(x.q, x.k, x.v, out=self.out, return_lse=True)


class _Chunked(_Ragged):
    """The new tokens causally, then each chunk of the prefix, merged by merge_state."""

    def prepare(self, x: Any, scratch: Any) -> None:
        new, workspace = x.keys(x.prefix_len, x.kv_len), scratch.workspace(128 << 20)  # runs follow each other: one workspace will do
        self.x = x
        self.parts = [(self.plan(x, workspace, x.qo_indptr, True), x.k[new], x.v[new])]
        for rows, indptr, _ in x.chunks():
            self.parts.append((self.plan(x, workspace, indptr, False), x.k[rows], x.v[rows]))

    def run(self) -> Any:
        from flashinfer.cascade import merge_state

        states = [wrapper.run(self.x.q, k, v, return_lse=True) for wrapper, k, v in self.parts]
        o, lse = states[0]
        for part, part_lse in states[1:]:
            o, lse = merge_state(o, lse, part, part_lse)
        return o, lse


@implements("mla_prefill", library="flashinfer", name="flashinfer_fa2", platforms={"cuda"}, semantics=FA2, accepts=_explicit)
class RaggedFa2(_Ragged):
    backend = "fa2"


@implements("mla_prefill", library="flashinfer", name="flashinfer_fa3", platforms={"cuda"}, semantics=BASE2, accepts=_explicit)
class RaggedFa3(_Ragged):
    backend = "fa3"


@implements("mla_prefill", library="flashinfer", name="flashinfer_fa2_chunked", platforms={"cuda"}, semantics=FA2, accepts=_chunked)
class ChunkedFa2(_Chunked):
    backend = "fa2"


@implements("mla_prefill", library="flashinfer", name="flashinfer_fa3_chunked", platforms={"cuda"}, semantics=BASE2, accepts=_chunked)
class ChunkedFa3(_Chunked):
    backend = "fa3"


def _only_128(case: Case) -> str | None:
    if case.dtype == "fp32":
        return "FlashInfer's concat_mla_k takes 16- and 8-bit dtypes"
    return None if (case.heads, case.nope) == (128, 128) else "FlashInfer's concat_mla_k is built for 128 heads of 128 + 64"


@implements("concat_mla_k", library="flashinfer", platforms={"cuda"}, accepts=_only_128)
class ConcatMlaK:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.k = x, scratch.output("k", x.case.tokens, x.case.heads, x.case.nope + 64, dtype=x.k_nope.dtype)

    def run(self) -> Any:
        from flashinfer.concat_ops import concat_mla_k

        concat_mla_k(self.k, self.x.k_nope, self.x.k_rope)
