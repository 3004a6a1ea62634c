"""flashinfer.sampling. Its top_k_top_p samplers apply top-k first by default; `joint` takes both on the original mass. Its renormalisations
sum in whatever order atomics give, so that they promise no equal bits."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.sampling.drawing import too_many
from harness.providers.registry import implements

CUDA = {"cuda"}
ALL = {"ties": "all"}
FIRST = {"ties": "all", "order": "top-k-first"}
JOINT = {"ties": "all", "order": "joint"}


@implements("top_k_renorm", library="flashinfer", platforms=CUDA, semantics=ALL, promises=())
def top_k_renorm(x: Any) -> Any:
    from flashinfer.sampling import top_k_renorm_probs

    return top_k_renorm_probs(x.probs, x.top_k)


@implements("top_p_renorm", library="flashinfer", platforms=CUDA, semantics=ALL, promises=())
def top_p_renorm(x: Any) -> Any:
    from flashinfer.sampling import top_p_renorm_probs

    return top_p_renorm_probs(x.probs, x.top_p)


@implements("top_p_renorm", library="flashinfer", name="flashinfer_deterministic", platforms=CUDA, semantics=ALL)
def top_p_renorm_deterministic(x: Any) -> Any:
    """With the integer histogram that makes it repeatable."""
    from flashinfer.sampling import top_p_renorm_probs

    return top_p_renorm_probs(x.probs, x.top_p, is_deterministic=True)


@implements("top_k_top_p_filter", library="flashinfer", platforms=CUDA, semantics=FIRST, promises=())
def top_k_top_p_filter(x: Any) -> Any:
    from flashinfer.sampling import top_k_renorm_probs, top_p_renorm_probs

    return top_p_renorm_probs(top_k_renorm_probs(x.probs, x.top_k), x.top_p)


@implements("top_k_top_p_filter", library="flashinfer", name="flashinfer_joint", platforms=CUDA, semantics=JOINT, promises=())
def top_k_top_p_filter_joint(x: Any) -> Any:
    """What both renormalisations of the original row keep, as SGLang records the support of the joint sampler."""
    from flashinfer.sampling import top_k_renorm_probs, top_p_renorm_probs

    kept = top_k_renorm_probs(x.probs, x.top_k).float().masked_fill(top_p_renorm_probs(x.probs, x.top_p) <= 0, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def _sampled(x: Any, order: str) -> Any:
    from flashinfer.sampling import top_k_top_p_sampling_from_probs

    return top_k_top_p_sampling_from_probs(x.probs, x.top_k, x.top_p, indices=x.draw_rows, filter_apply_order=order)


@implements("top_k_top_p_sample", library="flashinfer", platforms=CUDA, semantics=FIRST)
def top_k_top_p_sample(x: Any) -> Any:
    """All draws in one launch, by `indices`."""
    return _sampled(x, "top_k_first")


@implements("top_k_top_p_sample", library="flashinfer", name="flashinfer_joint", platforms=CUDA, semantics=JOINT)
def top_k_top_p_sample_joint(x: Any) -> Any:
    """All draws in one launch, by `indices`."""
    return _sampled(x, "joint")


@implements("top_k_top_p_sample", library="flashinfer", name="flashinfer_rows", platforms=CUDA, semantics=JOINT, accepts=too_many)
def top_k_top_p_sample_rows(x: Any) -> Any:
    """A row of probabilities a draw, joint: how SGLang's sampler calls it."""
    from flashinfer.sampling import top_k_top_p_sampling_from_probs

    def draw(part: Any) -> Any:
        k, p = part.repeated("top_k"), part.repeated("top_p")
        return top_k_top_p_sampling_from_probs(part.repeated("probs"), k, p, filter_apply_order="joint")

    return x.in_batches(draw)


@implements("min_p_sample", library="flashinfer", platforms=CUDA, accepts=too_many)
def min_p_sample(x: Any) -> Any:
    """A row of probabilities a draw: how SGLang's sampler calls it."""
    from flashinfer.sampling import min_p_sampling_from_probs

    return x.in_batches(lambda part: min_p_sampling_from_probs(part.repeated("probs"), part.repeated("min_p")))


@implements("min_p_sample", library="flashinfer", name="flashinfer_indices", platforms=CUDA)
def min_p_sample_indices(x: Any) -> Any:
    """All draws in one launch, by `indices`."""
    from flashinfer.sampling import min_p_sampling_from_probs

    return min_p_sampling_from_probs(x.probs, x.min_p, indices=x.draw_rows)


@implements("sample", library="flashinfer", platforms=CUDA)
def sample(x: Any) -> Any:
    from flashinfer.sampling import sampling_from_probs

    return sampling_from_probs(x.probs, indices=x.draw_rows)


@implements("sample", library="flashinfer", name="flashinfer_logits", platforms=CUDA)
def sample_logits(x: Any) -> Any:
    """From log-probabilities, by Gumbel noise."""
    import torch
    from flashinfer.sampling import sampling_from_logits

    return sampling_from_logits(torch.log(x.probs.float()), indices=x.draw_rows)


@implements("seeded_sample", library="flashinfer", platforms=CUDA, semantics={"ties": "all"})
def seeded_sample(x: Any) -> Any:
    """A seed and an offset a row, which the signature takes as tensors of the batch's length."""
    import torch
    from flashinfer.sampling import sampling_from_probs, top_k_top_p_sampling_from_probs

    def once() -> Any:
        if x.top_k or x.top_p < 1:
            k = x.top_k or x.probs.shape[1]
            return top_k_top_p_sampling_from_probs(x.probs, k, x.top_p, filter_apply_order="joint", seed=x.seeds, offset=x.positions)
        return sampling_from_probs(x.probs, seed=x.seeds, offset=x.positions)

    return torch.stack((once(), once()), -1)


@implements("temperature_softmax", library="flashinfer", platforms=CUDA)
def temperature_softmax(x: Any) -> Any:
    from flashinfer.sampling import softmax

    return softmax(x.logits, x.temperature)


def _uncapped(case: Case) -> str | None:
    return "FlashInfer's top-k has no soft cap" if case.cap else None


@implements("greedy", library="flashinfer", platforms=CUDA, accepts=_uncapped)
def greedy(x: Any) -> Any:
    """Its radix top-k with k = 1."""
    from flashinfer import top_k

    return top_k(x.logits, 1)[1].view(-1)
