"""flashinfer's paged wrappers on an MHA or GQA cache, each kernel family forced. LSE in base 2; soft caps by tanh.approx."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements

WORKSPACE = 256 << 20
SEMANTICS = {"lse": "base-2", "tanh": "approximate"}
FA2 = {**SEMANTICS, "mass": "operand"}  # FA2 sums weights on the tensor cores, already rounded
DIMS = (64, 128, 256)


def _half(case: Case) -> str | None:
    return "FlashInfer's attention takes fp16 and bf16 queries" if case.dtype == "fp32" else None


def _dims(case: Case) -> str | None:
    if (case.dim, case.v_dim or case.dim) not in {*((d, d) for d in DIMS), (192, 128)}:
        return "FlashInfer's attention takes head dimensions 64, 128, 256 and 192/128"
    return None


def _decode(case: Case) -> str | None:
    if case.v_dim not in (0, case.dim):
        return "FlashInfer's decode wrapper has one head dimension"
    return _half(case) or _dims(case)


def _fa2(case: Case) -> str | None:
    return _half(case) or _dims(case)


def _fa3(case: Case) -> str | None:
    if case.cache != "samekv":
        return "FlashInfer's FA3 takes an fp8 cache only with fp8 queries"
    if getattr(case, "shape", "chain") != "chain":
        return "FlashInfer's FA3 takes no custom mask"
    return _fa2(case)


def _sinks(case: Case) -> str | None:
    if case.sinks != "sinks":
        return "FlashInfer's sink wrapper is for sinks"
    if case.soft_cap or case.cache != "samekv" or case.scales == "scaled":
        return "FlashInfer's sink wrapper has neither soft cap, fp8 cache nor scales"
    return _fa3(case)


def scales(x: Any) -> dict[str, float]:
    """k_scale and v_scale for run(), where they are not 1."""
    return {"k_scale": x.k_scale, "v_scale": x.v_scale} if x.case.scales == "scaled" else {}


class Decode:
    """BatchDecodeWithPagedKVCacheWrapper. Sinks go to run(), which documents them."""

    tensor_cores = False
    backend = "auto"

    def prepare(self, x: Any, scratch: Any) -> None:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper

        case = x.case
        self.x, self.out = x, scratch.output("o", like=x.q)
        self.wrapper = BatchDecodeWithPagedKVCacheWrapper(scratch.workspace(WORKSPACE), "NHD", use_tensor_cores=self.tensor_cores, backend=self.backend)
        self.wrapper.plan(
            x.kv_indptr,
            x.kv_indices,
            x.last_page_len,
            case.heads,
            case.kv_heads,
            case.dim,
            case.page,
            window_left=x.window,
            logits_soft_cap=x.soft_cap,
            q_data_type=x.q.dtype,
            kv_data_type=x.k_pool.dtype,
            sm_scale=x.scale,
        )
        self.flags = scales(x) | ({"sinks": x.sinks} if x.sinks is not None else {})

    def run(self) -> Any:
        return self.wrapper.run(self.x.q, (self.x.k_pool, self.x.v_pool), out=self.out, return_lse=True, **self.flags)


@implements("decode_attention", library="flashinfer", name="flashinfer", platforms={"cuda"}, semantics=SEMANTICS, accepts=_decode)
class DecodeCores(Decode):
    """The CUDA-core decode kernel."""


@implements("decode_attention", library="flashinfer", name="flashinfer_tensor_cores", platforms={"cuda"}, semantics=FA2, accepts=_decode)
class DecodeTensor(Decode):
    """The FA2 prefill kernel under the decode wrapper."""

    tensor_cores = True
    backend = "fa2"


class Prefill:
    """BatchPrefillWithPagedKVCacheWrapper with one back end. Sinks go to run(), which documents them; a tree is a custom mask."""

    backend = "fa2"

    def make(self, scratch: Any, x: Any) -> Any:
        from flashinfer import BatchPrefillWithPagedKVCacheWrapper

        return BatchPrefillWithPagedKVCacheWrapper(scratch.workspace(WORKSPACE), "NHD", backend=self.backend)

    def prepare(self, x: Any, scratch: Any) -> None:
        from harness.providers.sglang_triton.verify import masks

        case = x.case
        self.x = x
        self.out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.wrapper = self.make(scratch, x)
        tree = getattr(case, "shape", "chain") != "chain"
        self.wrapper.plan(
            x.qo_indptr,
            x.kv_indptr,
            x.kv_indices,
            x.last_page_len,
            case.heads,
            case.kv_heads,
            case.dim,
            case.page,
            head_dim_vo=x.v_pool.shape[-1],
            custom_mask=masks(x)[0] if tree else None,
            causal=x.causal and not tree,
            sm_scale=x.scale,
            window_left=x.window,
            logits_soft_cap=x.soft_cap,
            q_data_type=x.q.dtype,
            kv_data_type=x.k_pool.dtype,
        )
        self.flags = scales(x) | ({"sinks": x.sinks} if x.sinks is not None else {})

    def run(self) -> Any:
        return self.wrapper.run(self.x.q, (self.x.k_pool, self.x.v_pool), out=self.out, return_lse=True, **self.flags)


class Sink(Prefill):
    """BatchAttentionWithAttentionSinkWrapper: a kernel built for sinks."""

    def make(self, scratch: Any, x: Any) -> Any:
        from flashinfer.attention import BatchAttentionWithAttentionSinkWrapper

        return BatchAttentionWithAttentionSinkWrapper(
            scratch.workspace(WORKSPACE),
            "NHD",
            backend=self.backend,
            q_data_type=x.q.dtype,
            kv_data_type=x.k_pool.dtype,
            head_dim_qk=x.case.dim,
            head_dim_vo=x.v_pool.shape[-1],
            window_left=x.window,
        )

    def run(self) -> Any:
        x = self.x
        return self.wrapper.run(x.q, (x.k_pool, x.v_pool), x.sinks, x.scale, out=self.out, return_lse=True)


for _op, _extra in (("extend_attention", {"window": "left"}), ("verify_attention", {})):

    @implements(_op, library="flashinfer", name="flashinfer_fa2", platforms={"cuda"}, semantics={**FA2, **_extra}, accepts=_fa2)
    class PrefillFa2(Prefill):
        """The FA2 kernel."""

    @implements(_op, library="flashinfer", name="flashinfer_fa3", platforms={"cuda"}, semantics={**SEMANTICS, **_extra}, accepts=_fa3)
    class PrefillFa3(Prefill):
        """The FA3 kernel (Hopper)."""

        backend = "fa3"

    @implements(_op, library="flashinfer", name="flashinfer_sink_fa2", platforms={"cuda"}, semantics={**FA2, **_extra, "lse_sinks": "sinks"}, accepts=_sinks)
    class SinkFa2(Sink):
        """The FA2 kernel built for sinks."""

    @implements(
        _op, library="flashinfer", name="flashinfer_sink_fa3", platforms={"cuda"}, semantics={**SEMANTICS, **_extra, "lse_sinks": "sinks"}, accepts=_sinks
    )
    class SinkFa3(Sink):
        """The FA3 kernel built for sinks."""

        backend = "fa3"


def _ragged(case: Case) -> str | None:
    if case.cache != "samekv" or case.sinks == "sinks":
        return "FlashInfer's ragged wrapper is tried without fp8 keys and sinks"
    return _fa3(case)


class Ragged:
    """BatchPrefillWithRaggedKVCacheWrapper: keys and values gathered to contiguous tensors beforehand."""

    backend = "fa2"

    def prepare(self, x: Any, scratch: Any) -> None:
        from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

        case = x.case
        starts, slots = x.tokens()
        self.x, self.k, self.v = x, x.k_flat[slots], x.v_flat[slots]
        self.out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.wrapper = BatchPrefillWithRaggedKVCacheWrapper(scratch.workspace(WORKSPACE), "NHD", backend=self.backend)
        self.wrapper.plan(
            x.qo_indptr,
            starts,
            case.heads,
            case.kv_heads,
            case.dim,
            head_dim_vo=x.v_pool.shape[-1],
            causal=x.causal,
            sm_scale=x.scale,
            window_left=x.window,
            logits_soft_cap=x.soft_cap,
            q_data_type=x.q.dtype,
            kv_data_type=x.q.dtype,
        )

    def run(self) -> Any:
        return self.wrapper.run(self.x.q, self.k, self.v, out=self.out, return_lse=True, **scales(self.x))


@implements("extend_attention", library="flashinfer", name="flashinfer_ragged_fa2", platforms={"cuda"}, semantics={**FA2, "window": "left"}, accepts=_ragged)
class RaggedFa2(Ragged):
    """The FA2 kernel on contiguous keys."""


@implements(
    "extend_attention", library="flashinfer", name="flashinfer_ragged_fa3", platforms={"cuda"}, semantics={**SEMANTICS, "window": "left"}, accepts=_ragged
)
class RaggedFa3(Ragged):
    """The FA3 kernel on contiguous keys."""

    backend = "fa3"
