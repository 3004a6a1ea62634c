"""scaled_dot_product_attention on MLA's explicit form without a prefix, each back end forced."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements


def _square(case: Case) -> str | None:
    plain = case.prefix == 0 and case.lengths == "uniform"
    return None if plain else "is_causal aligns at the first key: equal lengths without a prefix only"


def _half(case: Case) -> str | None:
    return _square(case) or ("takes fp16 and bf16" if case.dtype == "fp32" else None)


def _flash(case: Case) -> str | None:
    return _half(case) or (None if case.nope + 64 == case.v_dim else "flash attention takes values as wide as keys")


class _Sdpa:
    backend = ""

    def prepare(self, x: Any, scratch: Any) -> None:
        from torch.nn.attention import SDPBackend

        self.x, self.forced = x, getattr(SDPBackend, self.backend)
        self.q, self.k, self.v = (t.view(x.case.batch, x.case.new, x.case.heads, -1).transpose(1, 2) for t in (x.q, x.k, x.v))

    def run(self) -> Any:
        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        with sdpa_kernel([self.forced]):
            o = scaled_dot_product_attention(self.q, self.k, self.v, is_causal=True, scale=self.x.scale)
        return o.transpose(1, 2).reshape(-1, self.x.case.heads, o.shape[-1]), None


@implements("mla_prefill", library="torch", name="torch_sdpa_flash", platforms={"cuda", "rocm"}, accepts=_flash)
class Flash(_Sdpa):
    backend = "FLASH_ATTENTION"


@implements("mla_prefill", library="torch", name="torch_sdpa_cudnn", platforms={"cuda"}, accepts=_half)
class Cudnn(_Sdpa):
    backend = "CUDNN_ATTENTION"


@implements("mla_prefill", library="torch", name="torch_sdpa_efficient", platforms={"cuda", "rocm"}, semantics={"fp32_dot": "tf32"}, accepts=_square)
class Efficient(_Sdpa):
    backend = "EFFICIENT_ATTENTION"


@implements("mla_prefill", library="torch", name="torch_sdpa_math", platforms={"cuda", "rocm", "cpu"}, accepts=_square)
class Math(_Sdpa):
    backend = "MATH"
