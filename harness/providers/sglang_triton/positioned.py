"""SGLang's Triton attention kernels with a temperature of long positions (Grok) and a score_mod that adds a relative bias."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.attention import DecodeGrouped, DecodeNormal
from harness.providers.sglang_triton.extend import DOT, EVERYWHERE, Extend, Unified

MODIFIER = "sglang.kernels.ops.attention.score_mod:relative_bias_score_mod"


class _Positioned:
    """Passes temperature and bias to a kernel of extend_attention or decode_attention."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)  # type: ignore[misc]
        self.flags: dict[str, Any]
        self.flags["xai_temperature_len"] = x.temperature_length or -1
        if x.bias is not None:
            self.flags |= {"score_mod": resolve(MODIFIER), "aux_tensors": [x.bias]}


def _one_query(case: Case) -> str | None:
    return "SGLang's decode kernels take one query a request" if case.new > 1 or case.lengths == "empty" else None


@implements(
    "positioned_attention", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={**DOT, "arithmetic": "cached-prefix", "lse_sinks": "sinks"}
)
class PositionedExtend(_Positioned, Extend):
    """extend_attention_fwd."""


@implements("positioned_attention", library="sglang", name="sglang_triton_unified", platforms=EVERYWHERE, semantics={**DOT, "arithmetic": "cache"})
class PositionedUnified(_Positioned, Unified):
    """extend_attention_fwd_unified, which serves deterministic inference."""


def _tempered(case: Case) -> str | None:
    return None if case.temperature else "without a temperature this is sglang_triton_unified"


@implements(
    "positioned_attention",
    library="sglang",
    name="sglang_triton_unified_inverse",
    platforms={"interpret"},
    semantics={**DOT, "arithmetic": "cache", "temperature": "inverse"},
    accepts=_tempered,
    variant=True,
)
class PositionedUnifiedInverse(PositionedUnified):
    """extend_attention_fwd_unified, judged by the temperature that it has instead of the other kernels'."""


@implements(
    "positioned_attention", library="sglang", name="sglang_triton_normal", platforms=EVERYWHERE, semantics={"arithmetic": "products"}, accepts=_one_query
)
class PositionedNormal(_Positioned, DecodeNormal):
    """decode_attention_fwd_normal."""


@implements(
    "positioned_attention",
    library="sglang",
    name="sglang_triton_grouped",
    platforms=EVERYWHERE,
    semantics={**DOT, "arithmetic": "cache"},
    accepts=_one_query,
)
class PositionedGrouped(_Positioned, DecodeGrouped):
    """decode_attention_fwd_grouped."""
