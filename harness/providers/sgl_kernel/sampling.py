"""sgl_kernel's sampling ops. Its renormalisations hand over to FlashInfer where that imports; `sgl_kernel_aot` is its own code."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import resolve

CUDA = {"cuda"}
ALL = {"ties": "all"}


@implements("top_k_renorm", library="sgl_kernel", platforms=CUDA, semantics=ALL, promises=())
def top_k_renorm(x: Any) -> Any:
    return resolve("sgl_kernel:top_k_renorm_prob", "sgl_kernel:top_k_renorm_probs")(x.probs, x.top_k)


@implements("top_p_renorm", library="sgl_kernel", platforms=CUDA, semantics=ALL, promises=())
def top_p_renorm(x: Any) -> Any:
    return resolve("sgl_kernel:top_p_renorm_prob", "sgl_kernel:top_p_renorm_probs")(x.probs, x.top_p)


def _own(name: str, probs: Any, parameter: Any) -> Any:
    import torch

    array, value = (parameter, 0) if isinstance(parameter, torch.Tensor) else (None, parameter)
    return resolve(f"sgl_kernel.sampling:{name}")(probs, array, value)


@implements("top_k_renorm", library="sgl_kernel", name="sgl_kernel_aot", platforms=CUDA, semantics=ALL, promises=())
def top_k_renorm_aot(x: Any) -> Any:
    return _own("_top_k_renorm_probs_internal", x.probs, x.top_k)


@implements("top_p_renorm", library="sgl_kernel", name="sgl_kernel_aot", platforms=CUDA, semantics=ALL, promises=())
def top_p_renorm_aot(x: Any) -> Any:
    return _own("_top_p_renorm_probs_internal", x.probs, x.top_p)


@implements("top_k_top_p_filter", library="sgl_kernel", name="sgl_kernel_aot", platforms=CUDA, semantics={**ALL, "order": "top-k-first"}, promises=())
def top_k_top_p_filter_aot(x: Any) -> Any:
    return _own("_top_p_renorm_probs_internal", _own("_top_k_renorm_probs_internal", x.probs, x.top_k), x.top_p)


@implements("token_bitmask", library="sgl_kernel", platforms={"cuda", "rocm"})
def token_bitmask(x: Any) -> None:
    """What SGLang's grammar back end calls on ROCm; on CUDA it launches Triton."""
    resolve("sgl_kernel:apply_token_bitmask_inplace_cuda")(x.logits, x.bitmask, x.indices)
