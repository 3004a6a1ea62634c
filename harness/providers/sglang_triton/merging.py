"""SGLang's Triton kernels for merging attention states: of chunked prefix, and of decode context parallel (DCP) shards."""

from __future__ import annotations

import inspect
import math
from typing import Any

from harness.contracts.inputs import dtype_of
from harness.errors import Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import resolve

EVERYWHERE = {"cuda", "rocm", "interpret"}
LOG2E = 1 / math.log(2)
_KERNELS = "sglang.kernels.ops.attention"
MERGE = (f"{_KERNELS}.merge_state:merge_state_triton", "sglang.srt.layers.attention.triton_ops.merge_state:merge_state_triton")


@implements("merge_state", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"lse": "natural"})
class MergeState:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.merge = resolve(*MERGE)
        self.x = x
        self.out, self.lse = scratch.output("o", like=x.v_a), scratch.output("lse", like=x.s_a)

    def run(self) -> Any:
        self.merge(self.x.v_a, self.x.s_a, self.x.v_b, self.x.s_b, self.out, self.lse)


def _merges(case: Any, arch: str) -> tuple[str, ...]:
    """The kernel that the wrapper must launch: sgl_kernel's on CUDA for rows of whole 16-byte words, else Triton's."""
    whole = case.dim * dtype_of(case.dtype).itemsize % 16 == 0
    return ("^merge_attn_states_kernel$",) if arch.startswith("sm_") and whole else ("^merge_state_kernel$",)


@implements("merge_state", library="sglang", name="sglang_wrapper", platforms=EVERYWHERE, semantics={"lse": "natural"}, kernels=_merges)
class MergeStateWrapper(MergeState):
    """What SGLang's attention back ends call: sgl_kernel on CUDA, its Triton kernel elsewhere and, in silence, for a head dimension off the vector width."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.merge = resolve("sglang.srt.layers.attention.merge_state:merge_state")


class _Dcp:
    """x.v, x.lse as one tensor of shards, [parts, tokens, heads, ...], with the lse in the base the kernel is told of."""

    natural = True

    def prepare(self, x: Any, scratch: Any) -> None:
        self.v = x.v.transpose(0, 1).contiguous()
        self.lse = (x.lse if self.natural else x.lse * LOG2E).transpose(0, 1).contiguous()


@implements("merge_states", library="sglang", name="sglang_dcp", platforms=EVERYWHERE, semantics={"lse": "natural"})
class DcpCombine(_Dcp):
    """The all-to-all path of decode context parallelism: one kernel merges the shards."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.combine = resolve(f"{_KERNELS}.dcp_kernels:dcp_lse_combine_triton")

    def run(self) -> Any:
        return self.combine(self.v, self.lse, is_lse_base_on_e=self.natural, return_lse=True)


@implements("merge_states", library="sglang", name="sglang_dcp_alone", platforms=EVERYWHERE, variant=True, semantics={"lse": "natural"})
class DcpCombineAlone(DcpCombine):
    """As sglang_dcp, not asked for the log-sum-exp."""

    def run(self) -> Any:
        return {"o": self.combine(self.v, self.lse, is_lse_base_on_e=self.natural)[0]}


@implements("merge_states", library="sglang", name="sglang_dcp_base2", platforms=EVERYWHERE, semantics={"lse": "base-2"})
class DcpCombineBase2(DcpCombine):
    """As sglang_dcp, told that the log-sum-exps are in base 2."""

    natural = False


@implements("merge_states", library="sglang", name="sglang_dcp_correct", platforms=EVERYWHERE, semantics={"lse": "natural"})
class DcpCorrect(_Dcp):
    """The reduce-scatter path: each rank scales its own shard in fp32; the ranks' sum, a collective when served, is taken here."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.correct = resolve(f"{_KERNELS}.dcp_kernels:correct_attn_out")
        takes_base = "is_lse_base_on_e" in inspect.signature(self.correct).parameters
        if self.natural and not takes_base:
            raise Unsupported("this SGLang's correct_attn_out reads base 2 alone: it has no is_lse_base_on_e")
        self.base = {"is_lse_base_on_e": self.natural} if takes_base else {}
        parts, tokens, heads, dim = self.v.shape
        self.scaled = scratch.empty(parts, heads, tokens, dim, dtype=self.lse.dtype)

    def run(self) -> Any:
        for rank, (shard, scaled) in enumerate(zip(self.v, self.scaled, strict=True)):
            _, lse = self.correct(shard, self.lse, rank, None, scaled, **self.base)
        return self.scaled.sum(0).transpose(0, 1).to(self.v.dtype), lse


@implements("merge_states", library="sglang", name="sglang_dcp_correct_base2", platforms=EVERYWHERE, semantics={"lse": "base-2"})
class DcpCorrectBase2(DcpCorrect):
    """As sglang_dcp_correct, told that the log-sum-exps are in base 2."""

    natural = False


@implements("suffix_merge", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
def suffix_merge(x: Any) -> Any:
    merge = resolve(f"{_KERNELS}.suffix_attention_merge:merge_suffix_attention_in_place")
    merge(x.q, x.k, x.v, x.slots, x.suffix_len, x.o, x.prefix_lse.T.contiguous(), x.scale)
