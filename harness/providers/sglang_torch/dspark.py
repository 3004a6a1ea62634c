"""SGLang's PyTorch twins of its accept kernels (DFLASH, DSPARK)."""

from __future__ import annotations

from typing import Any

from harness.errors import Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton import dspark as twin

ANYWHERE = {"cuda", "rocm", "cpu"}


@implements("softmax_temp", library="sglang", name="sglang_torch", platforms=ANYWHERE, notes=(twin.TAKEN,))
def softmax_temp(x: Any) -> Any:
    return twin.dspark(x, "softmax_temp")(logits=x.logits, temperatures=x.temperatures, rows_per_request=x.case.slots)


@implements("dspark_cap_len", library="sglang", name="sglang_torch", platforms=ANYWHERE, notes=(twin.TAKEN,))
def cap_len(x: Any) -> Any:
    return twin.dspark(x, "cap_correct_len")(correct_len=x.correct_len, verify_lens=x.verify_lens)


@implements("dspark_finalize_lens", library="sglang", name="sglang_torch", platforms=ANYWHERE, notes=(twin.TAKEN,))
def finalize_lens(x: Any) -> Any:
    return twin.finalized(twin.dspark(x, "finalize_accept_lens")(**twin.finalize_arguments(x)))


@implements("dspark_select_mixed", library="sglang", name="sglang_torch", platforms=ANYWHERE, notes=(twin.TAKEN,))
def select_mixed(x: Any) -> Any:
    return twin.selected(twin.dspark(x, "select_mixed_accept")(**twin.select_arguments(x)))


@implements("dspark_accept_greedy", library="sglang", name="sglang_torch", platforms=ANYWHERE, notes=(twin.TAKEN,))
def accept_greedy(x: Any) -> Any:
    return twin.dspark(x, "accept_greedy")(**twin.greedy_arguments(x))


@implements("dflash_accept", library="sglang", name="sglang_torch", platforms=ANYWHERE)
def dflash_accept(x: Any) -> Any:
    """The PyTorch path of the function that is served; newer versions launch their Triton kernel for CUDA tensors instead."""
    accept = twin.dflash_accept(x)
    if x.device != "cpu" and "_fused_correct_drafts_and_bonus_kernel" in accept.__globals__:
        raise Unsupported("on a device this SGLang launches its Triton kernel: see sglang_triton")
    return accept(candidates=x.candidates, target_predict=x.target_predict)


@implements("dspark_accept_sampling", library="sglang", name="sglang_torch", platforms={"cuda", "rocm", "interpret"}, notes=(twin.TAKEN, twin.OWN_BUFFERS))
def accept_sampling(x: Any) -> Any:
    """PyTorch around the chain kernel, which is Triton's."""
    return twin.dspark(x, "accept_sampling")(**twin.sampling_arguments(x))


@implements("dspark_accept_sampling", library="sglang", name="sglang_blockwise_torch", platforms=ANYWHERE, semantics={"noise": "torch"})
class Blockwise:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.arguments = twin.blockwise_arguments(x)
        self.accept = resolve(f"{twin.BLOCKWISE}:blockwise_rejection_torch")

    def run(self) -> Any:
        return twin.counted(self.accept, self.arguments)
