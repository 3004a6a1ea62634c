"""SGLang's attention kernels as its host code launches them on AMD devices, run by the interpreter: tiles, grids and branches that are
taken nowhere else. A device takes its own branches, so these providers are for the interpreter alone."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from harness.contracts import Case
from harness.providers.registry import implements
from harness.providers.sglang_triton.attention import DecodeAny, DecodeNormal, no_window
from harness.providers.sglang_triton.extend import DOT, Extend, Unified, as_many_keys
from harness.providers.sglang_triton.mla import MlaDecode, MlaPrefill, MlaPrefillAbsorbed, one_query

NOTE = "the interpreter runs what SGLang launches on {}: its host code is told of that device"
INTERPRETED = {"interpret"}
_MODULES = ("sglang.kernels.ops.attention.decode_attention", "sglang.kernels.ops.attention.extend_attention")
_UNITS = 256  # compute units of an MI355X


@contextlib.contextmanager
def launching_for(arch: str) -> Iterator[None]:
    """While the block runs, SGLang's decode and extend wrappers take the device for one of that arch (gfx950, gfx1250). What they ask
    for and this SGLang does not know yet is left out."""
    told: dict[str, Any] = {
        "_is_hip": True,
        "_is_gfx95": arch == "gfx950",
        "_is_gfx1250": arch == "gfx1250",
        "is_gfx95_supported": lambda: arch == "gfx950",
        "_mla_core_count": lambda index: _UNITS,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict("os.environ", {"SGLANG_MLA_DECODE_TUNE": "1"}))
        for module in map(importlib.import_module, _MODULES):
            for name, value in told.items():
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, value))
        yield


class _Gfx950:
    """Runs a provider's call with the host code told of a gfx950."""

    arch = "gfx950"

    def run(self) -> Any:
        with launching_for(self.arch):
            return super().run()  # type: ignore[misc]


class _Rotated(_Gfx950):
    """A decode whose batch the server calls uneven, so that programs take the requests in a rotated order."""

    optional: dict[str, Any]

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        super().prepare(x, scratch)  # type: ignore[misc]
        self.optional = {**self.optional, "uneven_batch": torch.ones(1, dtype=torch.int32, device=x.device)}


def _declared(op: str, arch: str = "gfx950", kind: str = "", **declared: Any) -> Any:
    """`implements` of an op by what is launched on the arch; `kind` tells two kernels of one op apart."""
    name = "_".join(filter(None, ("sglang_triton", kind, arch)))
    return implements(op, library="sglang", name=name, platforms=INTERPRETED, notes=(NOTE.format(arch),), variant=True, **declared)


@_declared("decode_attention", semantics={**DOT, "arithmetic": "by-group"}, accepts=no_window)
class DecodeOnGfx950(_Rotated, DecodeAny):
    """decode_attention_fwd with the tiles of AMD devices."""


@_declared("decode_attention", kind="normal", semantics={"arithmetic": "products"}, accepts=no_window)
class DecodeNormalOnGfx950(_Rotated, DecodeNormal):
    """decode_attention_fwd_normal with the tiles of AMD devices."""


@_declared("decode_attention", "gfx1250", semantics={**DOT, "arithmetic": "products"}, accepts=no_window)
class DecodeOnGfx1250(_Gfx950, DecodeAny):
    """decode_attention_fwd with softmax weights kept in fp32."""

    arch = "gfx1250"


@_declared("mla_decode", semantics={**DOT, "arithmetic": "cache"}, accepts=one_query)
class MlaDecodeOnGfx950(_Rotated, MlaDecode):
    """decode_attention_fwd with the split count that SGLang tuned for the whole batch."""


@_declared("extend_attention", semantics={**DOT, "arithmetic": "cached-prefix", "lse_sinks": "sinks"}, accepts=as_many_keys)
class ExtendOnGfx950(_Gfx950, Extend):
    """extend_attention_fwd with query tiles of the ragged batch in one row of programs, and outputs stored transposed."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.flags["extend_seq_lens_cpu"] = x.q_len


@_declared("extend_attention", "gfx1250", semantics={**DOT, "arithmetic": "cached-prefix", "lse_sinks": "sinks"}, accepts=as_many_keys)
class ExtendOnGfx1250(_Gfx950, Extend):
    """extend_attention_fwd with softmax weights kept in fp32."""

    arch = "gfx1250"


@_declared("extend_attention", "gfx1250", "unified", semantics={**DOT, "arithmetic": "cache"}, accepts=as_many_keys)
class UnifiedOnGfx1250(_Gfx950, Unified):
    """extend_attention_fwd_unified with softmax weights kept in fp32."""

    arch = "gfx1250"


def _kimi(case: Case) -> str | None:
    return None if case.heads == 12 else "other than at 12 heads this is extend_attention's kernel of a gfx950"


@_declared("mla_prefill", semantics=DOT, accepts=_kimi)
class MlaPrefillOnGfx950(_Gfx950, MlaPrefill):
    """extend_attention_fwd at 12 heads of 192 and 128: softmax in powers of two."""


@_declared("mla_prefill_absorbed", semantics=DOT, accepts=_kimi)
class MlaPrefillAbsorbedOnGfx950(_Gfx950, MlaPrefillAbsorbed):
    """extend_attention_fwd at 12 heads of 576 and 512: softmax in powers of two."""
