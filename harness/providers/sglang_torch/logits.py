"""What SGLang does to logits in PyTorch: softmax with temperature, penalties, and the PyTorch twins of its samplers."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.sampling.drawing import too_many
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.choosing import AS_TORCH, MARKOV, drawn, in_shards, markov, markov_sharded
from harness.providers.sglang_triton.sampling import temperatures

ANYWHERE = {"cuda", "rocm", "cpu"}
PENALTIES = "sglang.srt.sampling.penaltylib"


@implements("temperature_softmax", library="sglang", name="sglang_torch", platforms=ANYWHERE)
def temperature_softmax(x: Any) -> Any:
    """The entry point that SGLang's sampler and verifier call: PyTorch, or its Triton kernel on ROCm."""
    return resolve("sglang.kernels.ops.sampling:softmax")(x.logits, temperatures(x))


@implements("sample", library="sglang", name="sglang_torch_markov", platforms=ANYWHERE, accepts=too_many)
def markov_sample(x: Any) -> Any:
    """DSPARK's Gumbel sampler in PyTorch."""
    return drawn(x, resolve(MARKOV).torch)


class _Request:
    """One request as the penalty library sees it."""

    def __init__(self, frequency: float, presence: float, repetition: float) -> None:
        self.sampling_params = self
        self.frequency_penalty, self.presence_penalty, self.repetition_penalty = frequency, presence, repetition


class _Batch:
    def __init__(self, x: Any) -> None:
        self.device = x.device
        self.reqs = [_Request(*row) for row in zip(x.frequency.tolist(), x.presence.tolist(), x.repetition.tolist(), strict=True)]


class _Penalties:
    def prepare(self, x: Any, scratch: Any) -> None:
        names = ("BatchedFrequencyPenalizer", "BatchedPresencePenalizer", "BatchedRepetitionPenalizer")
        self.x, self.batch = x, _Batch(x)
        self.orchestrator = resolve(f"{PENALTIES}:BatchedPenalizerOrchestrator")(
            vocab_size=x.logits.shape[1], batch=self.batch, penalizers={resolve(f"{PENALTIES}:{name}") for name in names}
        )
        for step in range(x.generated.shape[1]):
            self.orchestrator.cumulate_output_tokens(x.generated[:, step])


@implements("penalties", library="sglang", name="sglang_torch", platforms=ANYWHERE, semantics={"order": "additive-first"})
class Penalties(_Penalties):
    """As the overlap scheduler applies them: accumulated apart, then added and scaled."""

    def run(self) -> None:
        import torch

        scale = resolve(f"{PENALTIES}.repetition_penalty:apply_scaling_penalties")
        additive = torch.zeros(self.x.logits.shape, dtype=torch.float32, device=self.x.device)
        self.orchestrator.accumulate_additive_penalties(additive)
        self.x.logits.add_(additive)
        scaling = self.orchestrator.accumulate_scaling_penalties()
        if scaling is not None:
            scale(self.x.logits, scaling)


@implements("penalties", library="sglang", name="sglang_torch_direct", platforms=ANYWHERE, semantics={"order": "additive-first"})
class PenaltiesDirect(_Penalties):
    """As they are applied without the overlap scheduler: one after another, in the order of a set of classes."""

    def run(self) -> None:
        self.orchestrator.apply(self.x.logits)


def _fp32_plain(case: Case) -> str | None:
    return "this sampler has no soft cap" if case.cap else None


@implements("greedy", library="sglang", name="sglang_torch_markov", platforms=ANYWHERE, semantics=AS_TORCH, accepts=_fp32_plain)
def markov_argmax(x: Any) -> Any:
    return markov(resolve(MARKOV).torch, x.logits, 0.0)


@implements("greedy", library="sglang", name="sglang_torch_markov_sharded", platforms=ANYWHERE, variant=True, semantics=AS_TORCH, accepts=in_shards)
def markov_argmax_sharded(x: Any) -> Any:
    return markov_sharded(resolve(MARKOV).torch, x.logits)
