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
AS_TORCH = {"ties": "first", "nan": "first"}
MARKOV = "sglang.kernels.ops.speculative.dspark.markov_sample:MarkovSampleStep"


def _plain(case: Case) -> str | None:
    return "this kernel has no soft cap" if case.cap else None


def _plain_fp32(case: Case) -> str | None:
    return _plain(case) or (None if case.dtype == "fp32" else "this kernel takes fp32 logits")


def _capped_fp32(case: Case) -> str | None:
    return None if case.cap and case.dtype == "fp32" else "this kernel takes fp32 logits and a soft cap"


@implements("greedy", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"ties": "first"}, accepts=_plain_fp32)
def row_argmax(x: Any) -> Any:
    """Up to 64 rows a flat split of the vocabulary, beyond them blocks of 4,096 or 8,192."""
    return resolve("sglang.kernels.ops.speculative.row_argmax:row_argmax")(x.logits)


@implements("greedy", library="sglang", name="sglang_triton_topk1", platforms=EVERYWHERE, semantics={"ties": "first"}, accepts=_plain)
def draft_topk1(x: Any) -> Any:
    """The argmax of a draft step. It also writes the id to a column of the drafts, beside it the probability 1, and advances the positions: a row
    of which any of these is not so, or (on a CPU) that has another id without drafts to write to, has the id -1.
    """
    import torch

    rows = x.logits.shape[0]
    positions = torch.arange(rows, dtype=torch.int64, device=x.device)
    drafts = torch.full((rows, 3), -2, dtype=torch.int64, device=x.device)
    topk1 = resolve("sglang.kernels.ops.speculative.topk1:draft_topk1_postprocess")
    probability, ids = (part.view(-1) for part in topk1(x.logits, positions, drafts, 1))
    alone = topk1(x.logits, torch.zeros_like(positions))[1].view(-1) if x.device == "cpu" else ids
    as_said = (alone == ids) & (positions == torch.arange(1, rows + 1, device=x.device)) & (probability == 1) & (drafts[:, 1] == ids)
    return torch.where(as_said & (drafts[:, ::2] == -2).all(1), ids, -1)


@implements(
    "greedy", library="sglang", name="sglang_triton_denoiser", platforms=EVERYWHERE, semantics=AS_TORCH, accepts=lambda case: _plain_fp32(case) or packed(case)
)
def denoiser_argmax(x: Any) -> Any:
    import torch

    statistics = resolve("sglang.kernels.ops.sampling.denoiser_statistics:denoiser_statistics")
    return statistics(x.logits.unsqueeze(1), torch.ones(x.logits.shape[0], dtype=torch.float32, device=x.device))[2].view(-1)


@implements("greedy", library="sglang", name="sglang_triton_softcap", platforms=DEVICES, accepts=_capped_fp32)
def softcap_argmax(x: Any) -> Any:
    """Gives the id as an fp32 number, exact below 2^24; it needs the tanh of libdevice, which the interpreter has not."""
    return resolve("sglang.kernels.ops.sampling.softcap_row_argmax:softcap_row_argmax")(x.logits, x.cap, x.logits.shape[1], 0)[:, 1].long()


def _parts(logits: Any) -> tuple[Any, Any]:
    """Logits as the sum of a base and a bias, which is half of each. A 16-bit logit is the rounded sum: the base is off by less than its last bit,
    one way or the other in turn.
    """
    import torch

    half = torch.where(logits.isfinite(), logits / 2, 0.0)
    base = logits.float() - half.float()
    if logits.dtype != torch.float32:
        unit = torch.finfo(logits.dtype).eps / 8
        base += torch.where(logits.isfinite(), logits.float(), 0.0) * unit * (torch.arange(logits.shape[1], device=logits.device) % 3 - 1)
    return base, half


def markov(step: Any, logits: Any, temperature: float) -> Any:
    """One step of DSPARK's Markov draft: the argmax at temperature 0, else a Gumbel-max draw a row. A row whose logits it does not keep as they
    are has the id -1.
    """
    import torch

    base, bias = _parts(logits)
    kept = torch.empty_like(logits)
    ids = step(base_logits=base, bias=bias, logits_out=kept, **_options(logits, temperature))
    return torch.where((kept == logits) | logits.isnan(), 0, -1).amin(1) | ids


def _options(logits: Any, temperature: float) -> dict[str, Any]:
    import torch

    return {
        "temperatures": torch.full((logits.shape[0],), temperature, dtype=torch.float32, device=logits.device),
        "key": int(torch.randint(1 << 31, ())),
        "offset": torch.zeros(1, dtype=torch.int64, device=logits.device),
        "step": 0,
        "step_dtype": logits.dtype,
        "has_sampled_rows": temperature > 0,
    }


def markov_sharded(step: Any, logits: Any) -> Any:
    """The argmax of a vocabulary split over two ranks, which exchange candidates, then whole logits: a row with different answers has the id -1.
    The exchange makes -0 of +0, as that of SGLang does.
    """
    import torch

    base, bias = _parts(logits)
    vocab = logits.shape[1]
    width = -(-vocab // 8) * 4
    padding = torch.full((logits.shape[0], 2 * width - vocab), 1e4, dtype=base.dtype, device=base.device)
    ranks = [(base[:, :width], bias[:, :width]), (torch.cat((base[:, width:], padding), 1), bias[:, width:])]
    answers = []
    for kept in (None, torch.empty_like(logits)):
        sent: dict[str, list[Any]] = {"candidates": [], "logits": []}

        def exchange(what: str, axis: int, part: Any, sent: dict[str, list[Any]] = sent) -> Any:
            sent[what].append(torch.where(part == 0, -0.0, part) if what == "candidates" else part.clone())
            return torch.cat(sent[what][::-1] if len(sent[what]) == 2 else [part] * 2, axis)

        for rank in (1, 0):  # the answer of the first that asks is not whole
            answer = step(
                base_logits=ranks[rank][0],
                bias=ranks[rank][1],
                vocab_start=rank * width,
                gather=lambda part: exchange("candidates", 0, part),
                gather_logits=lambda part: exchange("logits", 1, part),
                logits_out=kept,
                **_options(logits, 0.0),
            )
        answers.append(answer)
    agree = (answers[0] == answers[1]) & ((kept == logits) | logits.isnan()).all(1)
    return torch.where(agree, answers[0], -1)


def in_shards(case: Case) -> str | None:
    """Two ranks, of which the second has no token where the vocabulary has four or fewer."""
    return _plain(case) or (None if case.vocab else "no token to choose")


@implements("greedy", library="sglang", name="sglang_triton_markov", platforms=EVERYWHERE, semantics=AS_TORCH, accepts=_plain)
def markov_argmax(x: Any) -> Any:
    return markov(resolve(MARKOV).triton, x.logits, 0.0)


def drawn(x: Any, step: Any) -> Any:
    """Draws of a Markov step from half the log-probabilities at the temperature that doubles them again."""
    import torch

    return x.in_batches(lambda part: markov(step, 0.5 * torch.log(part.repeated("probs")), 0.5))


@implements("greedy", library="sglang", name="sglang_triton_markov_sharded", platforms=EVERYWHERE, variant=True, semantics=AS_TORCH, accepts=in_shards)
def markov_argmax_sharded(x: Any) -> Any:
    return markov_sharded(resolve(MARKOV).triton, x.logits)


@implements("sample", library="sglang", name="sglang_triton_markov", platforms=EVERYWHERE, accepts=too_many)
def markov_sample(x: Any) -> Any:
    if x.device == "cpu" and x.case.batch * x.case.draws > INTERPRETED:
        raise Unsupported(f"under the interpreter more than {INTERPRETED} draws take too long")
    return drawn(x, resolve(MARKOV).triton)
