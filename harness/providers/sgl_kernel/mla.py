"""sgl_kernel on MLA: FlashMLA, FlashAttention-3 (the latent values as a second query operand, qv), and the K and q assembly."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.refilling import overwrite
from harness.providers.registry import implements
from harness.providers.resolve import resolve

CUDA = {"cuda"}


def _flash_mla(case: Case) -> str | None:
    if case.page != 64:
        return "FlashMLA reads pages of 64 tokens"
    if case.cache == "allfp8":
        return None if case.dtype == "bf16" else "FlashMLA's fp8 kernel returns bf16"
    if case.cache != "samekv":
        return "FlashMLA reads a dense cache of the queries' dtype"
    return None if case.dtype in ("fp16", "bf16") else "FlashMLA takes fp16 and bf16"


@implements(
    "mla_decode", library="sgl_kernel", name="sgl_kernel_flashmla", platforms=CUDA, semantics={"empty": "plus-inf", "arithmetic": "cache"}, accepts=_flash_mla
)
class FlashMla:
    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.attend = resolve("sgl_kernel.flash_mla:flash_mla_with_kvcache")
        self.x, self.table = x, x.block_table
        fp8 = x.case.cache == "allfp8"
        self.plan = self.planned(x)
        scales = (torch.full((1,), value, dtype=torch.float32, device=x.device) for value in (x.q_scale, x.kv_scale))
        self.scales = dict(zip(("descale_q", "descale_k"), scales, strict=True)) if fp8 else {}

    def planned(self, x: Any) -> Any:
        """The shares of the multiprocessors and the splits of the requests."""
        metadata = resolve("sgl_kernel.flash_mla:get_mla_metadata")
        return metadata(x.kv_len, x.case.queries * x.case.heads, 1, is_fp8_kvcache=x.case.cache == "allfp8")

    def refill(self, x: Any) -> None:
        """The plan anew, as SGLang's FlashMLA back end makes it before each replay."""
        overwrite((self.table, self.x.kv_len, *self.plan), (x.block_table, x.kv_len, *self.planned(x)))

    def run(self) -> Any:
        x, case = self.x, self.x.case
        o, lse = self.attend(
            q=x.q.view(case.batch, case.queries, case.heads, 576),
            k_cache=x.kv[:, :, None],
            block_table=self.table,
            cache_seqlens=x.kv_len,
            head_dim_v=512,
            tile_scheduler_metadata=self.plan[0],
            num_splits=self.plan[1],
            softmax_scale=x.scale,
            causal=True,
            **self.scales,
        )
        return o.reshape(-1, case.heads, 512), lse.transpose(1, 2).reshape(-1, case.heads)


def _fa3(case: Case) -> str | None:
    if case.dtype == "fp32":
        return "FlashAttention-3 takes fp16 and bf16"
    return None if case.point.get("cache", "samekv") == "samekv" else "SGLang gives FlashAttention-3 a latent cache of the queries' dtype"


@implements("mla_prefill_absorbed", library="sgl_kernel", name="sgl_kernel_fa3", platforms=CUDA, accepts=_fa3)
@implements("mla_decode", library="sgl_kernel", name="sgl_kernel_fa3", platforms=CUDA, accepts=_fa3)
class Fa3Latent:
    """What SGLang serves MLA with on Hopper by default."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.attend = resolve("sgl_kernel.flash_attn:flash_attn_with_kvcache")
        self.x, self.table = x, x.block_table

    def refill(self, x: Any) -> None:
        overwrite((self.table, self.x.kv_len), (x.block_table, x.kv_len))

    def run(self) -> Any:
        x = self.x
        o, lse, *_ = self.attend(
            q=x.q_pe,
            k_cache=x.kpe[:, :, None],
            v_cache=x.ckv[:, :, None],
            qv=x.q_nope,
            page_table=self.table,
            cache_seqlens=x.kv_len,
            cu_seqlens_q=x.qo_indptr,
            max_seqlen_q=max(x.q_len),
            softmax_scale=x.scale,
            causal=True,
            return_softmax_lse=True,
        )
        return o, lse.T


@implements("mla_prefill", library="sgl_kernel", name="sgl_kernel_fa3", platforms=CUDA, accepts=_fa3)
class Fa3Explicit:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.attend = resolve("sgl_kernel.flash_attn:flash_attn_varlen_func")
        self.x = x

    def state(self, k: Any, v: Any, indptr: Any, longest: int, causal: bool) -> Any:
        x = self.x
        longest = max(1, longest)
        lengths = {"cu_seqlens_q": x.qo_indptr, "cu_seqlens_k": indptr, "max_seqlen_q": max(x.q_len), "max_seqlen_k": longest}
        o, lse, *_ = self.attend(x.q, k, v, softmax_scale=x.scale, causal=causal, return_softmax_lse=True, **lengths)
        return o, lse.T

    def run(self) -> Any:
        return self.state(self.x.k, self.x.v, self.x.kv_indptr, max(self.x.kv_len), True)


def _chunked(case: Case) -> str | None:
    return _fa3(case) or (None if case.prefix else "without a prefix there is nothing to take in chunks")


@implements("mla_prefill", library="sgl_kernel", name="sgl_kernel_fa3_chunked", platforms=CUDA, accepts=_chunked)
class Fa3Chunked(Fa3Explicit):
    """As SGLang serves a cached prefix on Hopper: the new tokens causally, then each chunk of the prefix, merged by merge_state_v2."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.merge = resolve("sgl_kernel:merge_state_v2")
        new = x.keys(x.prefix_len, x.kv_len)
        self.parts = [(x.k[new], x.v[new], x.qo_indptr, max(x.q_len), True)]
        self.parts += [(x.k[rows], x.v[rows], indptr, longest, False) for rows, indptr, longest in x.chunks()]

    def run(self) -> Any:
        o, lse = self.state(*self.parts[0])
        lse = lse.contiguous()
        for part in self.parts[1:]:
            part_o, part_lse = self.state(*part)
            o, lse = self.merge(part_o, part_lse.contiguous(), o, lse)
        return o, lse


def _only_128(case: Case) -> str | None:
    return None if (case.heads, case.nope, case.dtype) == (128, 128, "bf16") else "concat_mla_k is built for 128 heads of 128 + 64 in bf16"


def _only_bf16(case: Case) -> str | None:
    return None if case.dtype == "bf16" else "concat_mla_absorb_q is built for bf16"


@implements("concat_mla_k", library="sgl_kernel", platforms=CUDA, accepts=_only_128)
class ConcatMlaK:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.concat = resolve("sgl_kernel:concat_mla_k")
        self.x, self.k = x, scratch.output("k", x.case.tokens, x.case.heads, x.case.nope + 64, dtype=x.k_nope.dtype)

    def run(self) -> Any:
        self.concat(self.k, self.x.k_nope, self.x.k_rope)


@implements("concat_mla_absorb_q", library="sgl_kernel", platforms=CUDA, accepts=_only_bf16)
def concat_mla_absorb_q(x: Any) -> Any:
    return resolve("sgl_kernel:concat_mla_absorb_q")(x.q_nope, x.q_rope)
