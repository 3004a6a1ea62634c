"""SGLang's Triton decode kernels on a paged MHA or GQA cache. They read token slots, not pages."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.refilling import overwrite
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve

MODULES = ("sglang.kernels.ops.attention.decode_attention", "sglang.srt.layers.attention.triton_ops.decode_attention")
EVERYWHERE = {"cuda", "rocm", "interpret"}


def splits_on(device: str) -> int:
    """KV splits a request: the server's default on a device; two under the interpreter, where a program costs milliseconds."""
    return 2 if device == "cpu" else 8


def no_fp8_rounding(x: Any) -> None:
    """Raises Unsupported under the interpreter for a kernel that rounds to the dtype of an fp8 pool."""
    if x.device == "cpu" and x.k_pool.element_size() == 1:
        raise Unsupported("Triton's interpreter rounds wrongly to fp8: it loses a carry out of the mantissa (0.498 becomes 0.25)")


def no_window(case: Case) -> str | None:
    """SGLang's decode kernels have no window: its server passes them the last keys alone."""
    return "SGLang's decode kernel has no window argument" if case.window >= 0 else None


class Decode:
    """One of the decode entry points; gives no lse. fp32 dots are tf32 on a device (Triton's default)."""

    name = "decode_attention_fwd"
    optional: dict[str, Any]
    folded = False  # k_scale folded into the softmax scale by the caller

    def narrows(self, x: Any) -> bool:
        """Whether the kernel rounds queries and weights to the pool's dtype."""
        return bool(x.case.heads > x.case.kv_heads)

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        if self.narrows(x):
            no_fp8_rounding(x)
        self.function = resolve(*(f"{module}:{self.name}" for module in MODULES))
        case, v_dim = x.case, x.v_pool.shape[-1]
        parts = splits_on(x.device)
        self.tokens = indptr, indices = x.tokens()
        out = scratch.output("o", case.batch, case.heads, v_dim, dtype=x.q.dtype)
        logits = scratch.empty(case.batch, case.heads, parts, v_dim, dtype=torch.float32)
        lse = scratch.empty(case.batch, case.heads, parts, dtype=torch.float32)
        splits = torch.full((case.batch,), parts, dtype=torch.int32, device=x.device)
        scales = (x.scale * x.k_scale, x.v_scale) if self.folded else (x.scale, x.k_scale, x.v_scale)
        self.args = (x.q, x.k_flat, x.v_flat, out, indptr, indices, logits, lse, splits, parts, *scales)
        self.flags = {"logit_cap": x.soft_cap, "sinks": x.sinks}
        self.optional = {"page_size": case.page}

    def refill(self, x: Any) -> None:
        overwrite(self.tokens, x.tokens())  # the splits are the most there may be, whatever the lengths

    def run(self) -> Any:
        call(self.function, *self.args, **self.flags, optional=self.optional)


@implements(
    "decode_attention",
    library="sglang",
    name="sglang_triton",
    platforms=EVERYWHERE,
    semantics={"fp32_dot": "tf32", "arithmetic": "by-group"},
    accepts=no_window,
)
class DecodeAny(Decode):
    """decode_attention_fwd: picks one of the two kernels by query heads a kv head."""


@implements(
    "decode_attention",
    library="sglang",
    name="sglang_triton_normal",
    platforms=EVERYWHERE,
    semantics={"arithmetic": "products"},
    accepts=no_window,
)
class DecodeNormal(Decode):
    """decode_attention_fwd_normal: a program a query head, q k products rounded to the query's dtype."""

    name = "decode_attention_fwd_normal"
    folded = True

    def narrows(self, x: Any) -> bool:
        return False


@implements(
    "decode_attention",
    library="sglang",
    name="sglang_triton_grouped",
    platforms=EVERYWHERE,
    semantics={"fp32_dot": "tf32", "arithmetic": "cache"},
    accepts=no_window,
)
class DecodeGrouped(Decode):
    """decode_attention_fwd_grouped: a program 16 query heads of one kv head; q and the weights take the cache's dtype."""

    name = "decode_attention_fwd_grouped"
    folded = True

    def narrows(self, x: Any) -> bool:
        return True
