"""Ops that change logits in place: token_bitmask and penalties."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real, words
from harness.contracts.expected import Close, Exact
from harness.contracts.inputs import Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.rows import row_by_row
from harness.contracts.relations.vocabulary import twice
from harness.contracts.sampling.distributions import BATCH, DTYPE, LOGIT_VALUES, VOCAB, logits

WORD = 32


@contract("sampling")
class token_bitmask:
    """Sets the logits of forbidden tokens to -inf, in place; nothing else changes.

    logits [batch, vocab + padding]; bitmask int32 [batch, ceil(vocab / 32)], bit v % 32 of word v // 32 set: token v is
    allowed; indices int32 [n] or None: only these rows of logits and bitmask take part. Columns past the bitmask's last
    bit (padding) stay as they are.
    """

    axes = (
        BATCH,
        VOCAB,
        words("bits", ("random", "sparse", "none", "every"), "tokens allowed: half, one in 64, none, all", default="random"),
        words("rows", ("all", "some"), "every row, or every second one by indices", default="all"),
        number("padding", "pad", "columns of logits past the vocabulary", default=0),
        DTYPE,
    )
    outputs = ("logits",)
    mutates = ("logits",)
    relations = {"twice": twice("logits")}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        shape = (case.batch, -(-case.vocab // WORD))
        fill = {"none": 0, "every": -1}
        if case.bits in fill:
            mask = torch.full(shape, fill[case.bits], dtype=torch.int32, device=draw.device)
        else:
            wide = draw.bits(*shape)
            if case.bits == "sparse":
                wide = wide & draw.bits(*shape) & draw.bits(*shape) & draw.bits(*shape) & draw.bits(*shape) & draw.bits(*shape)
            mask = ((wide << WORD) >> WORD).to(torch.int32)
        rows = draw.normal(min(case.batch, 256), case.vocab + case.padding, dtype=dtype_of(case.dtype))  # repeated beyond, to spare memory
        return Inputs(
            case,
            draw.device,
            logits=rows[torch.arange(case.batch, device=draw.device) % len(rows)],
            bitmask=mask,
            indices=torch.arange(0, case.batch, 2, dtype=torch.int32, device=draw.device) if case.rows == "some" else None,
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        """By bits of the words spread over the columns."""
        shift = torch.arange(WORD, dtype=torch.int32, device=x.device)
        bits = ((x.bitmask[:, :, None] >> shift) & 1).flatten(1)[:, : x.logits.shape[1]]
        golden, width = x.logits.clone(), bits.shape[1]
        rows = slice(None) if x.indices is None else x.indices.long()
        golden[rows, :width] = golden[rows, :width].masked_fill(bits[rows] == 0, -math.inf)
        return {"logits": Exact(golden, dtype=x.logits.dtype)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Token by token in plain Python."""
        golden = x.logits.tolist()
        for row in range(x.case.batch) if x.indices is None else x.indices.tolist():
            for token in range(min(WORD * x.bitmask.shape[1], x.logits.shape[1])):
                if not int(x.bitmask[row, token // WORD]) % 2**WORD >> token % WORD & 1:
                    golden[row][token] = -math.inf
        return {"logits": torch.tensor(golden, dtype=x.logits.dtype)}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab // (2 if case.rows == "some" else 1)
        return Work(elements, elements * dtype_of(case.dtype).itemsize + elements // 8)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        for batch in (1,) if small else (1, 8, 64):
            yield {"batch": batch, "vocab": g.model.vocab, "dtype": "fp32"}


@contract("sampling")
class penalties:
    """Frequency, presence and repetition penalties on the tokens each row has generated, in place.

    x = logits - frequency * count - presence * (count > 0), then, where count > 0, x * repetition if x < 0 else
    x / repetition. logits [batch, vocab]; generated int64 [batch, length]; frequency, presence, repetition fp32 [batch].
    Rows cycle through the case's values, none at all, and their opposites. order `scaling-first`: the repetition penalty
    is applied to the logits as they were, before the two subtractions.
    """

    axes = (
        BATCH,
        VOCAB,
        number("length", "l", "tokens generated so far", default=16, least=0),
        real("frequency", "fq", "frequency penalty", default=0.5, search=(0.0, 2.0, -2.0, 0.1)),
        real("presence", "ps", "presence penalty", default=0.25, search=(0.0, 2.0, -2.0, 0.1)),
        real("repetition", "rp", "repetition penalty; it divides", default=1.25, least=1e-6, search=(1.0, 1.1, 2.0, 0.5)),
        DTYPE,
        LOGIT_VALUES,
    )
    outputs = ("logits",)
    mutates = ("logits",)
    semantics = {"order": ("additive-first", "scaling-first")}
    relations = row_by_row("batch", "logits", "generated", "frequency", "presence", "repetition")

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        def cycled(*values: float) -> torch.Tensor:
            return torch.tensor([values[i % 3] for i in range(case.batch)], dtype=torch.float32, device=draw.device)

        tokens = draw.integers(case.batch, case.length, low=0, high=case.vocab)
        tokens[:, 1::3] = tokens[:, : tokens[:, 1::3].shape[1]]  # some tokens more than once
        return Inputs(
            case,
            draw.device,
            logits=logits(draw, case.batch, case.vocab, case.values, dtype_of(case.dtype)),
            generated=tokens,
            frequency=cycled(case.frequency, 0.0, -case.frequency),
            presence=cycled(case.presence, 0.0, -case.presence),
            repetition=cycled(case.repetition, 1.0, 1 / case.repetition),
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Close]:
        count = torch.zeros(x.logits.shape, dtype=torch.float64, device=x.device)
        count.scatter_add_(1, x.generated, torch.ones_like(x.generated, dtype=torch.float64))
        seen, scale = count > 0, x.repetition.double()[:, None]
        loss = x.frequency.double()[:, None] * count + x.presence.double()[:, None] * seen
        before = x.logits.double()
        if semantics["order"] == "additive-first":
            before = before - loss
        value = torch.where(seen, torch.where(before < 0, before * scale, before / scale), before)
        if semantics["order"] == "scaling-first":
            value = value - loss
        finite = x.logits.double().masked_fill(~x.logits.isfinite(), 0.0).abs()
        stretch = torch.where(seen, torch.maximum(scale, 1 / scale), 1.0)
        size = stretch * (finite + (x.frequency.double()[:, None] * count).abs() + x.presence.double()[:, None].abs() * seen)
        # a running sum of one penalty a token rounds once a token
        inner = rounding.FP32 * count * size
        undefined = x.logits.isnan()
        return {"logits": Close(value, size, operand=rounding.roundoff(x.logits.dtype), inner=inner, dtype=x.logits.dtype, undefined=undefined)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Token by token in plain Python, one subtraction an occurrence."""
        golden = x.logits.double().tolist()
        for row, tokens in enumerate(x.generated.tolist()):
            f, p, r = (float(getattr(x, name)[row]) for name in ("frequency", "presence", "repetition"))
            for token in set(tokens):
                value = golden[row][token]
                if semantics["order"] == "scaling-first":
                    value *= r if value < 0 else 1 / r
                value -= p
                for _ in range(tokens.count(token)):
                    value -= f
                if semantics["order"] == "additive-first":
                    value *= r if value < 0 else 1 / r
                golden[row][token] = value
        return {"logits": torch.tensor(golden, dtype=torch.float64)}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab
        return Work(4 * elements, 2 * elements * dtype_of(case.dtype).itemsize + 8 * case.batch * case.length)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        for batch in (1,) if small else (1, 8, 64):
            yield {"batch": batch, "vocab": g.model.vocab}
