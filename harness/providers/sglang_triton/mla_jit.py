"""SGLang's own CUDA kernels of MLA and the sparse indexer, built by its JIT at first use."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements
from harness.providers.resolve import resolve

CUDA = {"cuda"}
CONCAT = ("sglang.kernels.ops.attention.concat_mla", "sglang.jit_kernel.concat_mla")


def _only_128(case: Case) -> str | None:
    return None if (case.heads, case.nope, case.dtype) == (128, 128, "bf16") else "concat_mla_k is built for 128 heads of 128 + 64 in bf16"


def _only_bf16(case: Case) -> str | None:
    return None if case.dtype == "bf16" else "concat_mla_absorb_q is built for bf16"


def _built(case: Case) -> str | None:
    return None if case.k in (512, 2048) else "SGLang's fast_topk is built for 512 and 2,048 tokens"


@implements("concat_mla_k", library="sglang", name="sglang_jit", platforms=CUDA, accepts=_only_128)
class ConcatMlaK:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.concat = resolve(*(f"{place}:concat_mla_k" for place in CONCAT))
        self.x, self.k = x, scratch.output("k", x.case.tokens, x.case.heads, x.case.nope + 64, dtype=x.k_nope.dtype)

    def run(self) -> Any:
        self.concat(self.k, self.x.k_nope, self.x.k_rope)


@implements("concat_mla_absorb_q", library="sglang", name="sglang_jit", platforms=CUDA, accepts=_only_bf16)
def concat_mla_absorb_q(x: Any) -> Any:
    return resolve(*(f"{place}:concat_mla_absorb_q" for place in CONCAT))(x.q_nope, x.q_rope)


@implements("indexer_topk", library="sglang", name="sglang_jit", platforms=CUDA, accepts=_built, promises=())  # its atomics give the picks in any order
def indexer_topk(x: Any) -> Any:
    return resolve("sglang.kernels.ops.attention.fast_topk:fast_topk")(x.scores, x.lengths, x.k, row_starts=x.row_starts)
