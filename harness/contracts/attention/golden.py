"""The golden result of a ragged batch of requests, and the second formula."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.attending import attend, attend_by_chunks, natural
from harness.contracts.attention.batch import AttentionInputs, v_dim
from harness.contracts.axes import Case
from harness.contracts.expected import Close
from harness.contracts.registry import Semantics

_SCORES = 1 << 25  # scores held at once, fp64
_TANH = 2.0**-10  # PTX: tanh.approx.f32 errs by at most 2^-11 of the value; once more for its input

# of request numbers and positions (queries [r, nq, 1], keys [r, 1, nk], lengths [r, 1, 1]) the keys that a query sees
Visible = Callable[[list[int], "Grid"], "torch.Tensor"]


@dataclass(frozen=True)
class Grid:
    """Padded positions of some requests: `query` and `key` index within the request, `q_len`, `kv_len` [r, 1, 1]."""

    query: torch.Tensor
    key: torch.Tensor
    q_len: torch.Tensor
    kv_len: torch.Tensor

    @property
    def position(self) -> torch.Tensor:
        """Where a query stands among the keys: the last query at the last key (bottom-right); negative where it sees none."""
        return self.query + self.kv_len - self.q_len


def banded(x: AttentionInputs, window: str) -> Visible:
    """Causal and window masks; `window` two-sided or left: what a window hides after a query that is not causal."""

    def visible(_: list[int], at: Grid) -> torch.Tensor:
        seen = (at.query < at.q_len) & (at.key < at.kv_len)
        if x.causal:
            seen = seen & (at.key <= at.position)
        if x.window >= 0:
            seen = seen & (at.key >= at.position - x.window)
            if not x.causal and window == "two-sided":
                seen = seen & (at.key <= at.position + x.window)
        return seen

    return visible


@dataclass(frozen=True)
class _Arithmetic:
    """What a declared arithmetic rounds: `dot` a product of q k, `shared` all of them alike, `operand` and `floor` a weight, `narrow` queries to the cache's
    dtype, but `fresh` not against the keys after the prefix, which are read from the call's own arguments."""

    dot: float
    shared: float
    operand: float
    floor: float
    extra: float
    narrow: bool
    fresh: bool


def _arithmetic(x: AttentionInputs, semantics: Semantics) -> _Arithmetic:
    word = semantics["arithmetic"]
    if word == "by-group":
        word = "products" if x.case.heads == x.case.kv_heads else "cache"
    narrow = word in ("cache", "cached-prefix") and x.k_pool.dtype != x.q.dtype
    weights = x.k_pool.dtype if narrow else x.q.dtype
    told = rounding.dot(x.q.dtype, semantics["fp32_dot"], x.q.shape[-1])
    return _Arithmetic(
        dot=max(told["dot"], rounding.roundoff(x.q.dtype)) if word == "products" else told["dot"],
        shared=told["shared"],
        operand=rounding.operand_roundoff(weights, semantics["fp32_dot"]),
        floor=rounding.floor(weights),
        extra=_TANH * x.soft_cap if semantics["tanh"] == "approximate" else 0.0,
        narrow=narrow,
        fresh=word == "cached-prefix",
    )


def _stacks(x: AttentionInputs) -> Iterator[list[int]]:
    """Requests in stacks whose padded scores fit in memory together; those without queries are left out."""
    stack: list[int] = []
    for request in [i for i, n in enumerate(x.q_len) if n]:
        grown = [*stack, request]
        size = len(grown) * max(x.q_len[i] for i in grown) * max(1, max(len(x.slots[i]) for i in grown)) * x.case.heads
        if stack and size > _SCORES:
            yield stack
            grown = [request]
        stack = grown
    if stack:
        yield stack


def _rows(x: AttentionInputs, stack: list[int], low: int, high: int) -> tuple[Grid, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions of queries low to high of the stacked requests; their rows in q, the keys' slots (both padded with 0), and which rows are real."""
    device = x.device
    q_len, kv_len = ([values[i] for i in stack] for values in (x.q_len, [len(s) for s in x.slots]))
    query = torch.arange(low, high, device=device)[None, :, None]
    key = torch.arange(max(kv_len), device=device)[None, None, :]
    at = Grid(query, key, *(torch.tensor(values, device=device)[:, None, None] for values in (q_len, kv_len)))
    real = (query < at.q_len).squeeze(-1)
    rows = (x.qo_indptr.long()[stack][:, None] + query.squeeze(-1)).masked_fill(~real, 0)
    slots = torch.zeros(len(stack), max(kv_len), dtype=torch.int64, device=device)
    for row, request in zip(slots, stack, strict=True):
        row[: len(x.slots[request])] = x.slots[request]
    return at, rows, slots, real


def _held(flat: torch.Tensor, slots: torch.Tensor, at: Grid) -> torch.Tensor:
    """The pool's rows at the slots in fp64; 0 beyond a request's keys, whatever the pool holds there."""
    return flat[slots].double().masked_fill_((at.key >= at.kv_len).transpose(-1, -2)[..., None], 0.0)


def _queries(x: AttentionInputs, stack: list[int], rows: torch.Tensor, slots: torch.Tensor, at: Grid, how: _Arithmetic) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys in fp64. Where queries are rounded to the cache's dtype but not against fresh keys, both are laid side by
    side: [narrowed q, q] against [cached k, 0] or [0, fresh k]."""
    q, k = x.q.double()[rows], _held(x.k_flat, slots, at) * x.k_scale
    if not how.narrow:
        return q, k
    narrowed = x.q.to(x.k_pool.dtype).double()[rows]
    if not how.fresh:
        return narrowed, k
    prefix = torch.tensor([x.prefix_len[i] for i in stack], device=x.device)[:, None]
    cached = (torch.arange(slots.shape[1], device=x.device) < prefix)[..., None, None]
    return torch.cat((narrowed, q), -1), torch.cat((k * cached, k * ~cached), -1)


def golden(x: AttentionInputs, semantics: Semantics, visible: Visible) -> dict[str, Close]:
    """o [tokens, heads, v_dim] and lse [tokens, heads]. A row that sees no key has o = 0, lse = -inf (with sinks counted: the sink)."""
    how = _arithmetic(x, semantics)
    shape = (x.q.shape[0], x.case.heads)
    parts = {name: torch.zeros(*shape, v_dim(x.case), dtype=torch.float64, device=x.device) for name in ("o", "magnitude", "spread", "inner")}
    parts |= {name: torch.zeros(shape, dtype=torch.float64, device=x.device) for name in ("lse", "lse_inner")}
    for stack in _stacks(x):
        queries, keys = (max(lengths[i] for i in stack) for lengths in (x.q_len, [len(s) for s in x.slots]))
        step = max(1, _SCORES // (len(stack) * max(1, keys) * x.case.heads))
        for low in range(0, queries, step):
            at, rows, slots, real = _rows(x, stack, low, min(low + step, queries))
            q, k = _queries(x, stack, rows, slots, at, how)
            v = _held(x.v_flat, slots, at) * x.v_scale
            kwargs: dict[str, Any] = {"dot": how.dot, "shared": how.shared, "extra": how.extra, "floor": how.floor, **x.modified(rows, at.position, at.key)}
            part = attend(q, k, v, x.scale, visible=visible(stack, at), soft_cap=x.soft_cap, sinks=x.sinks, **kwargs)
            for name, values in parts.items():
                values[rows[real]] = getattr(part, name)[real]
    lse = parts["lse"]
    if x.sinks is not None and semantics["lse_sinks"] == "sinks":
        lse = torch.logaddexp(lse, x.sinks.double())
    lse_inner = parts["lse_inner"] + (how.operand if semantics["mass"] == "operand" else 0.0)
    return {
        "o": Close(
            parts["o"], parts["magnitude"], parts["spread"], operand=how.operand, inner=parts["inner"], terms=max(1, *map(len, x.slots), 1), dtype=x.q.dtype
        ),
        "lse": Close(lse, lse.masked_fill(lse.isinf(), 0.0).abs(), inner=lse_inner, dtype=torch.float32),
    }


def second(x: AttentionInputs, visible: Visible, semantics: Semantics) -> dict[str, torch.Tensor]:
    """The second formula, request by request; a rounding of queries that the arithmetic declares is made before the products."""
    how = _arithmetic(x, semantics)
    o = torch.zeros(x.q.shape[0], x.case.heads, v_dim(x.case), dtype=torch.float64, device=x.device)
    lse = o.new_zeros(o.shape[:2])
    for request, slots in enumerate(x.slots):
        count = x.q_len[request]
        rows = slice(int(x.qo_indptr[request]), int(x.qo_indptr[request]) + count)
        grid = torch.meshgrid(torch.arange(count, device=x.device), torch.arange(len(slots), device=x.device), indexing="ij")
        lengths = (torch.tensor(n, device=x.device) for n in (count, len(slots)))
        seen = visible([request], Grid(grid[0][None], grid[1][None], *lengths))[0]
        k, v = x.k_flat[slots].double() * x.k_scale, x.v_flat[slots].double() * x.v_scale
        q = x.q[rows].double()
        if how.narrow:
            cached = x.prefix_len[request] if how.fresh else len(slots)
            q = torch.cat((q.to(x.k_pool.dtype).double(), q), -1)
            k = torch.cat((k, k.new_zeros(k.shape)), -1)
            k[cached:] = k[cached:].roll(k.shape[-1] // 2, -1)
        kwargs: dict[str, Any] = {"visible": seen, "soft_cap": x.soft_cap, "sinks": x.sinks, **x.modified_one(request)}
        o[rows], lse[rows] = attend_by_chunks(q, k, v, x.scale, **kwargs, chunk=max(7, len(slots) // 5))
    if x.sinks is not None and semantics["lse_sinks"] == "sinks":
        lse = torch.logaddexp(lse, x.sinks.double())
    return {"o": o, "lse": lse}


class Attention(ABC):
    """What the attention contracts share beside their inputs: the outputs' names, the conversion of lse, memoised goldens."""

    outputs = ("o", "lse")

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        return None if case.heads % case.kv_heads == 0 else f"{case.kv_heads} kv heads do not divide {case.heads} query heads"

    @abstractmethod
    def visible(self, x: AttentionInputs, semantics: Semantics) -> Visible:
        """Which keys each query sees."""

    def reference(self, x: AttentionInputs, semantics: Semantics) -> dict[str, Close]:
        """As `golden`; computed once for semantics that differ only in what the conversion undoes or in what the case has not."""
        idle = {"lse": True, "lse_sinks": x.sinks is None, "fp32_dot": x.q.dtype != torch.float32, "tanh": not x.soft_cap}
        idle["window"] = x.causal or x.window < 0
        key = tuple((name, word) for name, word in semantics.items() if not idle.get(name))
        memo = x.__dict__.setdefault("memo", {})
        if key not in memo:
            memo[key] = golden(x, semantics, self.visible(x, semantics))
        return dict(memo[key])

    def second(self, x: AttentionInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """As `second`."""
        return second(x, self.visible(x, semantics), semantics)

    def convert(self, x: AttentionInputs, outputs: dict[str, torch.Tensor], semantics: Semantics) -> dict[str, torch.Tensor]:
        """lse in natural log."""
        return natural(outputs, semantics)
