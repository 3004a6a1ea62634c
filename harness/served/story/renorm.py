"""The first bug: SGLang's DSPARK accept, linked out of a version's sources with the names that ROCm binds, on requests that filter."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from harness import checks
from harness.contracts import Draw, make_inputs, op
from harness.errors import Missing, UsageError
from harness.offline.routes.linking import Undescribed
from harness.offline.sources import Source
from harness.served.sampling.layer import PARAMETERS, Layer
from harness.served.sampling.plain import sort_mask_divide, sort_sum_divide
from harness.served.sampling.verifying import UTILS, VERIFY, rocm

# cases of the contracts that hold the cure: rows by rank, ties, every k and every p
CASES = {
    "top_k_renorm": ("b3-v111-k10-rows", "b5-v111-k10-mixed", "b3-v1000-k50-rows-ties", "b1-v5-k3-tied"),
    "top_p_renorm": ("b3-v111-p0.9-rows", "b4-v111-p0.9-mixed", "b3-v1000-p0.95-ties"),
}
_BATCH, _DRAFTS, _VOCAB = 3, 3, 64
# one request of each kind that a batch may hold: the top-k of the first makes the batch filter, the free one keeps it from being cut short
_REQUESTS = ({"temperature": 0.8, "top_k": 8}, {"top_p": 0.9}, {"temperature": 1.2, "top_k": 20, "top_p": 0.7})


class Reached(Exception):
    """The accept came to its kernel; `probs` are the target probabilities that it hands on, [requests, slots, vocab]."""

    def __init__(self, probs: torch.Tensor) -> None:
        super().__init__("the accept came to its kernel")
        self.probs = probs


@dataclass(frozen=True)
class Accept:
    """How one accept ended: with an exception of its own at `where`, `function`, or at its kernel with `probs`."""

    error: BaseException | None
    where: str
    function: str
    probs: torch.Tensor | None


CURE: dict[str, Callable[..., torch.Tensor]] = {"top_k_renorm_prob": sort_mask_divide, "top_p_renorm_prob": sort_sum_divide}


def bound(source: Source) -> dict[str, Any]:
    """What the names of the two filters hold on ROCm, as the module's own top binds them."""
    layer = Layer("pytorch", False, "cpu", source.root, "hip")
    return {name: layer.load(UTILS, name) for name in CURE}


def accept(source: Source, *, cured: bool = False) -> Accept:
    """One accept of a block of drafts for three requests that filter. Raises UsageError where the version has no such accept."""
    try:
        layer = rocm("cpu", source.root, _kernel)
        function = layer.load(VERIFY, "accept_draft_tokens")
        if cured:
            layer.linker.space(UTILS).update(CURE)
        function(**_arguments(layer))
    except Reached as reached:
        return Accept(None, "", "", reached.probs)
    except (Undescribed, Missing) as error:
        raise UsageError(f"{source.label}: its DSPARK accept is not of a form that can be driven here ({error})") from error
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Accept(error, f"{frame.filename.removeprefix('sglang/')}:{frame.lineno}", frame.name, None)
    raise UsageError(f"{source.label}: its DSPARK accept ended without its kernel")


def judged(probs: torch.Tensor) -> str:
    """What the contract verify_target_probs finds wrong with the probabilities of these requests; empty where nothing is."""
    declared = op("verify_target_probs")
    case = declared.axes.case(batch=_BATCH, slots=_DRAFTS + 1, vocab=_VOCAB, k=8, p=0.9, form="mixed")
    x = make_inputs(case, "cpu")
    k = [min(one.get("top_k", 1 << 30), 1 << 30) for one in _REQUESTS]
    given = {
        "logits": _logits(),
        "temperatures": torch.tensor([[one.get("temperature", 1.0)] for one in _REQUESTS]),
        "top_ks": torch.tensor(k, dtype=torch.int32),
        "top_ps": torch.tensor([one.get("top_p", 1.0) for one in _REQUESTS]),
    }
    golden = declared.impl.reference(x.copy_with(**given), declared.resolve({"ties_k": "exactly-k", "ties_p": "by-rank"}))
    return checks.judge(probs.flatten(0, 1), golden["probs"]).text


def cure_by_contract() -> list[tuple[str, str]]:
    """(cell, what is wrong with the cure there, or empty) of every case that holds it."""
    found = []
    for name, cases in CASES.items():
        declared = op(name)
        for case_id in cases:
            x = make_inputs(declared.axes.parse(case_id), "cpu")
            parameter = x.top_k if name == "top_k_renorm" else x.top_p
            whole = torch.as_tensor(parameter).expand(len(x.probs))
            made = CURE[f"{name}_prob"](x.probs, whole.long() if name == "top_k_renorm" else whole)
            golden = declared.impl.reference(x, declared.resolve({"ties": "exactly-k"}))["probs"]
            found.append((f"{name}[{case_id}]", checks.judge(made, golden).text))
    return found


def _logits() -> torch.Tensor:
    return Draw("story:target").normal(_BATCH * (_DRAFTS + 1), _VOCAB, scale=2.0)


def _kernel(*, target_probs: torch.Tensor, **arguments: Any) -> None:
    raise Reached(target_probs)


def _arguments(layer: Layer) -> dict[str, Any]:
    draw = Draw("story:drafts")
    reqs = [_request(layer, one) for one in _REQUESTS]
    info = layer.info(reqs, _VOCAB)
    k = [one.sampling_params.top_k for one in reqs]
    candidates = draw.integers(_BATCH, _DRAFTS + 1, low=0, high=_VOCAB)
    drafts = SimpleNamespace(
        draft_tokens=candidates[:, 1:],
        corrected_logits=draw.normal(_BATCH, _DRAFTS, _VOCAB, scale=2.0),
        greedy_mask=None,
        temperatures=info.temperatures,
        greedy_draft=False,
    )
    return {
        "candidates": candidates,
        "target_logits": _logits(),
        "draft_block": drafts,
        "sampling_info": info,
        "draft_input": SimpleNamespace(max_top_k=max(k), uniform_top_k_value=None),
        "gamma": _DRAFTS,
        "verify_num_draft_tokens": _DRAFTS + 1,
    }


def _request(layer: Layer, parameters: dict[str, Any]) -> Any:
    return SimpleNamespace(
        sampling_params=layer.load(PARAMETERS, "SamplingParams")(**parameters),
        custom_logit_processor=None,
        return_sampling_mask=False,
        sampling_logprobs_mode=None,
    )
