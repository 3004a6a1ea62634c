"""merge_state and merge_states: attention over a union of key sets from the results over its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.attending import natural
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Close
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.heads import padded
from harness.contracts.relations.parts import commuted, reordered
from harness.contracts.relations.rows import row_by_row

VALUES = ("random", "far", "masses", "empty", "bothempty")
_AXES = (
    number("tokens", "t", "query tokens", least=0),
    number("heads", "h", "query heads"),
    number("dim", "d", "head dimension", default=128, search=(16, 520)),
    words("dtype", DTYPES, "dtype of the states"),
    words("values", VALUES, "lse values: near; far apart; masses 2 and 8; one part empty; every part empty in some rows", default="random"),
)


def _draw(case: Case, draw: Draw, parts: int) -> dict[str, torch.Tensor]:
    """v [tokens, parts, heads, dim] and natural-log lse [tokens, parts, heads] fp32; an empty part has v = 0 and lse = -inf.

    `masses` are the shards of vllm-project/vllm#47079.
    """
    v = draw.normal(case.tokens, parts, case.heads, case.dim, dtype=dtype_of(case.dtype))
    lse = draw.normal(case.tokens, parts, case.heads, scale=64.0 if case.values == "far" else 4.0)
    if case.values == "masses":  # softmax masses 2, 8, 2, ...: weights .2 and .8 for two parts; an lse read in the other base gives .277 or .119
        lse[:, ::2], lse[:, 1::2] = math.log(2), math.log(8)
    if case.values in ("empty", "bothempty"):
        lse[:, -1, ::2] = -math.inf
        lse[:, 0, 1::4] = lse[:, -1, 3::4] = 0.0  # one key of score 0: no sign that a part is empty
    if case.values == "bothempty":
        lse[::2] = -math.inf
    return {"v": v.masked_fill(lse.isinf()[..., None], 0.0), "lse": lse}


def merged(v: torch.Tensor, lse: torch.Tensor, dtype: torch.dtype) -> dict[str, Close]:
    """v [tokens, parts, heads, dim], natural-log lse [tokens, parts, heads] -> o, lse. All parts empty: o = 0, lse = -inf."""
    v, lse = v.double(), lse.double()
    total = torch.logsumexp(lse, dim=1)
    weights = torch.exp(lse - total.masked_fill(total.isinf(), 0.0)[:, None])[..., None]
    # exp of a difference of fp32 numbers: relative error of the weight grows with the size of the lse
    error = 4 * rounding.FP32 * (2 + lse.masked_fill(lse.isinf(), 0.0).abs().amax(1))
    magnitude = (weights * v.abs()).sum(1)
    return {
        "o": Close((weights * v).sum(1), magnitude, operand=rounding.roundoff(dtype), inner=error[..., None] * magnitude, terms=v.shape[1], dtype=dtype),
        "lse": Close(total, total.masked_fill(total.isinf(), 0.0).abs(), inner=error, dtype=torch.float32),
    }


def merged_pairwise(v: torch.Tensor, lse: torch.Tensor) -> dict[str, torch.Tensor]:
    """The second formula: parts folded one after another with tanh weights, w = (1 + tanh(d / 2)) / 2."""
    o, total = v[:, 0].double(), lse[:, 0].double()
    for part in range(1, v.shape[1]):
        other = lse[:, part].double()
        gone = total.isinf() & other.isinf()
        share = ((1 + torch.tanh((total - other) / 2)) / 2).masked_fill(gone, 0.0)
        o = o * share[..., None] + v[:, part].double() * (1 - share)[..., None]
        o = o.masked_fill(gone[..., None], 0.0)
        high, low = torch.maximum(total, other), torch.minimum(total, other)
        total = torch.where(gone, -math.inf, high + torch.log1p(torch.exp(low - high)))
    return {"o": o, "lse": total}


def _for_model(g: Geometry, small: bool, **more: Any) -> Iterator[dict[str, Any]]:
    """The states that a split prefix leaves on one rank: value heads of the un-absorbed form for mla."""
    dim = g.model.v_dim if g.model.kind == "mla" else g.model.head_dim
    for tokens in (3,) if small else (1, 128, 4096):
        yield {"tokens": tokens, "heads": g.heads, "dim": dim, "dtype": "fp16" if small else "bf16", **more}


def _work(case: Case, parts: int) -> Work:
    rows = case.tokens * case.heads
    return Work(3 * rows * case.dim * parts, rows * (parts + 1) * (case.dim * dtype_of(case.dtype).itemsize + 4))


@contract("merging")
class merge_state:
    """Merge two attention states: v_a, v_b [tokens, heads, dim], s_a, s_b [tokens, heads] fp32 natural-log lse -> o, lse.

    An empty part has lse = -inf; two empty parts give o = 0, lse = -inf.
    """

    axes = _AXES
    outputs = ("o", "lse")
    semantics = {"lse": ("natural", "base-2")}
    relations = {
        **row_by_row("tokens", "v_a", "v_b", "s_a", "s_b"),
        **padded({"v_a": 1, "v_b": 1, "s_a": 1, "s_b": 1}, {"o": 1, "lse": 1}),
        "commuted": commuted(),
        "strided": strided("v_a", "v_b"),
    }

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        states = _draw(case, draw, 2)
        v, lse = states["v"], states["lse"]
        parts = {f"v_{name}": v[:, i].contiguous() for i, name in enumerate("ab")}
        return Inputs(case, draw.device, **parts, **{f"s_{name}": lse[:, i].contiguous() for i, name in enumerate("ab")})

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Close]:
        return merged(torch.stack((x.v_a, x.v_b), 1), torch.stack((x.s_a, x.s_b), 1), x.v_a.dtype)

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        return merged_pairwise(torch.stack((x.v_a, x.v_b), 1), torch.stack((x.s_a, x.s_b), 1))

    def convert(self, x: Inputs, outputs: dict[str, torch.Tensor], semantics: Semantics) -> dict[str, torch.Tensor]:
        return natural(outputs, semantics)

    def work(self, case: Case) -> Work:
        return _work(case, 2)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        return _for_model(g, small)


@contract("merging")
class merge_states:
    """Merge n attention states, as decode context parallelism needs: v [tokens, parts, heads, dim], lse [tokens, parts, heads]
    fp32 natural log -> o [tokens, heads, dim], lse [tokens, heads]. Empty parts as in merge_state."""

    axes = (number("parts", "n", "states to merge", search=(1, 17)), *_AXES)
    outputs = ("o", "lse")
    semantics = {"lse": ("natural", "base-2")}
    relations = {**row_by_row("tokens", "v", "lse"), **padded({"v": 2, "lse": 2}, {"o": 1, "lse": 1}), "commuted": reordered()}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, **_draw(case, draw, case.parts))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Close]:
        return merged(x.v, x.lse, x.v.dtype)

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        return merged_pairwise(x.v, x.lse)

    def convert(self, x: Inputs, outputs: dict[str, torch.Tensor], semantics: Semantics) -> dict[str, torch.Tensor]:
        return natural(outputs, semantics)

    def work(self, case: Case) -> Work:
        return _work(case, case.parts)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        return _for_model(g, small, parts=4)
