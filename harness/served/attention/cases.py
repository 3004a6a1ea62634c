"""The cases of the op contracts that a served model's attention layer is made of: by mode, context, batch and back end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.contracts import Case, op
from harness.contracts.models import Geometry

MODES = ("prefill", "prefix", "decode", "verify")
NODES = 4  # draft tokens a request that are verified
_FLAGS = {"soft_cap": ("uncapped", 0.0), "sinks": ("unsunk", "nosinks"), "window": ("unwindowed", -1)}


@dataclass(frozen=True)
class Asked:
    """What a server is asked: context, tokens in all of a prefill and cached tokens of the other modes; new: tokens over a prefix."""

    context: int
    batch: int
    dtype: str
    page: int = 1
    new: int = 128
    soft_cap: float = 0.0


@dataclass(frozen=True)
class ModeCase:
    """A case with the mode that it stands for; `flags`: the same case for each flag, held against the call without it."""

    mode: str
    context: int
    case: Case
    flags: tuple[Case, ...] = ()


def cases_of(geometry: Geometry, mode: str, asked: Asked) -> Iterator[ModeCase]:
    """The cases of one mode, with and without the model's sliding window. A window is cut to half of a context that it would not bite in."""
    if geometry.model.kind == "mla":
        yield _case(mode, asked, *_latent(geometry, mode, asked))
        return
    name, point = _heads(geometry, mode, asked)
    yield _case(mode, asked, name, point)
    if geometry.model.window and mode != "verify":
        window = min(geometry.model.window - 1, max(1, asked.context // 2))
        yield replace(_case(mode, asked, name, {**point, "window": window}), mode=f"{mode}, window {window}")


def _case(mode: str, asked: Asked, name: str, point: dict[str, Any]) -> ModeCase:
    axes = op(name).axes
    case = axes.case(**point)
    on = [law for axis, (law, off) in _FLAGS.items() if case.point.get(axis, off) != off]
    return ModeCase(mode, asked.context, case, tuple(axes.case(**{**case.point, "relation": law}) for law in on))


def _heads(g: Geometry, mode: str, asked: Asked) -> tuple[str, dict[str, Any]]:
    common: dict[str, Any] = {"batch": asked.batch, "heads": g.heads, "kv_heads": g.kv_heads, "dim": g.model.head_dim, "page": asked.page, "dtype": asked.dtype}
    common |= {"sinks": "sinks" if g.model.sinks else "nosinks", "soft_cap": asked.soft_cap}
    if mode == "prefill":
        return "extend_attention", {**common, "new": asked.context}
    if mode == "prefix":
        return "extend_attention", {**common, "new": asked.new, "prefix": asked.context}
    if mode == "verify":
        return "verify_attention", {**common, "nodes": NODES, "prefix": asked.context}
    return "decode_attention", {**common, "length": asked.context}


def _latent(g: Geometry, mode: str, asked: Asked) -> tuple[str, dict[str, Any]]:
    common: dict[str, Any] = {"batch": asked.batch, "heads": g.heads, "dtype": asked.dtype}
    if mode == "prefill":
        return "mla_prefill", {**common, "new": asked.context, "nope": g.model.nope, "v_dim": g.model.v_dim}
    if mode == "prefix":
        return "mla_prefill_absorbed", {**common, "page": asked.page, "new": asked.new, "prefix": asked.context}
    decode = {**common, "page": asked.page, "length": asked.context}
    return "mla_decode", {**decode, "queries": NODES} if mode == "verify" else decode
