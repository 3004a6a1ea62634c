"""SGLang's Triton kernels that choose a token: the argmaxes of speculative decoding, and DSPARK's Gumbel sampler."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.sampling.drawing import too_many
from harness.errors import Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.sampling import packed

EVERYWHERE = {"cuda", "rocm", "interpret"}
DEVICES = {"cuda", "rocm"}
INTERPRETED = 16  # draws
MARKOV = "sglang.kernels.ops.speculative.dspark.markov_sample:MarkovSampleStep"


def _plain(case: Case) -> str | None:
    return "this kernel has no soft cap" if case.cap else None


def _plain_fp32(case: Case) -> str | None:
    return _plain(case) or (None if case.dtype == "fp32" else "this kernel takes fp32 logits")


def _capped_fp32(case: Case) -> str | None:
    return None if case.cap and case.dtype == "fp32" else "this kernel takes fp32 logits and a soft cap"


@implements("greedy", library="sglang", name="sglang_triton", platforms=EVERYWHERE, accepts=_plain_fp32)
def row_argmax(x: Any) -> Any:
    """Up to 64 rows a flat split of the vocabulary, beyond them blocks of 4,096 or 8,192."""
    return resolve("sglang.kernels.ops.speculative.row_argmax:row_argmax")(x.logits)


@implements("greedy", library="sglang", name="sglang_triton_topk1", platforms=EVERYWHERE, accepts=_plain)
def draft_topk1(x: Any) -> Any:
    """The argmax of a draft step. It also writes the id to a column of the drafts, beside it the probability 1, and advances the positions: a row
    of which any of these is not so has the id -1.
    """
    import torch

    rows = x.logits.shape[0]
    positions = torch.arange(rows, dtype=torch.int64, device=x.device)
    drafts = torch.full((rows, 3), -2, dtype=torch.int64, device=x.device)
    topk1 = resolve("sglang.kernels.ops.speculative.topk1:draft_topk1_postprocess")
    probability, ids = (part.view(-1) for part in topk1(x.logits, positions, drafts, 1))
    as_said = (positions == torch.arange(1, rows + 1, device=x.device)) & (probability == 1) & (drafts[:, 1] == ids)
    return torch.where(as_said & (drafts[:, ::2] == -2).all(1), ids, -1)


@implements("greedy", library="sglang", name="sglang_triton_denoiser", platforms=EVERYWHERE, accepts=lambda case: _plain_fp32(case) or packed(case))
def denoiser_argmax(x: Any) -> Any:
    import torch

    statistics = resolve("sglang.kernels.ops.sampling.denoiser_statistics:denoiser_statistics")
    return statistics(x.logits.unsqueeze(1), torch.ones(x.logits.shape[0], dtype=torch.float32, device=x.device))[2].view(-1)


@implements("greedy", library="sglang", name="sglang_triton_softcap", platforms=DEVICES, accepts=_capped_fp32)
def softcap_argmax(x: Any) -> Any:
    """Gives the id as an fp32 number, exact below 2^24; it needs the tanh of libdevice, which the interpreter has not."""
    return resolve("sglang.kernels.ops.sampling.softcap_row_argmax:softcap_row_argmax")(x.logits, x.cap, x.logits.shape[1], 0)[:, 1].long()


def markov(step: Any, logits: Any, temperature: float) -> Any:
    """One step of DSPARK's Markov draft, half of each logit its bias: the argmax at temperature 0, else a Gumbel-max draw a row."""
    import torch

    rows, half = logits.shape[0], torch.where(logits.isfinite(), logits / 2, 0.0)
    return step(
        base_logits=logits - half,
        bias=half,
        temperatures=torch.full((rows,), temperature, dtype=torch.float32, device=logits.device),
        key=int(torch.randint(1 << 31, ())),
        offset=torch.zeros(1, dtype=torch.int64, device=logits.device),
        step=0,
        step_dtype=logits.dtype,
        has_sampled_rows=temperature > 0,
    )


@implements("greedy", library="sglang", name="sglang_triton_markov", platforms=EVERYWHERE, accepts=_plain)
def markov_argmax(x: Any) -> Any:
    return markov(resolve(MARKOV).triton, x.logits, 0.0)


def drawn(x: Any, step: Any) -> Any:
    """Draws of a Markov step from half the log-probabilities at the temperature that doubles them again."""
    import torch

    return x.in_batches(lambda part: markov(step, 0.5 * torch.log(part.repeated("probs")), 0.5))


@implements("sample", library="sglang", name="sglang_triton_markov", platforms=EVERYWHERE, accepts=too_many)
def markov_sample(x: Any) -> Any:
    if x.device == "cpu" and x.case.batch * x.case.draws > INTERPRETED:
        raise Unsupported(f"under the interpreter more than {INTERPRETED} draws take too long")
    return drawn(x, resolve(MARKOV).triton)
