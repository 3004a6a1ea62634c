"""SGLang's Triton kernel for merging two attention states."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import resolve

MERGE = (
    "sglang.kernels.ops.attention.merge_state:merge_state_triton",
    "sglang.srt.layers.attention.triton_ops.merge_state:merge_state_triton",
)


@implements("merge_state", library="sglang", name="sglang_triton", platforms={"cuda", "rocm", "interpret"}, semantics={"lse": "natural"})
class MergeState:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.merge = resolve(*MERGE)
        self.x = x
        self.out, self.lse = scratch.output("o", like=x.v_a), scratch.output("lse", like=x.s_a)

    def run(self) -> Any:
        self.merge(self.x.v_a, self.x.s_a, self.x.v_b, self.x.s_b, self.out, self.lse)
