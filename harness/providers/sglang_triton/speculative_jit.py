"""SGLang's JIT-compiled tree kernels (CUDA source in the wheel, built at first use); before them the same kernels came from sgl_kernel."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.errors import Missing, Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.speculative import build_arguments, verify_arguments

TREE = "sglang.kernels.ops.speculative.tree"
SAMPLE = "sglang.kernels.ops.speculative.sampling:tree_speculative_sampling_target_only"
DEVICES = {"cuda", "rocm"}


def _since(place: str) -> Any:
    try:
        return resolve(place)
    except Missing as error:
        raise Unsupported(f"this SGLang has no JIT tree kernels: {error}") from error


@implements("tree_verify_greedy", library="sglang", name="sglang_jit", platforms=DEVICES)
class TreeVerifyGreedy:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.verify = _since(f"{TREE}:verify_tree_greedy")
        self.x = x

    def run(self) -> Any:
        self.verify(**verify_arguments(self.x), target_predict=self.x.target_predict)


@implements("tree_build", library="sglang", name="sglang_jit", platforms=DEVICES)
class TreeBuild:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.build = _since(f"{TREE}:build_tree_kernel_efficient")
        self.x = x

    def run(self) -> Any:
        self.build(*build_arguments(self.x))


def sample_arguments(x: Any) -> dict[str, Any]:
    """The arguments of tree_speculative_sampling_target_only, by the names of its op schema."""
    return {
        **verify_arguments(x),
        "uniform_samples": x.uniform_samples,
        "uniform_samples_for_final_sampling": x.uniform_final,
        "target_probs": x.target_probs,
        "draft_probs": x.draft_probs,
        "threshold_single": x.threshold_single,
        "threshold_acc": x.threshold_acc,
        "deterministic": True,
    }


def thresholds(case: Case) -> str | None:
    """Callers clamp threshold_acc to 1e-9 at least."""
    return None if 0 < case.acc <= 1 and 0 <= case.single <= 1 else "thresholds are in (0, 1]"


@implements("tree_verify_sample", library="sglang", name="sglang_jit", platforms={"cuda"}, accepts=thresholds)
class TreeVerifySample:
    """Built with FlashInfer's headers."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.sample = _since(SAMPLE)
        self.arguments = sample_arguments(x)

    def run(self) -> Any:
        self.sample(**self.arguments)
