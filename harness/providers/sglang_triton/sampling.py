"""SGLang's Triton sampling kernels (top-k and top-p renormalisation are its ROCm path)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import resolve

EVERYWHERE = {"cuda", "rocm", "interpret"}
ROUND_IS_CUDA = "under the interpreter the wrapper's is_cuda check is gone round: its _prepare_probs is replaced"


@contextlib.contextmanager
def cpu_accepted() -> Iterator[None]:
    """SGLang's renorm wrappers refuse a CPU tensor only by `.is_cuda`; under the interpreter the same preparation runs without that line."""
    from sglang.kernels.ops.sampling import renorm_triton

    original = renorm_triton._prepare_probs
    renorm_triton._prepare_probs = lambda probs: probs.float().contiguous()
    try:
        yield
    finally:
        renorm_triton._prepare_probs = original


def _renorm(x: Any, name: str, parameter: Any) -> Any:
    function = resolve(f"sglang.kernels.ops.sampling.renorm_triton:{name}")
    with cpu_accepted() if x.device == "cpu" else contextlib.nullcontext():
        return function(x.probs, parameter)


@implements("top_k_renorm", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"ties": "all"}, notes=(ROUND_IS_CUDA,))
def top_k_renorm(x: Any) -> Any:
    return _renorm(x, "top_k_renorm_probs_triton", x.top_k)


@implements("top_p_renorm", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"ties": "all"}, notes=(ROUND_IS_CUDA,))
def top_p_renorm(x: Any) -> Any:
    return _renorm(x, "top_p_renorm_probs_triton", x.top_p)
