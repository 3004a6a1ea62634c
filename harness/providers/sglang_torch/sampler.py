"""SGLang's PyTorch sampler (its default on ROCm): filters with the weights it gives back, and the draws."""

from __future__ import annotations

import inspect
from typing import Any

from harness.contracts import Case
from harness.contracts.sampling.drawing import too_many
from harness.errors import Unsupported
from harness.providers.isolate import isolate
from harness.providers.registry import implements
from harness.providers.resolve import resolve

ANYWHERE = {"cuda", "rocm", "cpu"}
MODULE = "sglang.srt.layers.sampler"
FUNCTIONS = ("top_k_top_p_min_p_sampling_from_probs_torch", "top_p_normalize_probs_torch", "sampling_from_probs_torch", "multinomial_with_seed")
TAKEN = "on a CPU the function is taken out of sampler.py's source, which does not import without transformers"
HASHED = "under the interpreter the CPU branch of murmur_hash32, which asks for sgl_kernel, is gone round: its Triton kernel is launched"
BY_RANK = {"ties": "exactly-k"}
OFF = 1 << 30  # a top-k that keeps all
JOINT = {"ties": "exactly-k", "order": "joint"}


def _false() -> bool:
    return False


def _murmur_hash32(seed: Any, positions: Any, columns: Any) -> Any:
    import torch

    kernel = resolve("sglang.kernels.ops.sampling.murmur_hash:murmur_hash32_kernel", "sglang.srt.layers.utils.hash:murmur_hash32_kernel")
    rows, width = seed.shape[0], columns.shape[0]
    hashed = torch.empty((rows, width), dtype=torch.uint32)
    kernel[(rows, -(-width // 1024))](seed, positions, columns, hashed, rows, width, BLOCK_SIZE=1024)
    return hashed


def sampler(x: Any, name: str) -> Any:
    """One of SGLang's sampler functions: imported on a device, taken out of its source on a CPU."""
    if x.device != "cpu":
        return resolve(f"{MODULE}:{name}")
    import torch
    from sglang.srt.environ import envs

    given = {"torch": torch, "envs": envs, "is_npu": _false, "murmur_hash32": _murmur_hash32}
    return getattr(isolate(MODULE, *FUNCTIONS, given=given), name)


def rows(x: Any, value: Any, dtype: Any, count: int) -> Any:
    """A parameter as [count], the form in which SGLang's batches carry it."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.to(dtype)
    return torch.full((count,), value, dtype=dtype, device=x.device)


def _fp32(case: Case) -> str | None:
    return None if case.dtype == "fp32" else "SGLang's sampler is given fp32 probabilities (logits are made fp32 before it)"


def _drawn(case: Case) -> str | None:
    return _fp32(case) or too_many(case)


def call_sampler(x: Any, probs: Any, top_k: Any, top_p: Any, min_p: Any = None, seeds: Any = None, positions: Any = None, **more: Any) -> Any:
    """top_k_top_p_min_p_sampling_from_probs_torch with the parameters as [rows], and the greatest k, as the scheduler has it where every row has one."""
    import torch

    function, count = sampler(x, FUNCTIONS[0]), probs.shape[0]
    known = inspect.signature(function).parameters
    if more and not more.keys() <= known.keys():
        raise Unsupported("this SGLang's sampler does not give back the weights it filtered")
    k, p, m = rows(x, top_k, torch.int32, count), rows(x, top_p, torch.float32, count), rows(x, 0.0 if min_p is None else min_p, torch.float32, count)
    if "max_top_k" in known and count and bool(((k >= 1) & (k < OFF)).all()):
        more["max_top_k"] = int(k.max())
    return function(probs, k, p, m, min_p is not None, seeds, positions, **more)


def _weights(x: Any, top_k: Any, top_p: Any, min_p: Any = None) -> Any:
    """The weights the sampler drew from, put back in the order of the vocabulary."""
    import torch

    _, weights, ids, _ = call_sampler(x, x.probs, top_k, top_p, min_p, return_filtered_probs=True)
    return torch.zeros_like(weights).scatter_(1, ids.long(), weights)


@implements("top_p_renorm", library="sglang", name="sglang_torch", platforms=ANYWHERE, semantics=BY_RANK, accepts=_fp32, notes=(TAKEN,))
def top_p_renorm(x: Any) -> Any:
    import torch

    return sampler(x, "top_p_normalize_probs_torch")(x.probs, rows(x, x.top_p, torch.float32, x.probs.shape[0]))


FILTER = {**JOINT, "mass": "original"}


@implements("top_k_top_p_filter", library="sglang", name="sglang_torch", platforms=ANYWHERE, semantics=FILTER, accepts=_fp32, notes=(TAKEN,))
def top_k_top_p_filter(x: Any) -> Any:
    return _weights(x, x.top_k, x.top_p)


@implements("min_p_filter", library="sglang", name="sglang_torch", platforms=ANYWHERE, semantics={"mass": "original"}, accepts=_fp32, notes=(TAKEN,))
def min_p_filter(x: Any) -> Any:
    return _weights(x, 1 << 30, 1.0, x.min_p)


@implements("sample", library="sglang", name="sglang_torch", platforms=ANYWHERE, accepts=_drawn, notes=(TAKEN,))
def sample(x: Any) -> Any:
    draw = sampler(x, "sampling_from_probs_torch")
    return x.in_batches(lambda part: draw(part.repeated("probs")))


@implements("sample", library="sglang", name="sglang_torch_multinomial", platforms=ANYWHERE, variant=True, accepts=_drawn, notes=(TAKEN,))
def sample_multinomial(x: Any) -> Any:
    """With SGLANG_OPT_USE_GUMBEL_SAMPLE off."""
    from sglang.srt.environ import envs

    if not hasattr(envs, "SGLANG_OPT_USE_GUMBEL_SAMPLE"):
        raise Unsupported("this SGLang's sampler has one way to draw: see sglang_torch")
    with envs.SGLANG_OPT_USE_GUMBEL_SAMPLE.override(False):
        return sample(x)


@implements("top_k_top_p_sample", library="sglang", name="sglang_torch", platforms=ANYWHERE, semantics=JOINT, accepts=_drawn, notes=(TAKEN,))
def top_k_top_p_sample(x: Any) -> Any:
    return x.in_batches(lambda part: call_sampler(part, part.repeated("probs"), part.repeated("top_k"), part.repeated("top_p")))


@implements("min_p_sample", library="sglang", name="sglang_torch", platforms=ANYWHERE, accepts=_drawn, notes=(TAKEN,))
def min_p_sample(x: Any) -> Any:
    return x.in_batches(lambda part: call_sampler(part, part.repeated("probs"), 1 << 30, 1.0, part.repeated("min_p")))


@implements(
    "seeded_sample",
    library="sglang",
    name="sglang_torch",
    platforms={"cuda", "rocm", "interpret"},
    semantics={"ties": "exactly-k", "noise": "murmur3"},
    notes=(TAKEN, HASHED),
)
def seeded_sample(x: Any) -> Any:
    """Without filters sampling_from_probs_torch; with them the noise goes with the rank of a token, not with its id."""
    import torch

    def once() -> Any:
        if x.top_k or x.top_p < 1:
            return call_sampler(x, x.probs, x.top_k or 1 << 30, x.top_p, seeds=x.seeds, positions=x.positions)
        return sampler(x, "sampling_from_probs_torch")(x.probs, x.seeds, x.positions)

    return torch.stack((once(), once()), -1)
