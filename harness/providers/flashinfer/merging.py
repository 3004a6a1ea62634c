"""flashinfer.cascade: log-sum-exps in base 2."""

from __future__ import annotations

import math
from typing import Any

from harness.providers.registry import implements

LOG2E = 1 / math.log(2)


@implements("merge_state", library="flashinfer", platforms={"cuda"}, semantics={"lse": "base-2"})
def merge_state(x: Any) -> Any:
    from flashinfer.cascade import merge_state as merge

    return merge(x.v_a, x.s_a * LOG2E, x.v_b, x.s_b * LOG2E)


@implements("merge_states", library="flashinfer", platforms={"cuda"}, semantics={"lse": "base-2"})
def merge_states(x: Any) -> Any:
    from flashinfer.cascade import merge_states as merge

    return merge(x.v, x.lse * LOG2E)
