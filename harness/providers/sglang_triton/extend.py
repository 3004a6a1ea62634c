"""SGLang's Triton prefill kernels: two-stage extend, the unified (deterministic) one, dense prefill and prefill without a cache."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.attention.batch import indptr
from harness.errors import Missing, Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve
from harness.providers.sglang_triton.attention import no_fp8_rounding

OPS = "sglang.kernels.ops.attention"
OLD = "sglang.srt.layers.attention.triton_ops"
EVERYWHERE = {"cuda", "rocm", "interpret"}
DOT = {"fp32_dot": "tf32"}


def places(module: str, name: str) -> tuple[str, str]:
    """Where SGLang keeps, and kept, one of its attention kernels."""
    return f"{OPS}.{module}:{name}", f"{OLD}.{module}:{name}"


def as_many_keys(case: Case) -> str | None:
    """Every query token brings its own key."""
    return "SGLang's extend takes a key for every query" if getattr(case, "lengths", "") == "cut" else None


def prefixes(x: Any) -> tuple[Any, Any]:
    """indptr and token slots of the cached prefixes."""
    return x.tokens(x.prefix_len)


@implements(
    "extend_attention",
    library="sglang",
    name="sglang_triton",
    platforms=EVERYWHERE,
    semantics={**DOT, "arithmetic": "cached-prefix", "lse_sinks": "sinks"},
    accepts=as_many_keys,
)
class Extend:
    """extend_attention_fwd: the prefix from the pool, then the new tokens from k_new and v_new."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        no_fp8_rounding(x)
        self.function = resolve(*places("extend_attention", "extend_attention_fwd"))
        starts, slots = prefixes(x)
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)
        self.args = (x.q, x.k_new, x.v_new, out, x.k_flat, x.v_flat, x.qo_indptr, starts, slots, None, x.causal, None, max(x.q_len), x.k_scale, x.v_scale)
        self.flags = {"sm_scale": x.scale, "logit_cap": x.soft_cap, "sliding_window_size": x.window, "sinks": x.sinks, "lse_extend": lse}
        self.page = x.case.page

    def run(self) -> Any:
        call(self.function, *self.args, **self.flags, optional={"page_size": self.page})


@implements(
    "extend_attention",
    library="sglang",
    name="sglang_triton_unified",
    platforms=EVERYWHERE,
    semantics={**DOT, "arithmetic": "cache"},
    accepts=as_many_keys,
)
class Unified:
    """extend_attention_fwd_unified: prefix and new tokens from the pool in one sweep. Gives no lse."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        no_fp8_rounding(x)
        self.function = resolve(*places("extend_attention", "extend_attention_fwd_unified"))
        starts, slots = x.tokens()
        prefix = torch.tensor(x.prefix_len, dtype=torch.int32, device=x.device)
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.args = (x.q, out, x.k_flat, x.v_flat, x.k_scale, x.v_scale, x.qo_indptr, starts, slots, prefix, max(x.q_len))
        self.flags = {"sm_scale": x.scale, "logit_cap": x.soft_cap, "is_causal": x.causal, "sliding_window_size": x.window, "sinks": x.sinks}
        self.page = x.case.page

    def run(self) -> Any:
        call(self.function, *self.args, **self.flags, optional={"page_size": self.page})


def _dense(case: Case) -> str | None:
    if case.window >= 0 or case.sinks == "sinks":
        return "SGLang's dense prefill has neither window nor sinks"
    if case.cache != "samekv":
        return "SGLang's dense prefill takes fp8 keys only with fp8 queries"
    return as_many_keys(case)


@implements("extend_attention", library="sglang", name="sglang_triton_dense", platforms=EVERYWHERE, semantics=DOT, accepts=_dense)
class Dense:
    """dense_prefill_attention_fwd: prefix and new tokens gathered to contiguous keys and values beforehand."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        try:
            self.function = resolve(*places("extend_attention", "dense_prefill_attention_fwd"))
        except Missing as error:  # newer than the oldest SGLang that is served here: not a gap
            raise Unsupported("this SGLang has no dense prefill kernel yet") from error
        starts, slots = x.tokens()
        k, v = x.k_flat[slots], x.v_flat[slots]
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)
        self.args = (x.q, k, v, out, x.qo_indptr, starts, max(x.q_len), x.scale, x.k_scale, x.v_scale, x.soft_cap, x.causal, lse)

    def run(self) -> Any:
        self.function(*self.args)


def _context(case: Case) -> str | None:
    if case.prefix or case.lengths == "cut" or case.cache != "samekv":
        return "SGLang's context attention has no cache: new tokens alone"
    if case.soft_cap or case.window >= 0 or case.sinks == "sinks" or case.scales == "scaled":
        return "SGLang's context attention has neither soft cap, window, sinks nor scales"
    return "SGLang's context attention has one head dimension" if case.v_dim not in (0, case.dim) else None


@implements("extend_attention", library="sglang", name="sglang_triton_context", platforms=EVERYWHERE, semantics=DOT, accepts=_context)
class Context:
    """context_attention_fwd: prefill without a cache. Gives no lse."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.function = resolve(*places("prefill_attention", "context_attention_fwd"))
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        lengths = torch.tensor(x.q_len, dtype=torch.int32, device=x.device)
        self.args = (x.q, x.k_new, x.v_new, out, indptr(x.q_len, x.device)[:-1], lengths, max(x.q_len), x.causal, x.scale)

    def run(self) -> Any:
        self.function(*self.args)
