"""One verification of a batch as the server makes it with DSPARK: the logits' adjustments, then the accept, with the names that ROCm binds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.dspark import MODULES, OWN_BUFFERS, _fresh_buffers
from harness.providers.sglang_triton.speculative import CHAIN
from harness.served.sampling.driving import grammars, request
from harness.served.sampling.layer import Layer, installed
from harness.served.sampling.plain import accept_chain, sort_mask_divide, sort_sum_divide
from harness.served.sampling.samplers import LINKED, described

VERIFY = "sglang.srt.speculative.dspark_components.dspark_verify"
UTILS = "sglang.srt.speculative.dflash_utils"
FILTERS = {
    "top_k_renorm_prob": ("sglang.kernels.ops.sampling.renorm_triton:top_k_renorm_probs_triton", sort_mask_divide),
    "top_p_renorm_prob": ("sglang.kernels.ops.sampling.renorm_triton:top_p_renorm_probs_triton", sort_sum_divide),
}
PLAIN = "on a CPU the filters, where the version binds any on ROCm, and the kernel of the chain are plain PyTorch: they have cells of their own"


def rocm(device: str, root: Path, kernel: Callable[..., None]) -> Layer:
    """A version's verification as ROCm binds its names, with `kernel` in place of the chain's. A filter that is None there stays None; on a CPU one
    that is a kernel of another module is plain PyTorch."""
    answers: dict[str, Any] = {"sglang.srt.utils.invariants.expect": _unchecked, f"{VERIFY}._VERIFY_DRAFT_PROBS": None}
    for module in MODULES:
        answers |= {f"{module}.chain_speculative_sampling_triton": kernel, f"{module}._get_or_create_chain_verify_buffers": _fresh_buffers}
    made = Layer("pytorch", False, device, root, "hip", answers)
    for name, (place, plain) in FILTERS.items():
        bound = made.load(UTILS, name)
        if bound is not None and getattr(bound, "__module__", UTILS) != UTILS:
            made.linker.space(UTILS)[name] = plain if device == "cpu" else resolve(place)
    return made


def _chain(**arguments: Any) -> None:
    (accept_chain if arguments["candidates"].device.type == "cpu" else resolve(*CHAIN))(**arguments)


def _unchecked(*args: Any, **named: Any) -> None:
    """An invariant that changes nothing."""


@implements("served_verify", library="sglang", name="served_dspark", platforms={"rocm", "cpu"}, notes=(LINKED, PLAIN, OWN_BUFFERS))
class ServedDspark:
    """DSPARK's verification on ROCm, token by token, with the batch as the scheduler hands it on."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, times, slots = x, x.draws, x.later.shape[1] + 1
        with described():
            self.layer = rocm(x.device, installed(), _chain)
            reqs = [request(self.layer, x, row) for row in range(x.case.batch)] * times
            info = self.layer.info(reqs, x.case.vocab)
            for step in range(x.generated.shape[1]):
                info.penalizer_orchestrator.cumulate_output_tokens(x.generated[:, step].repeat(times))
            info.grammars = grammars(self.layer, x, times)
            info.update_regex_vocab_mask()
            self.info = info.copy_for_forward()  # as the scheduler hands it on
        k = [one.sampling_params.top_k for one in reqs]
        self.hint = SimpleNamespace(max_top_k=max(k), uniform_top_k_value=k[0] if len(set(k)) == 1 else None)
        drafts = x.held.gather(2, x.picked.transpose(1, 2)).permute(2, 0, 1).flatten(0, 1)  # [draws * batch, slots - 1]
        self.candidates = torch.cat((torch.zeros_like(drafts[:, :1]), drafts), 1)
        held = torch.full((x.case.batch, slots - 1, x.case.vocab), -torch.inf, device=x.device).scatter_(2, x.held, 0.0)
        self.block = SimpleNamespace(
            draft_tokens=drafts,
            corrected_logits=held.repeat(times, 1, 1),
            greedy_mask=(self.info.top_ks == 1),
            temperatures=self.info.temperatures,
            greedy_draft=False,
        )
        self.logits = torch.cat((x.logits[:, None], x.later), 1).repeat(times, 1, 1).flatten(0, 1)

    def run(self) -> Any:
        import torch

        slots = self.candidates.shape[1]
        rows = self.logits.clone()
        with described():
            self.layer.load(UTILS, "apply_dflash_verify_logits_adjustments")(next_token_logits=rows, sampling_info=self.info, draft_token_num=slots)
            length, bonus, _ = self.layer.load(VERIFY, "accept_draft_tokens")(
                candidates=self.candidates,
                target_logits=rows,
                draft_block=self.block,
                sampling_info=self.info,
                draft_input=self.hint,
                gamma=slots - 1,
                verify_num_draft_tokens=slots,
            )
        self.layer.linker.trace.seen.clear()
        return torch.where(length > 0, self.candidates[:, 1], bonus).view(self.x.draws, -1).T
