"""AITER's prefill over explicit K (192) and V (128): the variable-length flash attention in bf16, and the fp8 kernel with a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts import Case
from harness.providers.aiter import gates, kernels
from harness.providers.aiter.known import facts_here
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve
from harness.words import plural

ROCM = {"rocm"}
TILE = 256  # query rows of one tile of the fp8 kernel's plan


def _half(case: Case) -> str | None:
    return "AITER's flash attention takes fp16 and bf16" if case.dtype == "fp32" else None


class Varlen:
    """flash_attn_varlen_func. Asking for the log-sum-exp changes the kernel: on gfx950 the OPUS one gives none."""

    lse = False

    def prepare(self, x: Any, scratch: Any) -> None:
        self.attend, self.x = resolve("aiter.ops.mha:flash_attn_varlen_func"), x
        self.out = scratch.empty(x.q.shape[0], x.case.heads, x.v.shape[-1], dtype=x.q.dtype)

    def run(self) -> Any:
        x = self.x
        given = self.attend(
            x.q,
            x.k,
            x.v,
            x.qo_indptr,
            x.kv_indptr,
            max(x.q_len),
            max(1, *x.kv_len),
            softmax_scale=x.scale,
            causal=True,
            return_lse=self.lse,
            out=self.out,
        )
        return {"o": given[0], "lse": given[1].T.contiguous()} if self.lse else {"o": given}


def _dims(case: Case) -> tuple[int, int]:
    return case.nope + 64, case.v_dim


def _varlen(name: str, flag: str) -> Callable[[Any], Any]:
    named = kernels.varlen(_dims, lambda case: flag)
    return implements("mla_prefill", library="aiter", name=name, platforms=ROCM, accepts=_half, kernels=named)


@_varlen("aiter_varlen", "plain")
class VarlenPlain(Varlen):
    """The output alone."""


@_varlen("aiter_varlen_lse", "lse")
class VarlenLse(Varlen):
    """With the log-sum-exp."""

    lse = True


def _narrow(case: Case) -> str | None:
    if (case.nope, case.v_dim) != (128, 128):
        return "AITER's fp8 prefill is built for 192/128"
    return None if case.dtype == "bf16" else "AITER's fp8 prefill returns bf16"


def _too_few(case: Case) -> str | None:
    if (reason := _narrow(case)) or _next(case.heads) != case.heads:
        return reason
    taken = facts_here().reduces(case.heads, case.v_dim)
    no_remedy = "needs no remedy" if case.heads == 1 else "need no remedy"
    return f"{plural(case.heads, 'head')} {no_remedy if taken else 'cannot be repeated to a count that the kernel takes'}"


_next: Callable[[int], int] = gates.next_reduced(128)


class Fp8:
    """mla_prefill_ps_asm_fwd and mla_reduce_v1 as a server calls them: queries, keys and values rounded to e4m3fn, scales 1.

    A plan needs the sequence lengths on the host. Padding heads with zeros is no remedy here: the kernel is reported to fault on
    padded geometry, so the one that is offered repeats them.
    """

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, self.heads = x, self.widened(x.case.heads)
        self.q, self.k, self.v = (self.spread(t).to(torch.float8_e4m3fn) for t in (x.q, x.k, x.v))
        self.pages = torch.arange(x.k.shape[0], dtype=torch.int32, device=x.device)
        self.one = torch.ones(1, dtype=torch.float32, device=x.device)
        self.plan(x, scratch)
        tokens, rows = x.q.shape[0], self.partial_map.shape[0] * TILE
        self.o = scratch.empty(tokens, self.heads, 128, dtype=torch.bfloat16)
        self.partial = scratch.empty(rows, self.heads, 128, dtype=torch.float32)
        self.partial_lse = scratch.empty(rows, self.heads, dtype=torch.float32)
        self.attend, self.reduce = resolve("aiter.ops.attention:mla_prefill_ps_asm_fwd"), resolve("aiter.ops.attention:mla_reduce_v1")

    def widened(self, heads: int) -> int:
        """The heads that the kernel is called with."""
        return heads

    def spread(self, tensor: Any) -> Any:
        """A tensor [rows, heads, dim] with the kernel's heads: the first ones again after the last."""
        import torch

        return tensor[:, torch.arange(self.heads, device=tensor.device) % tensor.shape[1]].contiguous()

    def plan(self, x: Any, scratch: Any) -> None:
        """Fills the six buffers of get_ps_metadata_v1."""
        queries = max(x.q_len)
        sizes = resolve("aiter.ops.attention:get_ps_metadata_info_v1")(batch_size=x.case.batch, num_head_k=self.heads, max_qlen=queries, qlen_granularity=TILE)
        buffers = [scratch.empty(*(size if isinstance(size, tuple) else (size,)), dtype=dtype) for size, dtype in sizes]
        pointers, self.work_indptr, self.work_info, self.reduce_indptr, self.final_map, self.partial_map = buffers
        lengths = (x.kv_indptr[1:] - x.kv_indptr[:-1]).cpu()
        resolve("aiter.ops.attention:get_ps_metadata_v1")(
            x.qo_indptr.cpu(),
            x.kv_indptr.cpu(),
            lengths,
            1,
            self.heads,
            pointers,
            self.work_indptr,
            self.work_info,
            self.reduce_indptr,
            self.final_map,
            self.partial_map,
            qlen_granularity=TILE,
            kvlen_granularity=128,
            block_size=1,
            is_causal=True,
        )

    def run(self) -> Any:
        x = self.x
        self.attend(
            self.q,
            self.k,
            self.v,
            x.qo_indptr,
            x.kv_indptr,
            self.pages,
            self.work_indptr,
            self.work_info,
            max(x.q_len),
            x.scale,
            True,
            self.partial,
            self.partial_lse,
            self.o,
            self.one,
            self.one,
            self.one,
        )
        call(
            self.reduce,
            partial_output=self.partial,
            partial_lse=self.partial_lse,
            reduce_indptr=self.reduce_indptr,
            reduce_final_map=self.final_map,
            reduce_partial_map=self.partial_map,
            max_seqlen_q=TILE,
            final_output=self.o,
            optional={"num_kv_splits": 0},
        )
        return self.o[:, : x.case.heads].contiguous(), None


@implements(
    "mla_prefill",
    library="aiter",
    name="aiter_ps",
    platforms=ROCM,
    semantics={"arithmetic": "e4m3fn"},
    accepts=_narrow,
    gate=gates.by_arch(gates.explicit_prefill(gates.unchanged)),
    kernels=kernels.explicit_prefill,
)
class Fp8Plain(Fp8):
    """The fp8 kernel on the case's own heads."""


@implements(
    "mla_prefill",
    library="aiter",
    name="aiter_ps_repeat",
    platforms=ROCM,
    semantics={"arithmetic": "e4m3fn"},
    accepts=_too_few,
    gate=gates.by_arch(gates.explicit_prefill(_next)),
    kernels=kernels.explicit_prefill,
)
class Fp8Repeat(Fp8):
    """Heads repeated up to the next count that mla_reduce_v1 is built for."""

    def widened(self, heads: int) -> int:
        return _next(heads)
