"""SGLang's Triton kernels that accept a block of drafts (DFLASH, DSPARK)."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.errors import Missing, Unsupported
from harness.providers.isolate import isolate
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.speculative import CHAIN, EVERYWHERE

MODULES = ("sglang.kernels.ops.speculative.dspark.dspark_accept", "sglang.srt.speculative.dspark_components.kernels.dspark_accept")
DFLASH = "sglang.kernels.ops.speculative.dflash"
BLOCKWISE = "sglang.kernels.ops.speculative.dspark.blockwise_rejection"
TAKEN = "on a CPU the functions are taken out of dspark_accept.py's source, which does not import without transformers"
OWN_BUFFERS = "on a CPU the cached verify buffers are replaced by fresh ones"
KERNELS = {
    "softmax_temp_triton": ("_softmax_temp_kernel",),
    "cap_correct_len_triton": ("_cap_correct_len_kernel",),
    "finalize_accept_lens_triton": ("_finalize_accept_lens_kernel", "FinalizeAcceptLensResult"),
    "select_mixed_accept_triton": ("_mixed_accept_select_kernel", "MixedAcceptSelectResult"),
    "accept_greedy_triton": ("gather_row_bonus_triton", "_gather_row_bonus_kernel", "_row_argmax", "CapCorrectLen", "cap_correct_len"),
    "accept_sampling_triton": (
        "_accept_sampling_core",
        "gather_two_level_bonus_triton",
        "_gather_two_level_bonus_kernel",
        "SoftmaxTemp",
        "softmax_temp",
        "CapCorrectLen",
        "cap_correct_len",
    ),
    "finalize_accept_lens": ("FinalizeAcceptLensResult",),
    "select_mixed_accept": ("MixedAcceptSelectResult",),
    "accept_greedy": ("_row_argmax", "CapCorrectLen", "cap_correct_len"),
    "accept_sampling": ("_accept_sampling_core", "SoftmaxTemp", "softmax_temp", "CapCorrectLen", "cap_correct_len"),
}


def _off_cuda(*args: Any, **kwargs: Any) -> bool:
    return False


def _fresh_buffers(*, bs: int, draft_token_num: int, device: Any) -> tuple[Any, ...]:
    import torch

    from harness.contracts.speculative.chain import chain_links
    from harness.contracts.speculative.trees import verify_buffers

    made = verify_buffers(bs, draft_token_num, draft_token_num, str(torch.device(device)))
    links = chain_links(bs, draft_token_num, str(torch.device(device)))
    return (made["retrive_index"], *links.values(), made["predicts"], made["accept_index"], made["accept_token_num"])


def dflash_accept(x: Any) -> Any:
    """compute_dflash_correct_drafts_and_bonus of this SGLang."""
    places = (f"{DFLASH}:compute_dflash_correct_drafts_and_bonus", "sglang.srt.speculative.dflash_utils:compute_dflash_correct_drafts_and_bonus")
    if x.device != "cpu":
        return resolve(*places)
    try:
        return resolve(places[0])
    except Missing:
        import torch

        name = places[1].partition(":")[2]
        return getattr(isolate("sglang.srt.speculative.dflash_utils", name, given={"torch": torch}), name)


def dspark(x: Any, name: str) -> Any:
    """A function of dspark_accept.py: imported on a device, taken out of its source on a CPU."""
    if x.device != "cpu":
        return resolve(*(f"{module}:{name}" for module in MODULES))
    import msgspec
    import torch
    import triton
    import triton.language as tl

    given = {"msgspec": msgspec, "torch": torch, "triton": triton, "tl": tl, "_is_npu": False, "inputs_on_cuda": _off_cuda}
    if "sampling" in name:
        given |= {"chain_speculative_sampling_triton": resolve(*CHAIN), "_get_or_create_chain_verify_buffers": _fresh_buffers}
    if "greedy" in name:
        given["compute_dflash_correct_drafts_and_bonus"] = dflash_accept(x)
    helpers = KERNELS.get(name, ())
    lost: Missing | None = None
    for module in MODULES:
        for wanted in (helpers, tuple(helper for helper in helpers if helper != "_row_argmax")):
            try:
                return getattr(isolate(module, name, *wanted, given=given), name)
            except Missing as error:
                lost = lost or error
    raise lost or Missing(name)


@implements("softmax_temp", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(TAKEN,))
def softmax_temp(x: Any) -> Any:
    return dspark(x, "softmax_temp_triton")(logits=x.logits, temperatures=x.temperatures, rows_per_request=x.case.slots)


@implements("dspark_cap_len", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(TAKEN,))
def cap_len(x: Any) -> Any:
    return dspark(x, "cap_correct_len_triton")(correct_len=x.correct_len, verify_lens=x.verify_lens)


def finalized(made: Any) -> dict[str, Any]:
    """A FinalizeAcceptLensResult by output name."""
    return {"commit_lens": made.commit_lens, "new_seq_lens": made.new_seq_lens, "trim": made.cap_trim_lens}


def finalize_arguments(x: Any) -> dict[str, Any]:
    return {"correct_len": x.correct_len, "cap_trim_lens": x.cap_trim_lens, "prefix_lens": x.prefix_lens}


@implements("dspark_finalize_lens", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(TAKEN,))
def finalize_lens(x: Any) -> Any:
    return finalized(dspark(x, "finalize_accept_lens_triton")(**finalize_arguments(x)))


def selected(made: Any) -> dict[str, Any]:
    """A MixedAcceptSelectResult by output name."""
    return {"correct_len": made.correct_len, "bonus": made.bonus, "cap_trim_lens": made.cap_trim_lens}


def select_arguments(x: Any) -> dict[str, Any]:
    names = (f"{kind}_{part}" for kind in ("greedy", "sampling") for part in ("len", "bonus", "trim"))
    return {"greedy_mask": x.greedy_mask, **{name: getattr(x, name) for name in names}}


@implements("dspark_select_mixed", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(TAKEN,))
def select_mixed(x: Any) -> Any:
    return selected(dspark(x, "select_mixed_accept_triton")(**select_arguments(x)))


def greedy_arguments(x: Any) -> dict[str, Any]:
    lens = {"verify_num_draft_tokens": x.case.slots, "cutoff_verify_lens": x.verify_lens}
    return {"candidates": x.candidates, "target_logits": x.target_logits, **lens}


@implements("dspark_accept_greedy", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(TAKEN,))
def accept_greedy(x: Any) -> Any:
    return dspark(x, "accept_greedy_triton")(**greedy_arguments(x))


def _fused(case: Case) -> str | None:
    rows = case.batch * case.slots
    gate = case.dtype == "fp32" and case.vocab >= 4096 and (rows <= 64 or (rows <= 384 and case.vocab >= 65536))
    return None if gate else "SGLang's fused argmax takes fp32, vocab >= 4096 and few rows; else torch.argmax"


@implements("dspark_accept_greedy", library="sglang", name="sglang_triton_fused", platforms={"cuda", "rocm"}, accepts=_fused)
def accept_greedy_fused(x: Any) -> Any:
    accept = dspark(x, "accept_greedy_triton")
    if "fused_argmax" not in accept.__kwdefaults__:
        raise Unsupported("this SGLang has no fused argmax")
    return accept(**greedy_arguments(x), fused_argmax=True)


@implements("dflash_accept", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class DflashAccept:
    """Launches the fused kernel itself, which the wrapper does for CUDA tensors only."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch
        import triton

        try:
            self.kernel = resolve(f"{DFLASH}:_fused_correct_drafts_and_bonus_kernel")
        except Missing as error:
            raise Unsupported(f"this SGLang accepts in plain PyTorch: {error}") from error
        self.x = x
        self.block = triton.next_power_of_2(max(x.case.slots - 1, 1))
        self.count = scratch.output("correct_len", x.case.batch, dtype=torch.int32)
        self.bonus = scratch.output("bonus", x.case.batch, dtype=torch.int64)

    def run(self) -> Any:
        x = self.x
        self.kernel[(x.case.batch,)](x.candidates, x.target_predict, self.count, self.bonus, x.case.slots, BLOCK=self.block)


@implements("dflash_commit", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class DflashCommit:
    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.commit = resolve(f"{DFLASH}:_compute_dflash_accept_bonus_triton_unchecked")
        batch, slots = x.case.batch, x.case.slots
        self.arguments = {
            "candidates": x.candidates,
            "target_top1": x.target_predict,
            "accept_lens_out": scratch.output("accept_lens", batch, dtype=torch.int32),
            "commit_lens_out": scratch.output("commit_lens", batch, dtype=torch.int32),
            "bonus_ids_out": scratch.output("bonus_ids", batch, dtype=torch.int64),
            "out_tokens_out": scratch.output("out_tokens", batch, slots, dtype=torch.int64),
            "prefix_lens": x.prefix_lens,
            "new_seq_lens_out": scratch.output("new_seq_lens", batch, dtype=torch.int64),
        }

    def run(self) -> Any:
        self.commit(**self.arguments)


def sampling_arguments(x: Any) -> dict[str, Any]:
    """The arguments of accept_sampling, with a scheduler's sampling_info that filters nothing."""
    from types import SimpleNamespace

    return {
        "candidates": x.candidates,
        "target_logits": x.target_logits,
        "draft_probs": x.draft_probs,
        "sampling_info": SimpleNamespace(temperatures=x.temperatures, need_top_k_sampling=False, need_top_p_sampling=False),
        "draft_input": SimpleNamespace(max_top_k=None, uniform_top_k_value=None),
        "gamma": x.case.slots - 1,
        "verify_num_draft_tokens": x.case.slots,
        "cutoff_verify_lens": x.verify_lens,
    }


@implements("dspark_accept_sampling", library="sglang", name="sglang_triton", platforms=EVERYWHERE, notes=(TAKEN, OWN_BUFFERS))
def accept_sampling(x: Any) -> Any:
    return dspark(x, "accept_sampling_triton")(**sampling_arguments(x))


def blockwise_arguments(x: Any) -> dict[str, Any]:
    """The arguments of the block-wise rejection, with a counter of its own; a certain draft goes without its logits."""
    try:
        noise = resolve(f"{BLOCKWISE}:RejectionNoise")(key=int(x.noise_key), counter=x.noise_step.clone())
    except Missing as error:
        raise Unsupported(f"this SGLang has no block-wise rejection: {error}") from error
    return {
        "candidates": x.candidates,
        "target_logits": x.target_logits,
        "draft_logits": x.draft_logits if x.case.spread else None,
        "target_temperatures": x.temperatures,
        "draft_temperatures": x.temperatures,
        "noise": noise,
        "cutoff_verify_lens": x.verify_lens,
    }


def counted(accept: Any, arguments: dict[str, Any]) -> Any:
    """A call, which must move the counter of its random numbers on by one. Looked at on a CPU alone: a device would have to be waited for."""
    counter = arguments["noise"].counter
    before = int(counter) if counter.device.type == "cpu" else None
    made = accept(**arguments)
    if before is not None and int(counter) != before + 1:
        raise RuntimeError(f"the counter of the random numbers went from {before} to {int(counter)}")
    return made


@implements("dspark_accept_sampling", library="sglang", name="sglang_blockwise", platforms=EVERYWHERE, semantics={"noise": "counter"})
class Blockwise:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.arguments = blockwise_arguments(x)
        self.accept = resolve(f"{BLOCKWISE}:blockwise_rejection_triton")

    def run(self) -> Any:
        return counted(self.accept, self.arguments)
