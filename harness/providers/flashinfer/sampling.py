"""flashinfer.sampling."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements


@implements("top_k_renorm", library="flashinfer", platforms={"cuda"}, semantics={"ties": "all"})
def top_k_renorm(x: Any) -> Any:
    from flashinfer.sampling import top_k_renorm_probs

    return top_k_renorm_probs(x.probs, x.top_k)


@implements("top_p_renorm", library="flashinfer", platforms={"cuda"}, semantics={"ties": "all"})
def top_p_renorm(x: Any) -> Any:
    from flashinfer.sampling import top_p_renorm_probs

    return top_p_renorm_probs(x.probs, x.top_p)
