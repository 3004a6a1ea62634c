"""SGLang's Triton kernels of DeepSeek sparse attention: the forward kernels, and the index tables before them."""

from __future__ import annotations

import inspect
from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve
from harness.providers.sglang_triton.mla import no_fp8_rounding

DEVICES = {"cuda", "rocm"}
EVERYWHERE = {"cuda", "rocm", "interpret"}
_DSA = "sglang.kernels.ops.attention.dsa"
BF16_GONE_ROUND = "under the interpreter the kernel is launched without its wrapper, which takes bf16 alone"
INTERPRETED = (
    "Triton's interpreter cannot run this kernel: tl.full with a constant expression as its shape fails there ('tuple' object has no attribute 'type')"
)


def _like_queries(case: Case) -> str | None:
    return None if case.cache == "samekv" else "this kernel reads a cache of the queries' dtype"


class _Prefill:
    union = 0
    wide = False  # row numbers of the cache in 64 bits, as a pool past 2^31 numbers needs them

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.out = x, scratch.output("o", like=x.q_nope)
        if x.device == "cpu":
            self.kernel = resolve(f"{_DSA}.triton_sparse_mla_prefill:_sparse_mla_prefill_kernel")
        else:
            self.forward = resolve(f"{_DSA}.triton_sparse_mla_prefill:sparse_mla_prefill")

    def run(self) -> Any:
        x, case = self.x, self.x.case
        if x.device != "cpu":
            self.forward(x.q, x.kv, x.indices, x.scale, topk_length=x.topk_length, out=self.out, union=self.union)
            return
        block = 1 << max(4, (case.heads - 1).bit_length())
        sizes = {"H": case.heads, "BLOCK_H": block, "D_QK": 576, "D_V": 512, "BLOCK_N": 64, "IDX64": self.wide}
        self.kernel[(case.tokens,)](x.q.contiguous(), x.kv, x.indices, x.topk_length, self.out, x.scale, case.k, **sizes)


@implements(
    "sparse_mla_prefill",
    library="sglang",
    name="sglang_triton",
    platforms={"cuda", "interpret"},
    semantics={"fp32_dot": "tf32"},
    accepts=_like_queries,
    notes=(BF16_GONE_ROUND,),
)
class SparsePrefill(_Prefill):
    """The CUDA kernel: one program a query, all heads in one tile."""


@implements(
    "sparse_mla_prefill",
    library="sglang",
    name="sglang_triton_wide",
    platforms={"interpret"},
    semantics={"fp32_dot": "tf32"},
    accepts=_like_queries,
    notes=(BF16_GONE_ROUND,),
    variant=True,
)
class SparsePrefillWide(_Prefill):
    """The same kernel as it is built for a pool past 2^31 numbers; on a device its wrapper alone decides that."""

    wide = True


def _union(case: Case) -> str | None:
    if case.k & (case.k - 1) or case.heads not in (4, 8):
        return "the union of four rows takes 4 or 8 heads and a power of two of indices; others fall to the plain kernel"
    return _like_queries(case)


@implements("sparse_mla_prefill", library="sglang", name="sglang_triton_union4", platforms={"cuda"}, accepts=_union)
class SparsePrefillUnion(_Prefill):
    """Four neighbouring queries share the union of their indices."""

    union = 4


class _Rocm:
    """The kernels that ROCm serves with, which are generic Triton. q and the weights are rounded to an fp8 cache's dtype."""

    place = ""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.forward = resolve(f"{_DSA}.{self.place}")
        if x.device == "cpu":
            raise Unsupported(INTERPRETED)
        no_fp8_rounding(x)
        self.x, self.q = x, (x.q_nope.contiguous(), x.q_pe.contiguous())

    def run(self) -> Any:
        x = self.x
        return self.forward(*self.q, x.kv, x.indices, x.scale).squeeze(0), None


_SLOW_TO_BUILD = 64  # heads: one tiling took ptxas over a minute on an H200's host


def _on_rocm() -> bool:
    import torch

    return bool(torch.version.hip)


def _plain_rows(case: Case) -> str | None:
    return "this kernel reads plain rows, not FlashMLA's packed ones" if case.cache == "packed" else None


@implements("sparse_mla_prefill", library="sglang", name="sglang_triton_rocm", platforms=EVERYWHERE, semantics={"arithmetic": "cache"}, accepts=_plain_rows)
class SparsePrefillRocm(_Rocm):
    place = "triton_sparse_mla:triton_sparse_mla_fwd"

    def prepare(self, x: Any, scratch: Any) -> None:
        if x.device != "cpu" and (x.case.heads >= _SLOW_TO_BUILD or x.kv.element_size() == 1) and not _on_rocm():
            raise Unsupported("on CUDA, where SGLang never starts this kernel: its tilings for 64 heads and more, and for fp8, take minutes to assemble")
        super().prepare(x, scratch)


@implements("sparse_mla_decode", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"arithmetic": "cache"}, accepts=_plain_rows)
class SparseDecode(_Rocm):
    place = "triton_sparse_mla_decode:triton_sparse_mla_decode"


@implements("topk_page_table", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class PageTableDecode:
    """One row a request."""

    def prepare(self, x: Any, scratch: Any) -> None:
        names = ("transform_index_page_table_decode", "transform_index_page_table_decode_fast")
        self.transform = resolve(*(f"{_DSA}.transform_index:{name}" for name in reversed(names)))
        self.x, self.out = x, scratch.output("slots", like=x.indices)

    def run(self) -> Any:
        self.transform(self.x.page_table, self.x.indices, self.out)


@implements("topk_page_table", library="sglang", name="sglang_triton_prefill", platforms=EVERYWHERE)
class PageTablePrefill:
    """The rows of several requests, each request with its own row of the table."""

    def prepare(self, x: Any, scratch: Any) -> None:
        names = ("transform_index_page_table_prefill", "transform_index_page_table_prefill_fast")
        self.transform = resolve(*(f"{_DSA}.transform_index:{name}" for name in reversed(names)))
        self.x, (rows, group) = x, (x.case.rows, x.case.group)
        self.lengths = [min(group, rows - row) for row in range(0, rows, group)]

    def run(self) -> Any:
        return call(self.transform, self.x.page_table[:: self.x.case.group], self.x.indices, self.lengths)


@implements("topk_page_table", library="sglang", name="sglang_triton_expanded", platforms={"interpret"}, variant=True)
class PageTableExpanded(PageTablePrefill):
    """As speculative decoding calls it: several queries a request, each query with a row of the table."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        if "page_table_is_expanded" not in inspect.signature(self.transform).parameters:
            raise Unsupported("this SGLang's kernel has no expanded tables")
        left, self.lengths = x.case.rows, []
        while left:
            self.lengths.append(min(left, 1 + len(self.lengths) * 2 % 5))
            left -= self.lengths[-1]

    def run(self) -> Any:
        return self.transform(self.x.page_table, self.x.indices, self.lengths, page_table_is_expanded=True)


@implements("valid_kv_indices", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class ValidKvIndices:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.compact = resolve(f"{_DSA}.triton_kernel:get_valid_kv_indices")
        self.x, self.out = x, scratch.output("kv_indices", x.slots.numel(), dtype=x.slots.dtype)

    def run(self) -> Any:
        self.compact(self.x.slots, self.x.kv_indptr, self.out, self.x.case.rows)
