"""mla_reduce_v1 by itself: the merge of partial states that persistent decode and the fp8 prefill end with."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.aiter import gates, kernels
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve


def _half(case: Case) -> str | None:
    return "mla_reduce_v1 gives fp16 and bf16" if case.dtype == "fp32" else None


@implements(
    "merge_states",
    library="aiter",
    name="aiter_reduce",
    platforms={"rocm"},
    accepts=_half,
    gate=gates.by_arch(gates.reduction),
    kernels=kernels.always("mla_reduce_v1"),
)
class Reduce:
    """Each token is a tile of one query row whose partial states lie in consecutive rows; log-sum-exps are natural."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        tokens, parts, heads, dim = x.v.shape
        rows = {"dtype": torch.int32, "device": x.device}
        self.reduce = resolve("aiter.ops.attention:mla_reduce_v1")
        self.partial = x.v.float().reshape(tokens * parts, 1, heads, dim)
        self.partial_lse = x.lse.reshape(tokens * parts, 1, heads, 1)
        self.groups = torch.arange(0, tokens * parts + 1, parts, **rows)
        self.final_map = torch.stack((torch.arange(tokens, **rows), torch.arange(1, tokens + 1, **rows)), 1).contiguous()
        self.partial_map = torch.arange(tokens * parts, **rows)
        self.o = scratch.output("o", tokens, heads, dim, dtype=x.v.dtype)
        self.lse = scratch.output("lse", tokens, heads, dtype=torch.float32)

    def run(self) -> None:
        call(
            self.reduce,
            partial_output=self.partial,
            partial_lse=self.partial_lse,
            reduce_indptr=self.groups,
            reduce_final_map=self.final_map,
            reduce_partial_map=self.partial_map,
            max_seqlen_q=1,
            final_output=self.o,
            final_lse=self.lse,
            optional={"num_kv_splits": 0},
        )
