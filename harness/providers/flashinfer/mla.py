"""flashinfer.mla: the paged wrapper, each back end forced."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.providers.registry import implements


def _half(case: Case) -> str | None:
    return "FlashInfer's MLA takes fp16 and bf16" if case.dtype == "fp32" else None


class _Mla:
    backend = ""

    def prepare(self, x: Any, scratch: Any) -> None:
        from flashinfer.mla import BatchMLAPagedAttentionWrapper

        self.x = x
        self.out = scratch.output("o", like=x.q_nope)
        self.wrapper = BatchMLAPagedAttentionWrapper(scratch.workspace(128 << 20), backend=self.backend)
        self.wrapper.plan(x.qo_indptr, x.kv_indptr, x.kv_indices, x.kv_len, x.case.heads, 512, 64, x.case.page, False, x.scale, x.q.dtype, x.kv.dtype)

    def run(self) -> Any:
        x = self.x
        return self.wrapper.run(x.q_nope, x.q_pe, x.ckv, x.kpe, out=self.out, return_lse=True)


@implements("mla_decode", library="flashinfer", name="flashinfer_fa2", platforms={"cuda"}, semantics={"lse": "base-2"}, accepts=_half)
class MlaFa2(_Mla):
    backend = "fa2"


@implements("mla_decode", library="flashinfer", name="flashinfer_fa3", platforms={"cuda"}, semantics={"lse": "base-2"}, accepts=_half)
class MlaFa3(_Mla):
    backend = "fa3"
