"""SGLang's Triton sampling kernels: filters (its ROCm path), temperature softmax, grammar mask."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.isolate import isolate
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.interpreting import NOTE, plain, shown

EVERYWHERE = {"cuda", "rocm", "interpret"}
RENORM = "sglang.kernels.ops.sampling.renorm_triton"


def _renorm(x: Any, name: str, probs: Any, parameter: Any) -> Any:
    probs, parameter = shown(x, probs, parameter)
    return plain(resolve(f"{RENORM}:{name}")(probs, parameter))


@implements("top_k_renorm", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"ties": "all"}, notes=(NOTE,))
def top_k_renorm(x: Any) -> Any:
    return _renorm(x, "top_k_renorm_probs_triton", x.probs, x.top_k)


@implements("top_p_renorm", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"ties": "all"}, notes=(NOTE,))
def top_p_renorm(x: Any) -> Any:
    return _renorm(x, "top_p_renorm_probs_triton", x.probs, x.top_p)


@implements(
    "top_k_top_p_filter", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"ties": "all", "order": "top-k-first"}, notes=(NOTE,)
)
def top_k_top_p_filter(x: Any) -> Any:
    """One after the other, as its speculative verification calls them."""
    kept = _renorm(x, "top_k_renorm_probs_triton", x.probs, x.top_k)
    return _renorm(x, "top_p_renorm_probs_triton", kept, x.top_p)


def temperatures(x: Any) -> Any:
    """fp32 [batch, 1], the form in which SGLang carries temperatures."""
    import torch

    if isinstance(x.temperature, torch.Tensor):
        return x.temperature.view(-1, 1)
    return torch.full((x.logits.shape[0], 1), x.temperature, dtype=torch.float32, device=x.device)


def _splits(case: Case) -> str | None:
    if case.dtype != "fp32" or case.batch > 32:
        return "SGLang's wrapper gives this to torch.softmax (not fp32, or more than 32 rows)"
    parts = min(-(-512 // max(1, case.batch)), max(1, -(-case.vocab // 2048)))
    block = max(2048, 1 << (-(-case.vocab // parts) - 1).bit_length())
    return None if case.vocab > block else "SGLang's wrapper gives this to torch.softmax (one split)"


@implements("temperature_softmax", library="sglang", name="sglang_triton", platforms=EVERYWHERE, accepts=_splits, notes=(NOTE,))
def temperature_softmax(x: Any) -> Any:
    softmax = resolve("sglang.kernels.ops.sampling.temperature_softmax:temperature_softmax")
    return plain(softmax(*shown(x, x.logits, temperatures(x))))


def packed(case: Case) -> str | None:
    """The denoiser's documentation asks for contiguous logits."""
    return "SGLang's denoiser statistics ask for contiguous logits" if case.point.get("relation") == "strided" else None


DSPARK = ("sglang.kernels.ops.speculative.dspark.dspark_accept", "sglang.srt.speculative.dspark_components.kernels.dspark_accept")


@implements(
    "temperature_softmax",
    library="sglang",
    name="sglang_triton_dspark",
    platforms=EVERYWHERE,
    notes=("under the interpreter the kernel and its wrapper are taken out of the module's source, which does not import without transformers",),
)
def softmax_temp(x: Any) -> Any:
    """The softmax of DSPARK's verification: any rows, any dtype, three passes."""
    if x.device == "cpu":
        import torch
        import triton
        import triton.language as tl

        softmax = isolate(DSPARK[0], "_softmax_temp_kernel", "softmax_temp_triton", given={"torch": torch, "triton": triton, "tl": tl}).softmax_temp_triton
    else:
        softmax = resolve(*(f"{place}:softmax_temp_triton" for place in DSPARK))
    return softmax(logits=x.logits, temperatures=temperatures(x), rows_per_request=1)


@implements(
    "temperature_softmax",
    library="sglang",
    name="sglang_triton_denoiser",
    platforms=EVERYWHERE,
    accepts=lambda case: packed(case) if case.dtype == "fp32" else "SGLang's denoiser statistics take fp32 logits",
)
def denoiser_statistics(x: Any) -> Any:
    """The probabilities of the block denoiser, one canvas of one row a request. A row whose entropy or whose copy in bf16 is not that of its
    probabilities (or, on a CPU, whose probabilities are others when no copy is asked for) is given as NaN. With a logit of -inf the entropy is
    NaN, as PyTorch's sum of p log p has it.
    """
    import torch

    statistics = resolve("sglang.kernels.ops.sampling.denoiser_statistics:denoiser_statistics")
    soft = torch.empty(x.logits.shape, dtype=torch.bfloat16, device=x.device)
    probs, entropy = statistics(x.logits.unsqueeze(1), temperatures(x).view(-1), soft.unsqueeze(1))[:2]
    probs = probs.squeeze(1)
    own = torch.special.entr(probs.double()).sum(-1)
    # asked so that NaN, which memory holds that was not written, is not within
    within = ((own - entropy.view(-1)).abs() <= 1e-4 * (1 + own)) | ~x.logits.isfinite().all(-1)
    if x.device == "cpu":
        within &= (statistics(x.logits.unsqueeze(1), temperatures(x).view(-1))[0].squeeze(1) == probs).all(-1)
    within &= ((soft.double() - probs).abs() <= 2.0**-7 * probs + 1e-30).all(-1)
    return probs.masked_fill(~within[:, None], torch.nan)


@implements("token_bitmask", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
def token_bitmask(x: Any) -> None:
    apply = resolve(
        "sglang.kernels.ops.grammar.bitmask_ops:apply_token_bitmask_inplace_triton",
        "sglang.srt.constrained.triton_ops.bitmask_ops:apply_token_bitmask_inplace_triton",
    )
    apply(x.logits, x.bitmask, None if x.indices is None else x.indices.tolist())
