"""sgl_kernel's compiled tree kernels."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.speculative import build_arguments, verify_arguments
from harness.providers.sglang_triton.speculative_jit import sample_arguments, thresholds


@implements("tree_verify_greedy", library="sgl_kernel", platforms={"cuda", "rocm"})
def tree_verify_greedy(x: Any) -> None:
    resolve("sgl_kernel:verify_tree_greedy")(**verify_arguments(x), target_predict=x.target_predict)


@implements("tree_build", library="sgl_kernel", platforms={"cuda", "rocm"})
def tree_build(x: Any) -> None:
    resolve("sgl_kernel:build_tree_kernel_efficient")(*build_arguments(x))


@implements("tree_verify_sample", library="sgl_kernel", platforms={"cuda"}, accepts=thresholds)
def tree_verify_sample(x: Any) -> None:
    resolve("sgl_kernel:tree_speculative_sampling_target_only")(**sample_arguments(x))
