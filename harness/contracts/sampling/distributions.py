"""Input families of the sampling ops: probability rows and logits, built from integers so that every device has the same bits."""

from __future__ import annotations

import math

from harness.contracts._torch import torch
from harness.contracts.axes import number, words
from harness.contracts.inputs import DTYPES, Draw

PROBS = ("random", "peaked", "flat", "ties", "onehot", "tail")
# worked by hand: the first tokens of every row, in twentieths or hundredths, and what is left spread evenly over the others
WORKED = {
    "tied": (0.1, 0.2, 0.2, 0.2, 0.3),  # three tokens share the third place
    "equality": (0.3, 0.1, 0.1, 0.5),  # two tokens hold exactly 0.8
    "orders": (0.35, 0.25, 0.2, 0.05, 0.03),  # k = 4 and p = 0.82: four tokens of the whole mass, three of what top-k leaves
}
SPOILT = ("nan", "zero")
FOUR = (0.1, 0.2, 0.3, 0.4)
LOGITS = ("random", "peaked", "flat", "ties", "masked", "allmasked", "nan", "onenan", "extreme", "ends", "next", "steep")

BATCH = number("batch", "b", "rows", least=0)
VOCAB = number("vocab", "v", "vocabulary size", search=(1, 200_000))
VALUES = words("values", (*PROBS, *WORKED, "halved"), "input family", default="random")
DRAWN_VALUES = words("values", (*PROBS, *WORKED, "halved", *SPOILT), "input family; nan and zero spoil every second row", default="random")
LOGIT_VALUES = words("values", LOGITS, "input family", default="random")
DTYPE = words("dtype", DTYPES, "dtype of the input", default="fp32")
FORM = words("form", ("scalar", "rows", "mixed"), "the parameter as a scalar, a tensor of equal rows, or rows that differ", default="scalar")


def probs(draw: Draw, batch: int, vocab: int, values: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """[batch, vocab] rows that sum to 1 up to rounding.

    random: over 20 octaves; peaked: one token holds about 0.97; flat: all equal but one, which is 0; ties: four distinct
    weights; onehot: one token, the rest 0; tail: as random, with every second token a denormal; nan, zero: random with every
    second row spoilt; halved: the lower half of the ids twice as probable as the upper; tied, equality, orders: as WORKED.
    """
    if values in WORKED:
        row = torch.tensor(WORKED[values][:vocab], dtype=torch.float64)
        rest = (1 - row.sum()).clamp_min(0).masked_fill(row.sum() > 1 - 1e-9, 0.0) / max(1, vocab - len(row))
        row = torch.cat((row, rest.expand(max(0, vocab - len(row)))))
        return row.to(draw.device, dtype or torch.float32).repeat(batch, 1)
    if values == "halved":
        row = torch.where(torch.arange(vocab) < vocab // 2, 2.0, 1.0).double()
        return (row / row.sum()).to(draw.device, dtype or torch.float32).repeat(batch, 1)
    if values == "flat":
        p = torch.full((batch, vocab), 1 / max(vocab - 1, 1), dtype=torch.float32, device=draw.device)
        return p.scatter_(1, draw.integers(batch, 1, low=0, high=vocab), 0.0 if vocab > 1 else 1.0).to(dtype or torch.float32)
    # 22 random bits, so that no two tokens tie by chance (16-bit dtypes aside) and k is told from k + 1; a row's sum stays below 2^63
    mantissa = draw.integers(batch, vocab, low=1 << 22, high=1 << 23)
    if values in ("random", "peaked", "tail", *SPOILT):
        weights = mantissa << draw.integers(batch, vocab, low=0, high=20)
    elif values == "ties":
        weights = torch.ones_like(mantissa) << draw.integers(batch, vocab, low=0, high=4)
    else:
        weights = torch.zeros_like(mantissa)
    spot = draw.integers(batch, 1, low=0, high=vocab)
    if values == "peaked":
        weights.scatter_(1, spot, 32 * weights.sum(-1, keepdim=True))
    if values == "onehot":
        weights.scatter_(1, spot, 1)
    if values == "tail" and vocab > 1:
        weights[:, 1::2] = 0
    p = (weights.double() / weights.sum(-1, keepdim=True).double()).to(torch.float32)
    if values == "tail":
        p[:, 1::2] = (mantissa[:, 1::2].double() * 2.0**-154).to(torch.float32)
    if values in SPOILT:
        p[::2] = math.nan if values == "nan" else 0.0
    return p.to(dtype or torch.float32)


def logits(draw: Draw, batch: int, vocab: int, values: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """[batch, vocab] logits.

    random: standard deviation 2.3; peaked: one token 20 above; flat: equal in each row; ties: multiples of 1; masked: two
    tokens in three at -inf; allmasked: every second row all -inf; nan: every second row all NaN; onenan: one NaN in every
    second row; extreme: up to 1e4 in size; ends: the greatest is the last token of a row, the first of the next; next: the
    greatest is one step of the dtype above all others, which are below 0 in every second row; steep: far below 0, one token farther above the
    others than an exponential reaches: the last of a row, the first of the next, any of the third; four: .1 .2 .3 .4 and -inf.
    """
    if values == "four":
        row = torch.tensor((*FOUR, *[-math.inf] * vocab)[:vocab], device=draw.device)
        return row.to(dtype or torch.float32).repeat(batch, 1)
    if values == "flat":
        return draw.normal(batch, 1, dtype=dtype, scale=2.0).repeat(1, vocab)
    x = draw.normal(batch, vocab, scale=2.0)
    if values == "peaked":
        x.scatter_(1, draw.integers(batch, 1, low=0, high=vocab), 24.0)
    elif values == "ties":
        x = torch.round(x)
    elif values == "masked":
        x.masked_fill_(draw.integers(batch, vocab, low=0, high=3) != 0, -math.inf)
        x.scatter_(1, draw.integers(batch, 1, low=0, high=vocab), 1.0)
    elif values == "allmasked":
        x[::2] = -math.inf
    elif values == "nan":
        x[::2] = math.nan
    elif values == "onenan":
        x[::2].scatter_(1, draw.integers(batch, 1, low=0, high=vocab)[::2], math.nan)
    elif values == "extreme":
        x = x * 1024.0
    elif values == "ends":
        x[::2, -1], x[1::2, 0] = 24.0, 24.0
    elif values == "steep":
        spots = draw.integers(batch, 1, low=0, high=vocab)
        spots[::3], spots[1::3] = vocab - 1, 0
        x = (x - 1024.0).scatter_(1, spots, -512.0)
    elif values == "next":
        return _next(draw, batch, vocab, dtype or torch.float32)
    return x.to(dtype or torch.float32)


def _next(draw: Draw, batch: int, vocab: int, dtype: torch.dtype) -> torch.Tensor:
    step = 4 * torch.finfo(dtype).eps  # between numbers just below 8
    rows = torch.full((batch, vocab), 8 - 2 * step, dtype=dtype, device=draw.device)
    spots = draw.integers(batch, 1, low=vocab // 2, high=vocab)
    spots[:1] = vocab - 1
    rows.scatter_(1, spots, 8 - step)
    rows[1::2] = torch.where(rows[1::2] == 8 - step, -(8 - 2 * step), -(8 - step))
    return rows


def per_row(form: str, value: float, batch: int, others: tuple[float, ...], dtype: torch.dtype, device: str) -> torch.Tensor | int | float:
    """A sampling parameter in the form of the case: a scalar, [batch] equal, or [batch] cycling through value and others."""
    if form == "scalar":
        return value
    cycle = (value, *others) if form == "mixed" else (value,)
    return torch.tensor([cycle[i % len(cycle)] for i in range(batch)], dtype=dtype, device=device)


def column(value: torch.Tensor | int | float, batch: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A parameter of any form as [batch, 1]."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype).view(-1, 1)
    return torch.full((batch, 1), value, dtype=dtype, device=device)


def of_row(value: torch.Tensor | int | float, row: int) -> float:
    """One row's parameter, of any form, as a Python number."""
    return float(value[row]) if isinstance(value, torch.Tensor) else float(value)
