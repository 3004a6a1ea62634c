"""SGLang's builders of verify target probabilities, dense and sparse, with each set of renorm functions they meet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import harness.providers.isolate as isolating
from harness.contracts import Case
from harness.errors import Missing, Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve
from harness.providers.sglang_triton.interpreting import NOTE, plain, shown

MODULE = "sglang.srt.speculative.dflash_utils"
NAMES = ("build_speculative_verify_target_probs", "build_dflash_verify_target_probs")
HELPERS = ("_dflash_top_k_renorm_prob", "_dflash_top_p_renorm_prob", "_dflash_npu_top_k_top_p_renorm_prob")
RENORM = "sglang.kernels.ops.sampling.renorm_triton"
TAKEN = "the builder is taken out of dflash_utils.py's source, so that the renorm functions are known"
BY_RANK = {"ties_k": "exactly-k", "ties_p": "by-rank"}
EXACTLY_K = {"ties_k": "exactly-k", "ties_p": "all"}
ALL = {"ties_k": "all", "ties_p": "all"}


def arguments(x: Any) -> dict[str, Any]:
    """The builder's arguments, the scheduler's sampling_info among them; with 16-bit logits the builder finds the greatest k itself."""
    info = SimpleNamespace(temperatures=x.temperatures, top_ks=x.top_ks, top_ps=x.top_ps, need_top_k_sampling=x.need_top_k, need_top_p_sampling=x.need_top_p)
    return {
        "next_token_logits": x.logits,
        "sampling_info": info,
        "draft_token_num": x.case.slots,
        "bs": x.case.batch,
        "max_top_k": x.max_top_k if x.case.dtype == "fp32" else None,
        "uniform_top_k_value": x.uniform_top_k,
    }


def _not_npu() -> bool:
    return False


def builder(top_k: Any, top_p: Any) -> Any:
    """The builder with these renorm functions bound (None: what a platform without them sees), whatever the SGLang version calls it."""
    import torch
    import torch.nn.functional as functional

    normalize = isolating.isolate("sglang.srt.layers.sampler", "top_p_normalize_probs_torch", given={"torch": torch}).top_p_normalize_probs_torch
    given = {"torch": torch, "F": functional, "is_npu": _not_npu, "top_p_normalize_probs_torch": normalize}
    given |= {"top_k_renorm_prob": top_k, "top_p_renorm_prob": top_p}
    lost: Missing | None = None
    for name in NAMES:
        for helpers in (HELPERS, HELPERS[:2], ()):
            try:
                return getattr(isolating.isolate(MODULE, name, *helpers, given=given), name)
            except Missing as error:
                lost = lost or error
    raise lost or Missing(MODULE)


def _triton_top_k(probs: Any, top_ks: Any) -> Any:
    return _triton("top_k_renorm_probs_triton", probs, top_ks)


def _triton_top_p(probs: Any, top_ps: Any) -> Any:
    return _triton("top_p_renorm_probs_triton", probs, top_ps)


def _triton(name: str, probs: Any, parameter: Any) -> Any:
    try:
        renorm = resolve(f"{RENORM}:{name}")
    except Missing as error:
        raise Unsupported(f"this SGLang has no Triton renorm: {error}") from error
    return plain(renorm(*shown(SimpleNamespace(device=probs.device.type), probs, parameter)))


def _ranked(case: Case) -> str | None:
    """The sparse path takes torch.topk of all rows, if each filters; else the dense one, with other ties."""
    off = case.form == "mixed" and max(case.k, 3) >= case.vocab
    return "a request whose top-k is off sends the batch down the dense path, which keeps ties" if off else None


def _imported() -> Any:
    return resolve(*(f"{MODULE}:{name}" for name in NAMES))


@implements("verify_target_probs", library="sglang", name="sglang_torch_sparse", platforms={"cpu"}, semantics=BY_RANK, notes=(TAKEN,))
def torch_sparse(x: Any) -> Any:
    return builder(None, None)(**arguments(x), use_sparse_topk=True)


@implements("verify_target_probs", library="sglang", name="sglang_torch_dense", platforms={"cpu"}, semantics=BY_RANK, notes=(TAKEN,))
def torch_dense(x: Any) -> Any:
    return builder(None, None)(**arguments(x), use_sparse_topk=False)


@implements(
    "verify_target_probs",
    library="sglang",
    name="sglang_triton_sparse",
    platforms={"cuda", "rocm", "interpret"},
    semantics=EXACTLY_K,
    accepts=_ranked,
    notes=(TAKEN, NOTE),
)
def triton_sparse(x: Any) -> Any:
    """As on ROCm."""
    return builder(_triton_top_k, _triton_top_p)(**arguments(x), use_sparse_topk=True)


@implements("verify_target_probs", library="sglang", name="sglang_triton_dense", platforms={"cuda", "rocm", "interpret"}, semantics=ALL, notes=(TAKEN, NOTE))
def triton_dense(x: Any) -> Any:
    """As on ROCm."""
    return builder(_triton_top_k, _triton_top_p)(**arguments(x), use_sparse_topk=False)


@implements("verify_target_probs", library="sglang", name="sglang_sparse", platforms={"cuda", "rocm"}, semantics=EXACTLY_K, accepts=_ranked, promises=())
def sparse(x: Any) -> Any:
    """As imported here, with the renorm functions of this platform, which on CUDA add up in whatever order atomics give."""
    return call(_imported(), **arguments(x), use_sparse_topk=True)


@implements("verify_target_probs", library="sglang", name="sglang_dense", platforms={"cuda", "rocm"}, semantics=ALL, promises=())
def dense(x: Any) -> Any:
    """As imported here, with the renorm functions of this platform."""
    return call(_imported(), **arguments(x), use_sparse_topk=False)
