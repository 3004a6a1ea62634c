"""AITER's attention on an MHA or GQA cache: paged decode (HIP and assembly), paged batch prefill, and variable-length flash attention."""

from __future__ import annotations

import inspect
from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.aiter import gates, kernels
from harness.providers.registry import implements
from harness.providers.resolve import resolve

ROCM = {"rocm"}
PARTITION = 256  # tokens of one partition of the HIP decode kernels
WINDOW = {"window": "two-sided"}


def _half(case: Case) -> str | None:
    return "AITER's attention takes fp16 and bf16 queries" if case.dtype == "fp32" else None


def _same(case: Case) -> str | None:
    if case.cache != "samekv" or case.scales == "scaled":
        return "this provider reads a cache of the queries' dtype, without scales"
    return _half(case)


def _decode(case: Case) -> str | None:
    if case.v_dim not in (0, case.dim):
        return "AITER's paged decode has one head dimension"
    if case.window >= 0 or case.sinks == "sinks":
        return "AITER's paged decode has neither window nor sinks"
    return _same(case)


def _uncapped(case: Case) -> str | None:
    return _decode(case) or ("this kernel has no soft cap" if case.soft_cap else None)


@implements("decode_attention", library="aiter", name="aiter_ragged", platforms=ROCM, accepts=_decode, kernels=kernels.always("paged_attention_ragged"))
class Ragged:
    """paged_attention_ragged on the pool as it lies ([pages, page, kv_heads, dim], "NHD"), as SGLang serves decode."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        case = x.case
        self.attend, self.x = resolve("aiter.ops.attention:paged_attention_ragged"), x
        self.out = scratch.output("o", like=x.q)
        self.partitions = -(-max(1, int(x.kv_len.max())) // PARTITION)
        partial = case.batch * case.heads * self.partitions
        self.workspace = scratch.workspace(partial * case.dim * 4 + 2 * partial * 4)
        self.one = torch.ones(1, dtype=torch.float32, device=x.device)

    def run(self) -> None:
        x = self.x
        self.attend(
            self.out,
            self.workspace,
            x.q,
            x.k_pool,
            x.v_pool,
            x.scale,
            x.kv_indptr,
            x.kv_indices,
            x.last_page_len,
            x.case.page,
            self.partitions,
            None,
            "auto",
            "NHD",
            float(x.soft_cap),
            self.one,
            self.one,
            None,
            PARTITION,
        )


def shuffled(pool: Any) -> tuple[Any, Any]:
    """A pool [pages, page, kv_heads, dim] as keys [pages, kv_heads, dim / x, page, x] and as values [pages, kv_heads, page / x, dim, x],
    x elements to 16 bytes."""
    pages, page, heads, dim = pool.shape
    x = 16 // pool.element_size()
    keys = pool.view(pages, page, heads, dim // x, x).permute(0, 2, 3, 1, 4).contiguous()
    values = pool.view(pages, page // x, x, heads, dim).permute(0, 3, 1, 4, 2).contiguous()
    return keys, values


def _paged_hip(case: Case) -> str | None:
    return _uncapped(case) or (None if case.page in (16, 32) else "paged_attention_rocm is built for pages of 16 and 32 tokens")


@implements("decode_attention", library="aiter", name="aiter_hip", platforms=ROCM, accepts=_paged_hip, kernels=kernels.always("paged_attention_rocm"))
class Hip:
    """paged_attention_rocm on vLLM's layout: keys [pages, kv_heads, dim / x, page, x], values [pages, kv_heads, dim, page]."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        case = x.case
        self.attend, self.x = resolve("aiter.ops.attention:paged_attention_rocm"), x
        self.out = scratch.output("o", like=x.q)
        self.keys = shuffled(x.k_pool)[0]
        self.values = x.v_pool.permute(0, 2, 3, 1).contiguous()
        self.longest = max(1, int(x.kv_len.max()))
        partitions = -(-self.longest // PARTITION)
        self.sums, self.maxima = (scratch.empty(case.batch, case.heads, partitions, dtype=torch.float32) for _ in range(2))
        self.partial = scratch.empty(case.batch, case.heads, partitions, case.dim, dtype=x.q.dtype)
        self.one = torch.ones(1, dtype=torch.float32, device=x.device)

    def run(self) -> None:
        x = self.x
        self.attend(
            out=self.out,
            exp_sums=self.sums,
            max_logits=self.maxima,
            tmp_out=self.partial,
            query=x.q,
            key_cache=self.keys,
            value_cache=self.values,
            num_kv_heads=x.case.kv_heads,
            scale=x.scale,
            block_tables=x.block_table,
            context_lens=x.kv_len,
            block_size=x.case.page,
            max_context_len=self.longest,
            alibi_slopes=None,
            kv_cache_dtype="auto",
            k_scale=self.one,
            v_scale=self.one,
            partition_size=PARTITION,
        )


def _assembly(case: Case) -> str | None:
    if (case.page, case.dim) != (16, 128):
        return "pa_fwd_asm takes pages of 16 tokens and head dimension 128"
    return _uncapped(case)


@implements(
    "decode_attention", library="aiter", name="aiter_asm", platforms=ROCM, accepts=_assembly, gate=gates.by_arch(gates.paged_asm), kernels=kernels.paged_asm
)
class Assembly:
    """pa_fwd_asm on shuffled keys and values; its scale is 1/sqrt(128), which is the contract's."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.attend, self.x = resolve("aiter.ops.attention:pa_fwd_asm"), x
        self.keys, _ = shuffled(x.k_pool)
        _, self.values = shuffled(x.v_pool)
        self.table = x.block_table
        self.out = scratch.output("o", like=x.q)

    def run(self) -> None:
        x = self.x
        self.attend(x.q, self.keys, self.values, self.table, x.kv_len, self.table.stride(0), out_=self.out)


def _varlen(case: Case) -> str | None:
    if getattr(case, "shape", "chain") != "chain":
        return "AITER's flash attention takes no tree mask"
    return _same(case)


def _window(x: Any) -> tuple[int, int]:
    """(left, right): keys before and after a query's own position that it sees."""
    return (-1, -1) if x.window < 0 else (x.window, 0 if x.causal else x.window)


def _flag(case: Case) -> str:
    """The word of the route table for the case's flag; the tables hold one at a time."""
    if case.point.get("sinks") == "sinks":
        return "sinks"
    if case.point.get("soft_cap"):
        return "soft_cap"
    window = case.point.get("window", -1)
    return "lse" if window < 0 else "own_key_window" if window == 0 else "window"


def _dims(case: Case) -> tuple[int, int]:
    return case.dim, case.v_dim or case.dim


def asked(function: Any, **flags: Any) -> dict[str, Any]:
    """The flags that are set. Raises Unsupported where the installed function has no such argument: left out, it would be ignored."""
    known = inspect.signature(function).parameters
    for name, value in flags.items():
        if value is not None and name not in known:
            raise Unsupported(f"the installed {function.__name__} has no {name}")
    return {name: value for name, value in flags.items() if value is not None}


class Varlen:
    """flash_attn_varlen_func on keys and values gathered beforehand."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.attend, self.x = resolve("aiter.ops.mha:flash_attn_varlen_func"), x
        self.starts, slots = x.tokens()
        self.k, self.v = x.k_flat[slots], x.v_flat[slots]
        self.flags = asked(self.attend, sink_ptr=x.sinks)
        self.longest = max(1, int(x.kv_len.max()))

    def run(self) -> Any:
        x = self.x
        o, lse = self.attend(
            x.q,
            self.k,
            self.v,
            x.qo_indptr,
            self.starts,
            max(x.q_len),
            self.longest,
            softmax_scale=x.scale,
            logits_soft_cap=float(x.soft_cap),
            causal=x.causal,
            window_size=(*_window(x), 0),
            return_lse=True,
            **self.flags,
        )
        return o, lse.T.contiguous()


class Batch:
    """mha_batch_prefill_func on the pool as it lies, [pages, page, kv_heads, dim]."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.attend, self.x = resolve("aiter.ops.mha:mha_batch_prefill_func"), x
        self.flags = asked(self.attend, sink_ptr=x.sinks, kv_last_page_lens=x.last_page_len if x.case.page > 1 else None)
        self.longest = max(1, int(x.kv_len.max()))

    def run(self) -> Any:
        x = self.x
        o, lse = self.attend(
            x.q,
            x.k_pool,
            x.v_pool,
            x.qo_indptr,
            x.kv_indptr,
            x.kv_indices,
            max(x.q_len),
            self.longest,
            softmax_scale=x.scale,
            logits_soft_cap=float(x.soft_cap),
            causal=x.causal,
            window_size=_window(x),
            return_lse=True,
            **self.flags,
        )
        return o, lse.T.contiguous()


for _op, _extra in (("extend_attention", WINDOW), ("verify_attention", {})):
    implements(_op, library="aiter", name="aiter_varlen", platforms=ROCM, semantics=_extra, accepts=_varlen, kernels=kernels.varlen(_dims, _flag))(Varlen)
    implements(_op, library="aiter", name="aiter_batch", platforms=ROCM, semantics=_extra, accepts=_varlen, kernels=kernels.always("mha_batch_prefill_func"))(
        Batch
    )
