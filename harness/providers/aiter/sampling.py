"""AITER's samplers. The joint one takes top-p on the row's own mass and keeps every token as probable as the k-th (ties: all).

Random numbers come from the device's generator; seed and offset reach the kernels as 32-bit integers, so seeds that agree modulo
2^32 give one stream: seeds a row, as `seeded_sample` asks for, do not exist here.
"""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.sampling.drawing import too_many
from harness.providers.aiter import kernels
from harness.providers.registry import implements
from harness.providers.resolve import resolve

ROCM = {"rocm"}
ALL = {"ties": "all"}
JOINT = {"ties": "all", "order": "joint"}


def registered() -> Any:
    """torch.ops.aiter, which holds the samplers only after this import."""
    import aiter.ops.sampling  # noqa: F401
    import torch

    return torch.ops.aiter


def split(value: Any, off: int | float) -> tuple[Any, Any]:
    """A parameter as AITER takes it: (tensor a row or None, scalar)."""
    return (value, off) if hasattr(value, "dim") else (None, value)


def kept(top_k: Any, vocab: int) -> tuple[Any, Any]:
    """top_k for the samplers. One that keeps all is given as the vocabulary, as servers do: to the kernel 0 means that no token is
    accepted, and the search ends at the most probable one."""
    import torch

    if isinstance(top_k, torch.Tensor):
        return torch.where((top_k <= 0) | (top_k > vocab), vocab, top_k), 0
    return None, top_k if 0 < top_k <= vocab else vocab


@implements("top_k_renorm", library="aiter", platforms=ROCM, semantics=ALL, kernels=kernels.always("top_k_renorm_probs"))
def top_k_renorm(x: Any) -> Any:
    """As it is called: a scalar, or a tensor a row with the scalar 0."""
    return registered().top_k_renorm_probs(x.probs, *split(x.top_k, 0))


def _rows_differ(case: Case) -> str | None:
    return None if case.form != "scalar" else "the remedy is for a top_k a row"


@implements(
    "top_k_renorm",
    library="aiter",
    name="aiter_row_by_row",
    platforms=ROCM,
    semantics=ALL,
    accepts=_rows_differ,
    kernels=kernels.always("top_k_renorm_probs"),
)
def top_k_renorm_row_by_row(x: Any) -> Any:
    """The remedy for a tensor of top_k, whose scratch AITER sizes for 50 tokens (aiter#5192): one call a row, with a scalar in range."""
    import torch

    ops, vocab = registered(), x.probs.shape[1]
    rows = [ops.top_k_renorm_probs(x.probs[i : i + 1], None, k if 0 < k < vocab else vocab) for i, k in enumerate(x.top_k.tolist())]
    return torch.cat(rows)


@implements(
    "top_k_top_p_sample",
    library="aiter",
    platforms=ROCM,
    semantics=JOINT,
    accepts=too_many,
    kernels=kernels.always("top_k_top_p_sampling_from_probs"),
)
def top_k_top_p_sample(x: Any) -> Any:
    """A row of probabilities a draw: up to 256 tokens of 65,536 and more take another path than the rest."""

    def draw(part: Any) -> Any:
        top_k, top_p = kept(part.repeated("top_k"), part.probs.shape[1]), split(part.repeated("top_p"), 0.0)
        return registered().top_k_top_p_sampling_from_probs(part.repeated("probs"), None, *top_k, *top_p, True)

    return x.in_batches(draw)


@implements(
    "top_k_top_p_sample", library="aiter", name="aiter_indices", platforms=ROCM, semantics=JOINT, kernels=kernels.always("top_k_top_p_sampling_from_probs")
)
def top_k_top_p_sample_indices(x: Any) -> Any:
    """All draws in one launch: `indices` names the row of each, and parameters a row are those of the drawn row."""
    top_k, top_p = kept(x.top_k, x.probs.shape[1]), split(x.top_p, 0.0)
    return registered().top_k_top_p_sampling_from_probs(x.probs, x.draw_rows, *top_k, *top_p, True)


def _no_top_k(case: Case) -> str | None:
    return too_many(case) if (case.k <= 0 or case.k >= case.vocab) and case.form != "mixed" else "AITER's top-p sampler has no top_k"


@implements(
    "top_k_top_p_sample",
    library="aiter",
    name="aiter_top_p",
    platforms=ROCM,
    semantics=JOINT,
    accepts=_no_top_k,
    kernels=kernels.always("top_p_sampling_from_probs"),
)
def top_p_sample(x: Any) -> Any:
    """Its top-p sampler alone, a row of probabilities a draw."""
    top_p = registered().top_p_sampling_from_probs
    return x.in_batches(lambda part: top_p(part.repeated("probs"), None, *split(part.repeated("top_p"), 0.0), True))


def _uncapped(case: Case) -> str | None:
    return "AITER's samplers have no soft cap" if case.cap else None


class _IntoIds:
    """An op that writes int32 ids of each row of logits."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, self.logits = x, self.rows(x)
        self.ids = scratch.output("ids", self.logits.shape[0], dtype=torch.int32)
        self.temperatures = torch.full((self.logits.shape[0],), self.temperature, dtype=torch.float32, device=x.device)

    temperature = 1.0

    def rows(self, x: Any) -> Any:
        """The logits, contiguous: the kernels take the row's stride and no other."""
        return x.logits


@implements("greedy", library="aiter", platforms=ROCM, accepts=_uncapped, kernels=kernels.always("greedy_sample"))
class Greedy(_IntoIds):
    """greedy_sample, as SGLang's sampler calls it."""

    def run(self) -> None:
        resolve("aiter.ops.sample:greedy_sample")(self.ids, self.logits)


@implements("greedy", library="aiter", name="aiter_mixed", platforms=ROCM, accepts=_uncapped, kernels=kernels.always("mixed_sample"))
class GreedyMixed(_IntoIds):
    """mixed_sample with temperature 0, which it takes for greedy."""

    temperature = 0.0

    def run(self) -> None:
        resolve("aiter.ops.sample:mixed_sample")(self.ids, self.logits, self.temperatures)


ONE_LAUNCH = 1 << 28  # elements


def _one_launch(case: Case) -> str | None:
    elements = case.batch * case.draws * case.vocab
    return f"all draws are one launch here, which would hold {elements:,} logits" if elements > ONE_LAUNCH else None


class _FromProbs(_IntoIds):
    def rows(self, x: Any) -> Any:
        """Log-probabilities at temperature 1, a row a draw."""
        import torch

        return torch.log(x.repeated("probs"))


@implements("sample", library="aiter", platforms=ROCM, accepts=_one_launch, kernels=kernels.always("random_sample"))
class Sample(_FromProbs):
    """random_sample: the exponential race."""

    def run(self) -> None:
        resolve("aiter.ops.sample:random_sample")(self.ids, self.logits, self.temperatures)


@implements("sample", library="aiter", name="aiter_mixed", platforms=ROCM, accepts=_one_launch, kernels=kernels.always("mixed_sample"))
class SampleMixed(_FromProbs):
    """mixed_sample at temperature 1."""

    def run(self) -> None:
        resolve("aiter.ops.sample:mixed_sample")(self.ids, self.logits, self.temperatures)
