"""Gates that keep a case from the kernel, or let one through that it cannot take: refusals, failed builds, words that mislead."""

from __future__ import annotations

from typing import Any

from harness.faults.shelf import eager, fault

NEW: dict[str, Any] = {"batch": 2, "heads": 4, "kv_heads": 2, "new": 5, "prefix": 20, "dim": 64, "page": 64, "dtype": "fp16"}


@fault("extend_attention", "refused", "RuntimeError", bug="sglang#37310", **NEW)
def has_no_kernel_for_its_heads_size(x: Any) -> Any:
    raise RuntimeError("invalid argument for batch_prefill: no kernel for head size 64, page 64; or an index exceeds the 32-bit limit")


@fault("extend_attention", "refused", "RuntimeError", bug="FA#1537", **{**NEW, "page": 1, "lengths": "empty", "batch": 4})
def trips_over_a_request_without_queries(x: Any) -> Any:
    return eager(x)[0].view(x.case.batch, -1, x.case.heads, x.case.dim, 7)


class CompilationError(Exception):
    """As Triton names it."""


@fault("concat_mla_k", "build-failed", "CompilationError", bug="sglang#34837", tokens=3, heads=12, dtype="fp16")
def needs_a_power_of_two_heads(x: Any) -> Any:
    heads = x.case.heads
    if heads & (heads - 1):
        raise CompilationError("arange's range must be a power of 2")
    return eager(x)


@fault("mla_decode", "refused", "AssertionError", bug="vllm#51040", batch=2, heads=12, length=9, dtype="fp16")
def takes_multiples_of_sixteen_alone(x: Any) -> Any:
    assert x.case.heads % 16 == 0, f"{x.case.heads} heads are not supported"
    return eager(x)


@fault("mla_decode", "crash", "KeyError", bug="aiter, get_meta_param", batch=2, heads=12, length=9, dtype="fp16")
def looks_its_splits_up_by_heads(x: Any) -> Any:
    return eager(x)[{8: 0, 16: 1, 128: 2}[x.case.heads]]


@fault("chain_verify", "missing", "unregistered", bug="sglang#32569", batch=2, slots=4, vocab=111)
def verifies_by_an_operator_of_another_build(x: Any) -> Any:
    from harness.contracts._torch import torch

    return torch.ops.sgl_kernel_of_no_release.tree_speculative_sampling_target_only(x.predicts)


@fault("decode_attention", "refused", "ValueError", bug="vllm#54210", batch=2, heads=8, kv_heads=8, length=20, dim=64, dtype="fp16")
def admits_grouped_heads_alone(x: Any) -> Any:
    ratio = x.case.heads // x.case.kv_heads
    if not 3 <= ratio <= 16:
        raise ValueError(f"GQA ratio {ratio} is not supported")
    return eager(x)
