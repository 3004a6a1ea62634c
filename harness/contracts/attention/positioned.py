"""positioned_attention: logits that are changed by where query and key stand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.attention.batch import FLAGS, LAYOUT, SEMANTICS, SHAPE, AttentionInputs, cache_dtype, draw_batch, v_dim
from harness.contracts.attention.extend import with_fresh
from harness.contracts.attention.golden import Attention, Visible, banded
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Close
from harness.contracts.inputs import Draw, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.paging import LENGTHS, ragged
from harness.contracts.registry import Semantics, Work, contract


class PositionedInputs(AttentionInputs):
    """As AttentionInputs, with temperature_length (0: none), `inverse` which formula it has, and bias fp32 [tokens, heads, span] or None."""

    def _factor(self, position: torch.Tensor) -> torch.Tensor:
        """What a query's logits are multiplied by, fp64, of its position."""
        length, at = self.temperature_length, position.double().clamp_min(1)
        if self.inverse:
            return torch.where(position >= length, length / (at + 1), 1.0)
        return torch.where(position > length, at.log2() / math.log2(length), 1.0)

    def modified(self, rows: torch.Tensor, position: torch.Tensor, key: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {}
        if self.temperature_length:
            found["factor"] = self._factor(position.squeeze(-1))
        if self.bias is not None:
            distance, span = position - key, self.bias.shape[-1]
            at = distance.clamp(0, span - 1)[:, :, None, :].expand(-1, -1, self.bias.shape[1], -1)
            added = self.bias.double()[rows].gather(-1, at).transpose(1, 2)
            found["bias"] = added * ((distance >= 0) & (distance < span)).unsqueeze(1)
        return found

    def modified_one(self, request: int) -> dict[str, torch.Tensor]:
        queries, keys, found = self.q_len[request], len(self.slots[request]), {}
        positions = range(keys - queries, keys)
        if self.temperature_length:
            found["factor"] = self._factor(torch.tensor(positions, device=self.device))
        if self.bias is not None:
            rows, span = self.bias[int(self.qo_indptr[request]) :][:queries].double(), self.bias.shape[-1]
            found["bias"] = rows.new_zeros(rows.shape[1], queries, keys)
            for query, position in enumerate(positions):
                low = max(0, position - span + 1)
                found["bias"][:, query, low : position + 1] = rows[query, :, : position + 1 - low].flip(-1)
        return found


@contract("attention")
class positioned_attention(Attention):
    """Causal attention of new tokens over their prefix and themselves, with logits changed by position: a temperature and a bias.

    Inputs as extend_attention. After the soft cap, the logits of a query at position n > t, the temperature length, are multiplied by
    log2(n) / log2(t) (Grok); then bias [tokens, heads, span], fp32, adds bias[query, head, n - m] for keys m at distances n - m from 0
    to span - 1 -> o, lse. With the semantics `inverse` the factor is t / (n + 1), for n >= t: SGLang's deterministic kernel has that.
    """

    axes = (
        *SHAPE,
        number("new", "q", "most new tokens (queries) of a request"),
        number("prefix", "p", "longest cached prefix in tokens", default=0, search=(0, 4097)),
        number("temperature", "xt", "temperature length in tokens; 0: no temperature", default=0, search=(2, 4097)),
        number("span", "rb", "distances that have a bias; 0: no bias", default=0, search=(1, 4097)),
        *LAYOUT,
        words("lengths", LENGTHS, "empty: some requests have no new token", default="uniform"),
        *FLAGS,
    )
    semantics = {**SEMANTICS, "temperature": ("logarithmic", "inverse")}

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        return "a temperature length of 1 has no logarithm to divide by" if case.temperature == 1 else super().impossible(case)

    def inputs(self, case: Case, draw: Draw) -> PositionedInputs:
        new = ragged(draw, case.batch, case.new, case.lengths)
        prefix = ragged(draw, case.batch, case.prefix, case.lengths, low=0)
        x = with_fresh(draw_batch(case, draw, new, [n + m for n, m in zip(new, prefix, strict=True)], causal=True))
        bias = draw.normal(sum(new), case.heads, case.span, scale=2.0) if case.span else None
        return PositionedInputs(**vars(x), temperature_length=case.temperature, bias=bias, inverse=False)

    def visible(self, x: AttentionInputs, semantics: Semantics) -> Visible:
        return banded(x, "left")

    def reference(self, x: AttentionInputs, semantics: Semantics) -> dict[str, Close]:
        return super().reference(_told(x, semantics), semantics)

    def second(self, x: AttentionInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        return super().second(_told(x, semantics), semantics)

    def work(self, case: Case) -> Work:
        row, pairs = case.dim + v_dim(case), case.new * case.prefix + case.new * (case.new + 1) // 2
        queries = case.batch * case.new * case.heads * (row * dtype_of(case.dtype).itemsize + 4 * case.span)
        keys = case.batch * (case.new + case.prefix) * case.kv_heads * row * cache_dtype(case).itemsize
        return Work(2 * case.batch * case.heads * pairs * row, queries + keys)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        return iter(())


def _told(x: Any, semantics: Semantics) -> Any:
    """The inputs, told which temperature is meant."""
    return x.copy_with(inverse=semantics["temperature"] == "inverse")
