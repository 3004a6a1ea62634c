"""SGLang's Triton kernels for chains and trees of drafts."""

from __future__ import annotations

import inspect
from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import resolve

EVERYWHERE = {"cuda", "rocm", "interpret"}
CHAIN = ("sglang.kernels.ops.speculative.reject_sampling:chain_speculative_sampling_triton",)
GREEDY = ("sglang.kernels.ops.speculative.spec_tree:verify_tree_greedy_triton", "sglang.srt.speculative.eagle_utils:verify_tree_greedy_triton")
BUILD = ("sglang.kernels.ops.speculative.spec_tree:sgl_build_tree_kernel_triton", "sglang.srt.speculative.eagle_utils:sgl_build_tree_kernel_triton")
XPU = "SGLang serves it on XPU; CUDA and ROCm serve the compiled kernel"
MASK_MODES = {"full": 0, "qlen": 1, "packed": 2}


def verify_arguments(x: Any) -> dict[str, Any]:
    """The arguments that SGLang's verify functions share, by the names of its op schema."""
    names = ("predicts", "accept_index", "accept_token_num", "candidates", "retrive_index", "retrive_next_token", "retrive_next_sibling")
    return {name: getattr(x, name) for name in names}


@implements("chain_verify", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class ChainVerify:
    """The only verifier of sampled EAGLE chains on ROCm; newer versions verify blocks too."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.verify = resolve(*CHAIN)
        self.arguments = verify_arguments(x)
        self.arguments |= {
            "uniform_samples": x.uniform_samples,
            "uniform_samples_for_final_sampling": x.uniform_final,
            "target_probs": x.target_probs,
            "draft_probs": x.draft_probs,
            "threshold_single": 1.0,
            "threshold_acc": 1.0,
            "deterministic": True,
        }
        if x.case.mode == "block":
            if "block_verification" not in inspect.signature(self.verify).parameters:
                raise Unsupported("this SGLang verifies chains token by token only")
            self.arguments["block_verification"] = True

    def run(self) -> Any:
        self.verify(**self.arguments)


@implements("tree_verify_greedy", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(XPU,))
def tree_verify_greedy(x: Any) -> None:
    arguments = {name.replace("retrive", "retrieve"): value for name, value in verify_arguments(x).items()}
    resolve(*GREEDY)(**arguments, target_predict=x.target_predict)


def build_arguments(x: Any) -> tuple[Any, ...]:
    """The arguments of SGLang's tree builders, in order."""
    inputs = (x.parent_list, x.selected_index, x.seq_lens)
    outputs = (x.tree_mask, x.positions, x.retrive_index, x.retrive_next_token, x.retrive_next_sibling)
    return (*inputs, *outputs, x.case.topk, x.case.steps, x.case.slots, MASK_MODES[x.case.mode])


def _unpacked(case: Case) -> str | None:
    return "the Triton builder has no bit-packed mask" if case.mode == "packed" else None


@implements("tree_build", library="sglang", name="sglang_triton", platforms=EVERYWHERE, accepts=_unpacked, notes=(XPU,))
def tree_build(x: Any) -> None:
    resolve(*BUILD)(*build_arguments(x))
