"""FlashAttention-3 as sgl_kernel ships it (flash_ops). LSE natural, [heads, tokens]; soft caps by tanh.approx."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.refilling import overwrite
from harness.providers.registry import implements
from harness.providers.resolve import resolve

SEMANTICS = {"tanh": "approximate", "lse_sinks": "sinks"}


def _accepts(case: Case) -> str | None:
    if case.dtype == "fp32":
        return "FlashAttention-3 takes fp16 and bf16"
    if case.cache != "samekv" or case.scales == "scaled":
        return "FlashAttention-3 takes an fp8 cache, and scales, only with fp8 queries"
    if case.v_dim not in (0, case.dim) and not (128 < case.dim <= 192 and 96 < case.v_dim <= 128):
        return "FlashAttention-3 takes other value dimensions only for 129 to 192 with 97 to 128"
    return "FlashAttention-3 takes no custom mask" if getattr(case, "shape", "chain") != "chain" else None


def _entry(name: str) -> Any:
    """An entry point of sgl_kernel.flash_attn. Raises Unsupported on a GPU that FA3 is not built for."""
    supported = resolve("sgl_kernel.flash_attn:is_fa3_supported")
    function = resolve(f"sgl_kernel.flash_attn:{name}")
    if not supported():
        raise Unsupported("sgl_kernel's FlashAttention-3 is built for compute capability 8 and 9")
    return function


def _flags(x: Any) -> dict[str, Any]:
    import torch

    window = (-1, -1) if x.window < 0 else (x.window, 0 if x.causal else x.window)
    sinks = None if x.sinks is None else x.sinks.to(torch.bfloat16)
    return {"softmax_scale": x.scale, "causal": x.causal, "window_size": window, "softcap": x.soft_cap, "sinks": sinks, "return_softmax_lse": True}


class Paged:
    """flash_attn_with_kvcache on the paged pool, queries packed. Returns its own buffers."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.function = _entry("flash_attn_with_kvcache")
        self.args = (x.q, x.k_pool, x.v_pool)
        table = {"page_table": x.block_table, "cache_seqlens": x.kv_len, "cu_seqlens_q": x.qo_indptr, "max_seqlen_q": max(x.q_len)}
        self.flags = {**table, **_flags(x)}

    def refill(self, x: Any) -> None:
        overwrite((self.flags["page_table"], self.flags["cache_seqlens"]), (x.block_table, x.kv_len))

    def run(self) -> Any:
        o, lse, *_ = self.function(*self.args, **self.flags)
        return {"o": o, "lse": lse.transpose(0, 1)}


for _op in ("decode_attention", "extend_attention", "verify_attention"):

    @implements(_op, library="sgl_kernel", name="sgl_kernel_fa3", platforms={"cuda"}, semantics=SEMANTICS, accepts=_accepts)
    class PagedFa3(Paged):
        """FlashAttention-3 on the paged pool."""


@implements("extend_attention", library="sgl_kernel", name="sgl_kernel_fa3_varlen", platforms={"cuda"}, semantics=SEMANTICS, accepts=_accepts)
class Varlen:
    """flash_attn_varlen_func: keys and values gathered to contiguous tensors beforehand."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.function = _entry("flash_attn_varlen_func")
        starts, slots = x.tokens()
        longest = max(1, max(len(s) for s in x.slots))
        self.args = (x.q, x.k_flat[slots], x.v_flat[slots], x.qo_indptr, starts, max(x.q_len), longest)
        self.flags = _flags(x)

    def run(self) -> Any:
        o, lse, *_ = self.function(*self.args, **self.flags)
        return {"o": o, "lse": lse.transpose(0, 1)}
