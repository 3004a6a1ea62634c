"""SGLang's extend kernels with causal and window masks given as a custom mask, as its speculative decoding calls them."""

from __future__ import annotations

from typing import Any

from harness.contracts.attention.batch import indptr
from harness.providers.registry import implements
from harness.providers.sglang_triton.extend import DOT, Extend, Unified, as_many_keys


def _masks(x: Any) -> tuple[Any, Any]:
    """(mask, indptr): every request's rows [queries, keys] of what a query sees, flat."""
    import torch

    rows = []
    for queries, keys in zip(x.q_len, map(len, x.slots), strict=True):
        ahead = torch.arange(keys, device=x.device) - torch.arange(keys - queries, keys, device=x.device)[:, None]
        seen = ahead <= 0 if x.causal else torch.ones_like(ahead, dtype=torch.bool)
        rows.append((seen & (ahead.abs() <= x.window) if x.window >= 0 else seen).flatten())
    return torch.cat(rows), indptr([len(row) for row in rows], x.device).long()


@implements(
    "extend_attention",
    library="sglang",
    name="sglang_triton_masked",
    platforms={"interpret"},
    semantics={**DOT, "arithmetic": "cached-prefix", "lse_sinks": "sinks"},
    accepts=as_many_keys,
    variant=True,
)
class ExtendMasked(Extend):
    """extend_attention_fwd; with a window it is given the last tokens of the prefix alone, and where they begin in the rows of the mask."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        super().prepare(x, scratch)
        mask, bounds = _masks(x)
        kept = [min(length, x.window) if x.window > 0 else length for length in x.prefix_len]
        hidden = [length - count for length, count in zip(x.prefix_len, kept, strict=True)]
        slots = torch.cat([slots[low:high] for slots, low, high in zip(x.slots, hidden, x.prefix_len, strict=True)])
        before, after = self.args[:7], self.args[12:]
        self.args = (*before, indptr(kept, x.device), slots, mask, x.causal, bounds, *after)
        self.flags |= {"skip_prefix_custom_mask": False, "window_kv_offsets": torch.tensor(hidden, dtype=torch.int32, device=x.device)}


@implements(
    "extend_attention",
    library="sglang",
    name="sglang_triton_unified_masked",
    platforms={"interpret"},
    semantics={**DOT, "arithmetic": "cache"},
    accepts=as_many_keys,
    variant=True,
)
class UnifiedMasked(Unified):
    """extend_attention_fwd_unified."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        mask, bounds = _masks(x)
        self.flags |= {"custom_mask": mask, "mask_indptr": bounds}
