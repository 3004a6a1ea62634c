"""Attention by torch.nn.functional.scaled_dot_product_attention, one provider a back end, each forced: no silent choice.

Keys and values are gathered from the pool beforehand. Requests of one length run as one batch, others in a loop. SDPA returns
no lse and has neither soft cap, sinks nor scales.
"""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements
from harness.providers.torch_eager.attention import band, branches

DEVICES = {"cuda", "rocm", "cpu"}


def causal_lower_right(queries: int, keys: int) -> Any:
    """torch.nn.attention.bias.causal_lower_right, made so that it also works under a TorchDispatchMode: there torch refuses to
    construct a tensor subclass anew (the mode has already seen the plain tensor beneath it), but not to view one as it."""
    import torch
    from torch.nn.attention.bias import CausalBias, CausalVariant

    bias = torch.empty(0).as_subclass(CausalBias)
    CausalBias.__init__(bias, CausalVariant.LOWER_RIGHT, queries, keys)
    return bias


def _flags(case: Case) -> str | None:
    if case.soft_cap or case.sinks == "sinks" or case.scales == "scaled":
        return "SDPA has neither soft cap, sinks nor scales"
    return "SDPA takes keys in the queries' dtype" if case.cache != "samekv" else None


class Sdpa:
    """`backend` of torch.nn.attention; `masked`: it takes a mask; `grouped`: it takes fewer kv heads than query heads."""

    backend = "MATH"
    masked = True
    grouped = True

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch
        from torch.nn.attention import SDPBackend

        self.x, self.kind = x, getattr(SDPBackend, self.backend)
        self.out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.group = x.case.heads // x.case.kv_heads
        lengths = [len(slots) for slots in x.slots]
        uniform = len(set(lengths)) == 1 and len(set(x.q_len)) == 1 and getattr(x.case, "shape", "chain") == "chain"
        stacks = [list(range(x.case.batch))] if uniform else [[i] for i in range(x.case.batch) if x.q_len[i]]
        self.calls = [self._call(stack, torch.stack([x.slots[i] for i in stack])) for stack in stacks]

    def _call(self, stack: list[int], slots: Any) -> tuple[slice, Any, Any, Any, Any]:
        """(rows of the output, q [n, heads, nq, d], k, v [n, kv_heads, nk, d], mask)."""
        x = self.x
        rows = slice(int(x.qo_indptr[stack[0]]), int(x.qo_indptr[stack[-1] + 1]))
        q = x.q[rows].view(len(stack), -1, *x.q.shape[1:]).transpose(1, 2)
        k, v = (flat[slots].transpose(1, 2) for flat in (x.k_flat, x.v_flat))
        if self.group > 1 and not self.grouped:
            k, v = (t.repeat_interleave(self.group, 1) for t in (k, v))
        return rows, q, k, v, self._mask(stack[0], q.shape[2], k.shape[2])

    def _mask(self, request: int, queries: int, keys: int) -> Any:
        if hasattr(self.x, "tree"):
            return branches(self.x, request) if self.x.case.shape != "chain" or self.masked else causal_lower_right(queries, keys)
        if self.x.case.op == "decode_attention" and self.x.window < 0:
            return None
        mask = band(self.x, request)
        return mask if mask is None or self.masked else causal_lower_right(queries, keys)

    def run(self) -> None:
        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        gqa = {"enable_gqa": True} if self.group > 1 and self.grouped else {}
        with sdpa_kernel(self.kind):
            for rows, q, k, v, mask in self.calls:
                o = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.x.scale, **gqa)
                self.out[rows] = o.transpose(1, 2).reshape(self.out[rows].shape)


def _unmasked(case: Case) -> str | None:
    if getattr(case, "window", -1) >= 0 or getattr(case, "shape", "chain") != "chain":
        return "SDPA's flash back end takes no mask"
    if getattr(case, "lengths", "") == "cut":
        return "torch says that a lower-right causal bias gives NaN with more queries than keys"
    return _flags(case)


def _half(case: Case) -> str | None:
    return "this SDPA back end takes fp16 and bf16" if case.dtype == "fp32" else None


for _op in ("decode_attention", "extend_attention", "verify_attention"):

    @implements(_op, library="torch", name="torch_sdpa_math", platforms=DEVICES, accepts=_flags)
    class Math(Sdpa):
        """The reference back end: matrix products and a softmax."""

    @implements(_op, library="torch", name="torch_sdpa_efficient", platforms={"cuda", "rocm"}, accepts=_flags)
    class Efficient(Sdpa):
        """The memory-efficient back end; kv heads repeated beforehand."""

        backend = "EFFICIENT_ATTENTION"
        grouped = False

    @implements(_op, library="torch", name="torch_sdpa_flash", platforms={"cuda", "rocm"}, accepts=lambda case: _half(case) or _unmasked(case))
    class Flash(Sdpa):
        """FlashAttention-2; causal aligned bottom-right by torch.nn.attention.bias."""

        backend = "FLASH_ATTENTION"
        masked = False

    @implements(_op, library="torch", name="torch_sdpa_cudnn", platforms={"cuda"}, accepts=lambda case: _half(case) or _flags(case))
    class Cudnn(Sdpa):
        """cuDNN's attention."""

        backend = "CUDNN_ATTENTION"
