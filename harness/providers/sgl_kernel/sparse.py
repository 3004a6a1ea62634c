"""sgl_kernel on sparse attention: FlashMLA over selected tokens, FlashAttention-3 with a page table of selected tokens, fast_topk."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements
from harness.providers.resolve import resolve

CUDA = {"cuda"}
BASE2 = {"lse": "base-2", "empty": "plus-inf"}


def padded_heads(q: Any, multiple: int) -> Any:
    """q with zero heads up to a multiple, as SGLang's back end pads for FlashMLA."""
    import torch

    return torch.nn.functional.pad(q, (0, 0, 0, -q.shape[-2] % multiple))


def _flash_mla(case: Case) -> str | None:
    if case.dtype != "bf16" or case.cache != "samekv":
        return "FlashMLA's sparse prefill takes bf16 queries and cache"
    return None if case.k % 128 == 0 else "FlashMLA's sparse prefill takes a multiple of 128 indices"


@implements("sparse_mla_decode", library="sgl_kernel", name="sgl_kernel_flashmla_sparse", platforms=CUDA, semantics=BASE2, accepts=_flash_mla)
@implements("sparse_mla_prefill", library="sgl_kernel", name="sgl_kernel_flashmla_sparse", platforms=CUDA, semantics=BASE2, accepts=_flash_mla)
class FlashMlaSparse:
    """Heads are padded to 64 as SGLang does on Hopper."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.forward = resolve("sgl_kernel.flash_mla:flash_mla_sparse_fwd")
        self.x, self.q = x, padded_heads(x.q, 64)

    def run(self) -> Any:
        x, heads = self.x, self.x.case.heads
        o, _, lse = self.forward(q=self.q, kv=x.kv, indices=x.indices, sm_scale=x.scale, d_v=512)
        return o[:, :heads], lse[:, :heads]


def _packed(case: Case) -> str | None:
    if case.dtype != "bf16" or case.cache != "packed":
        return "FlashMLA's sparse decode takes bf16 queries and its packed fp8 cache"
    return None if case.k % 64 == 0 else "FlashMLA's sparse decode takes a multiple of 64 indices"


@implements("sparse_mla_decode", library="sgl_kernel", name="sgl_kernel_flashmla", platforms=CUDA, semantics={"empty": "plus-inf"}, accepts=_packed)
class FlashMlaDecode:
    """Heads are padded to 64, or 128, as SGLang does."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.attend = resolve("sgl_kernel.flash_mla:flash_mla_with_kvcache")
        self.x, self.q = x, padded_heads(x.q, 64)[:, None]
        self.cache = x.packed.view(torch.float8_e4m3fn)
        heads, length = self.q.shape[-2], torch.full_like(x.topk_length, x.kv.shape[0])
        metadata = resolve("sgl_kernel.flash_mla:get_mla_metadata")
        self.plan = metadata(length, heads, 1, num_heads_q=heads, is_fp8_kvcache=True, topk=x.case.k)
        self.length, self.table = length, torch.empty(x.case.tokens, 0, dtype=torch.int32, device=x.device)

    def run(self) -> Any:
        x, heads = self.x, self.x.case.heads
        o, lse = self.attend(
            q=self.q,
            k_cache=self.cache,
            block_table=self.table,
            cache_seqlens=self.length,
            head_dim_v=512,
            tile_scheduler_metadata=self.plan[0],
            num_splits=self.plan[1],
            softmax_scale=x.scale,
            indices=x.indices,
            is_fp8_kvcache=True,
        )
        return o[:, 0, :heads], lse[:, :heads, 0]


def _fa3(case: Case) -> str | None:
    if case.dtype == "fp32" or case.cache != "samekv":
        return "FlashAttention-3 takes fp16 and bf16 queries and a cache like them"
    return "a page table has no holes" if case.selection == "holes" else None


@implements("sparse_mla_decode", library="sgl_kernel", name="sgl_kernel_fa3", platforms=CUDA, accepts=_fa3)
@implements("sparse_mla_prefill", library="sgl_kernel", name="sgl_kernel_fa3", platforms=CUDA, accepts=_fa3)
class Fa3Selected:
    """The selected slots as each query's page table, pages of one token (SGLang's --dsa-decode-backend fa3)."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.attend = resolve("sgl_kernel.flash_attn:flash_attn_with_kvcache")
        self.x, self.cache = x, x.kv[:, :, None]
        self.indptr = torch.arange(x.case.tokens + 1, dtype=torch.int32, device=x.device)
        self.table = x.indices[:, 0].contiguous()

    def run(self) -> Any:
        x = self.x
        o, lse, *_ = self.attend(
            q=x.q_pe,
            k_cache=self.cache[..., 512:],
            v_cache=self.cache[..., :512],
            qv=x.q_nope,
            page_table=self.table,
            cache_seqlens=x.topk_length,
            cu_seqlens_q=self.indptr,
            max_seqlen_q=1,
            softmax_scale=x.scale,
            causal=True,
            return_softmax_lse=True,
        )
        return o, lse.T


def _two_thousand(case: Case) -> str | None:
    return None if case.k == 2048 else "fast_topk_v2 is built for 2,048 tokens"


@implements("indexer_topk", library="sgl_kernel", platforms={"cuda", "rocm"}, accepts=_two_thousand, promises=())  # its atomics give the picks in any order
def indexer_topk(x: Any) -> Any:
    return resolve("sgl_kernel:fast_topk_v2")(x.scores, x.lengths, x.k, row_starts=x.row_starts)
