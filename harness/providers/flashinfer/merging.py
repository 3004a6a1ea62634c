"""flashinfer.cascade: log-sum-exps in base 2."""

from __future__ import annotations

import math
from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements

LOG2E = 1 / math.log(2)


def _in_place(case: Case) -> str | None:
    if case.point.get("relation") == "replay":
        return "merges into its first state: a second replay would merge twice"
    return _built(case)


def _built(case: Case) -> str | None:
    if case.dtype == "fp32":
        return "FlashInfer's cascade kernels take fp16 and bf16"
    return None if case.dim in (64, 128, 256, 512) else "FlashInfer's cascade kernels are built for head dimensions 64, 128, 256 and 512"


@implements("merge_state", library="flashinfer", platforms={"cuda"}, semantics={"lse": "base-2"}, accepts=_built)
def merge_state(x: Any) -> Any:
    from flashinfer.cascade import merge_state as merge

    return merge(x.v_a, x.s_a * LOG2E, x.v_b, x.s_b * LOG2E)


@implements("merge_state", library="flashinfer", name="flashinfer_in_place", platforms={"cuda"}, semantics={"lse": "base-2"}, accepts=_in_place)
class MergeInPlace:
    """merge_state_in_place: the second state is merged into the first."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.other = x, x.s_b * LOG2E
        self.v, self.s = scratch.output("o", like=x.v_a).copy_(x.v_a), scratch.output("lse", like=x.s_a).copy_(x.s_a * LOG2E)

    def run(self) -> Any:
        from flashinfer.cascade import merge_state_in_place

        merge_state_in_place(self.v, self.s, self.x.v_b, self.other)


@implements("merge_states", library="flashinfer", platforms={"cuda"}, semantics={"lse": "base-2"}, accepts=_built)
def merge_states(x: Any) -> Any:
    from flashinfer.cascade import merge_states as merge

    return merge(x.v, x.lse * LOG2E)
