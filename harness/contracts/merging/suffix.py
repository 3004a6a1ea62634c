"""suffix_merge: attention over a short list of key slots, merged into the state of a prefix already attended to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Close
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.rows import row_by_row
from harness.words import plural

SIGMAS = 6.0


@contract("merging")
class suffix_merge:
    """Attention over a few cached tokens merged into a prefix state, in place (a tree's own branch after its shared prefix).

    q [tokens, heads, dim]; k, v [slots, kv_heads, dim]; slots int32 [tokens, suffix] physical token slots, of which the
    first suffix_len[token] (int32, may be 0) are visible; o [tokens, heads, dim] the prefix' output, overwritten; prefix_lse
    [tokens, heads] fp32 natural log -> o.
    """

    axes = (
        number("tokens", "t", "query tokens"),
        number("heads", "h", "query heads"),
        number("group", "g", "query heads a kv head", default=1, search=(1, 17)),
        number("suffix", "s", "most suffix tokens a query", search=(1, 65)),
        number("dim", "d", "head dimension", default=128, search=(16, 264)),
        words("dtype", DTYPES, "dtype of queries, cache and state"),
        words("values", ("random", "far"), "queries random; 128 times larger, past what exp can hold (far)", default="random"),
    )
    outputs = ("o",)
    mutates = ("o",)
    relations = row_by_row("tokens", "q", "slots", "suffix_len", "o", "prefix_lse")

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        return None if case.heads % case.group == 0 else f"groups of {plural(case.group, 'head')} do not part {plural(case.heads, 'query head')}"

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        dtype = dtype_of(case.dtype)
        count = 2 * case.suffix + 3
        kv_heads = max(1, case.heads // case.group)
        rows = [draw.permutation(count)[: case.suffix] for _ in range(case.tokens)]
        lengths = draw.integers(case.tokens, low=0, high=case.suffix + 1)
        lengths[0] = case.suffix
        return Inputs(
            case,
            draw.device,
            q=draw.normal(case.tokens, case.heads, case.dim, dtype=dtype, scale=128.0 if case.values == "far" else 1.0),
            k=draw.normal(count, kv_heads, case.dim, dtype=dtype),
            v=draw.normal(count, kv_heads, case.dim, dtype=dtype),
            slots=torch.stack(rows).to(torch.int32),
            suffix_len=lengths.to(torch.int32),
            o=draw.normal(case.tokens, case.heads, case.dim, dtype=dtype),
            prefix_lse=draw.normal(case.tokens, case.heads, scale=2.0),
            scale=1 / math.sqrt(case.dim),
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Close]:
        """One softmax over the prefix, as a single key of logit prefix_lse and value o, and the suffix' keys."""
        slots = x.slots.long()
        k, v = (t.double()[slots].repeat_interleave(x.q.shape[1] // t.shape[1], dim=2) for t in (x.k, x.v))  # [tokens, suffix, heads, dim]
        q = x.q.double()
        seen = torch.arange(slots.shape[1], device=slots.device)[None, :, None] < x.suffix_len[:, None, None]
        scores = (torch.einsum("thd,tshd->tsh", q, k) * x.scale).masked_fill(~seen, -math.inf)
        spread = (torch.einsum("thd,tshd->tsh", q * q, k * k).sqrt() * x.scale).masked_fill(~seen, 0.0)
        logits = torch.cat((x.prefix_lse.double()[:, None], scores), 1)
        weights = torch.softmax(logits, 1)[..., None]
        values = torch.cat((x.o.double()[:, None], v), 1)
        magnitude = (weights * values.abs()).sum(1)
        error = (SIGMAS * rounding.FP32 * spread).amax(1) + 4 * rounding.FP32 * (1 + logits.masked_fill(logits.isinf(), 0.0).abs().amax(1))
        return {"o": Close((weights * values).sum(1), magnitude, inner=2 * error[..., None] * magnitude, terms=slots.shape[1] + 1, dtype=x.o.dtype)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Token by token: the suffix' own attention first, then two states merged by their masses."""
        out = x.o.double().clone()
        group = x.q.shape[1] // x.k.shape[1]
        for token in range(x.q.shape[0]):
            chosen = x.slots[token, : int(x.suffix_len[token])].long()
            for head in range(x.q.shape[1]):
                score = x.k[chosen, head // group].double() @ x.q[token, head].double() * x.scale
                mass = torch.exp(score - x.prefix_lse[token, head].double())
                total = 1 + mass.sum()
                out[token, head] = (out[token, head] + mass @ x.v[chosen, head // group].double()) / total
        return {"o": out}

    def work(self, case: Case) -> Work:
        size = dtype_of(case.dtype).itemsize
        keys = case.tokens * case.suffix
        return Work(4 * keys * case.heads * case.dim, (2 * keys * max(1, case.heads // case.group) + 3 * case.tokens * case.heads) * case.dim * size)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "gqa":
            shape = {"tokens": 3 if small else 256, "suffix": 4 if small else 8, "dtype": "fp16" if small else "bf16"}
            yield {"heads": g.heads, "group": g.heads // g.kv_heads, "dim": g.model.head_dim, **shape}
