"""AITER's MLA decode on the paged latent cache, with and without metadata; plain, and with heads padded or repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts import Case
from harness.contracts.mla.absorbed import ALL_FP8
from harness.providers.aiter import gates, kernels
from harness.providers.aiter.gates import repeated, to_sixteens, unchanged
from harness.providers.aiter.latent import Latent, bf16, needs
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve

ROCM = {"rocm"}
EXACT: dict[str, str] = {}
NARROW = {"arithmetic": "cache"}  # fp8 queries and an fp8 cache: the weights are rounded to fp8 before P V

_DECODE = "aiter.mla:mla_decode_fwd"
_METADATA = "aiter.ops.attention:get_mla_metadata_v1"
_SIZES = "aiter.ops.attention:get_mla_metadata_info_v1"


def _wide(case: Case) -> str | None:
    return bf16(case) or ("fp8 queries are another provider's" if case.cache in ALL_FP8 else None)


def _fp8(case: Case) -> str | None:
    return bf16(case) or (None if case.cache in ALL_FP8 else "this provider is for fp8 queries and an fp8 cache")


class Decode(Latent):
    """mla_decode_fwd without metadata: KV is split by a count that the wrapper picks, and merged by a Triton kernel."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.attend = resolve(_DECODE)
        self.plan: dict[str, Any] = {}
        self.scales = self.descales(x)

    def descales(self, x: Any) -> dict[str, Any]:
        """What fp8 queries and an fp8 cache count times, fp32 [1]."""
        import torch

        if x.case.cache == "samekv":
            return {}
        kv_scale = torch.full((1,), x.kv_scale, dtype=torch.float32, device=x.device)
        q_scale = torch.full((1,), x.q_scale, dtype=torch.float32, device=x.device)
        return {"kv_scale": kv_scale} | ({"q_scale": q_scale} if x.case.cache in ALL_FP8 else {})

    def run(self) -> Any:
        x = self.x
        _, lse = call(
            self.attend,
            self.q,
            self.kv,
            self.o,
            x.qo_indptr,
            x.kv_indptr,
            x.kv_indices,
            self.last,
            max(x.q_len),
            optional={"page_size": x.case.page, "nhead_kv": 1},
            sm_scale=x.scale,
            return_lse=self.lse,
            **self.scales,
            **self.plan,
        )
        return self.given(lse)


class DecodePersistent(Decode):
    """mla_decode_fwd with metadata: a plan of who attends to what, made beforehand, and mla_reduce_v1."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.plan = self.planned(x, scratch)

    def planned(self, x: Any, scratch: Any) -> dict[str, Any]:
        """The six buffers of the plan, filled."""
        queries = max(x.q_len)
        sizes = resolve(_SIZES)(x.case.batch, queries, self.heads, self.q.dtype, x.kv.dtype, is_sparse=False, fast_mode=True)
        pointers, work_indptr, work_info, reduce_indptr, final_map, partial_map = (
            scratch.empty(*(size if isinstance(size, tuple) else (size,)), dtype=dtype) for size, dtype in sizes
        )
        call(
            resolve(_METADATA),
            seqlens_qo_indptr=x.qo_indptr,
            seqlens_kv_indptr=x.kv_indptr,
            num_heads_per_head_k=self.heads,
            num_heads_k=1,
            is_causal=True,
            work_metadata_ptrs=pointers,
            work_info_set=work_info,
            work_indptr=work_indptr,
            reduce_indptr=reduce_indptr,
            reduce_final_map=final_map,
            reduce_partial_map=partial_map,
            kv_granularity=max(x.case.page, 32 if self.heads == 64 and x.case.cache in ALL_FP8 else 16),
            max_seqlen_qo=queries,
            uni_seqlen_qo=queries,
            fast_mode=True,
            dtype_q=self.q.dtype,
            dtype_kv=x.kv.dtype,
            optional={"kv_last_page_lens": self.last, "page_size": x.case.page},
        )
        return {
            "work_meta_data": pointers,
            "work_indptr": work_indptr,
            "work_info_set": work_info,
            "reduce_indptr": reduce_indptr,
            "reduce_final_map": final_map,
            "reduce_partial_map": partial_map,
        }


def _split(name: str, *, fp8: bool = False, lse: bool = False, widen: Callable[[int], int] = unchanged) -> Callable[[Any], Any]:
    """Declares a provider of decode without metadata; `lse` is for the gate of the other kind and changes nothing here."""
    return _declared(name, fp8, widen, gates.split_decode(widen), kernels.split_decode(widen))


def _persistent(name: str, *, fp8: bool = False, lse: bool = False, widen: Callable[[int], int] = unchanged) -> Callable[[Any], Any]:
    """Declares a provider of decode with metadata."""
    return _declared(name, fp8, widen, gates.persistent_decode(widen, lse), kernels.persistent_decode(widen, lse))


def _declared(name: str, fp8: bool, widen: Callable[[int], int], check: gates.Check, named: kernels.Kernels) -> Callable[[Any], Any]:
    accepts = _fp8 if fp8 else _wide
    return implements(
        "mla_decode",
        library="aiter",
        name=name,
        platforms=ROCM,
        semantics=NARROW if fp8 else EXACT,
        accepts=accepts if widen is unchanged else needs(widen, accepts, check),
        gate=gates.by_arch(check),
        kernels=named,
    )


@_split("aiter_split")
class Split(Decode):
    """Without metadata, bf16 queries."""


@_split("aiter_split_lse", lse=True)
class SplitLse(Decode):
    """As Split, with the log-sum-exp."""

    lse = True


@_split("aiter_split_pad", widen=to_sixteens)
class SplitPad(Decode):
    """As Split, zero heads added up to a multiple of 16."""

    widen = staticmethod(to_sixteens)


@_split("aiter_split_repeat", widen=repeated)
class SplitRepeat(Decode):
    """As Split, heads repeated until there are 16."""

    widen = staticmethod(repeated)
    repeats = True


@_split("aiter_split_fp8", fp8=True)
class SplitFp8(Decode):
    """Without metadata, fp8 queries and cache."""


@_split("aiter_split_fp8_lse", fp8=True, lse=True)
class SplitFp8Lse(Decode):
    """As SplitFp8, with the log-sum-exp."""

    lse = True


@_split("aiter_split_fp8_pad", fp8=True, widen=to_sixteens)
class SplitFp8Pad(Decode):
    """As SplitFp8, zero heads added up to a multiple of 16."""

    widen = staticmethod(to_sixteens)


@_split("aiter_split_fp8_repeat", fp8=True, widen=repeated)
class SplitFp8Repeat(Decode):
    """As SplitFp8, heads repeated until there are 16."""

    widen = staticmethod(repeated)
    repeats = True


@_persistent("aiter_persistent")
class Persistent(DecodePersistent):
    """With metadata, bf16 queries."""


@_persistent("aiter_persistent_lse", lse=True)
class PersistentLse(DecodePersistent):
    """As Persistent, with the log-sum-exp."""

    lse = True


@_persistent("aiter_persistent_pad", widen=to_sixteens)
class PersistentPad(DecodePersistent):
    """As Persistent, zero heads added up to a multiple of 16."""

    widen = staticmethod(to_sixteens)


@_persistent("aiter_persistent_repeat", widen=repeated)
class PersistentRepeat(DecodePersistent):
    """As Persistent, heads repeated until there are 16."""

    widen = staticmethod(repeated)
    repeats = True


@_persistent("aiter_persistent_fp8", fp8=True)
class PersistentFp8(DecodePersistent):
    """With metadata, fp8 queries and cache."""


@_persistent("aiter_persistent_fp8_lse", fp8=True, lse=True)
class PersistentFp8Lse(DecodePersistent):
    """As PersistentFp8, with the log-sum-exp."""

    lse = True


@_persistent("aiter_persistent_fp8_pad", fp8=True, widen=to_sixteens)
class PersistentFp8Pad(DecodePersistent):
    """As PersistentFp8, zero heads added up to a multiple of 16."""

    widen = staticmethod(to_sixteens)


@_persistent("aiter_persistent_fp8_repeat", fp8=True, widen=repeated)
class PersistentFp8Repeat(DecodePersistent):
    """As PersistentFp8, heads repeated until there are 16."""

    widen = staticmethod(repeated)
    repeats = True
