"""Closeness by a rounding budget, element by element, so that no wrong row or head hides behind a large neighbour.

    tolerance = eps_out |golden| + operand min(2 magnitude, |golden| + LIKELY spread) + 2 u_32 sqrt(terms) magnitude + inner + smallest

eps_out is one ulp of the output dtype; the other symbols are those of `Close`. docs/tolerance.md derives each term. Nothing here comes
from the kernel under test.
"""

from __future__ import annotations

import math

import torch

from harness.checks.outcome import Outcome
from harness.checks.visible import visible
from harness.contracts.expected import Close

_FP32 = 2.0**-24
# A sum of errors uniform in [-u, u] times t_j passes LIKELY u sqrt(sum t_j^2), 6.9 deviations, once in 2e11 elements.
LIKELY = 4.0


def tolerance(expected: Close, dtype: torch.dtype) -> torch.Tensor:
    """The absolute budget for each element, fp64, of an output in `dtype`."""
    info = torch.finfo(dtype)
    most = 2 * expected.magnitude
    likely = most
    budget = expected.value.abs().nan_to_num_(nan=math.nan, posinf=0.0)
    if expected.spread is not None:
        likely = torch.add(budget, expected.spread, alpha=LIKELY)
        torch.minimum(likely, most, out=likely)
    # in place: a pass over memory is what a term costs
    budget.mul_(info.eps).add_(likely, alpha=expected.operand).add_(most, alpha=_FP32 * math.sqrt(expected.terms)).add_(expected.inner)
    return budget.add_(max(info.smallest_normal, 2.0**-126))


def close(actual: torch.Tensor, expected: Close) -> Outcome:
    """Judges `actual` against the golden value; infinities must match in place and sign, NaN is never right."""
    golden = expected.value
    budget = tolerance(expected, actual.dtype)
    value = actual.double()
    ratio = (value - golden).abs_().div_(budget)
    if expected.undefined is not None:
        ratio.masked_fill_(expected.undefined, 0.0)
    worst = float(ratio.amax()) if ratio.numel() else 0.0
    if not math.isfinite(worst):
        ratio.masked_fill_(golden.isinf() & (value == golden), 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)
        worst = float(ratio.amax())
    figures: Figures = dict(visible(golden, budget))
    if worst <= 1:
        return Outcome(error=worst, figures=figures)
    text, error, found = explain(value, golden, ratio > 1, budget, worst)
    return Outcome("numerics", text, error, figures | found)


Figures = dict[str, float | int | str]
Explained = tuple[str, float, Figures]


def explain(value: torch.Tensor, golden: torch.Tensor, wrong: torch.Tensor, budget: torch.Tensor, worst: float) -> Explained:
    """The words people know from torch.testing: count, percentage, greatest absolute and relative difference with their index."""
    count, total = int(wrong.sum()), wrong.numel()
    difference = torch.where(wrong, (value - golden).abs(), torch.zeros_like(value))
    lines = [f"Mismatched elements: {count} / {total} ({100 * count / total:.1f}%)"]
    figures: Figures = {"count": count, "total": total}
    nans = int((value.isnan() & wrong).sum())
    if nans:
        where = torch.nonzero(value.isnan() & wrong)[0].tolist()
        lines.append(f"NaN where a number belongs: {nans} elements, first at index {tuple(where)}, expected {golden[tuple(where)]:.6g}")
        figures["nan"] = nans
    if nans == count:
        return "\n".join(lines), worst, figures
    difference = torch.nan_to_num(difference, nan=0.0, posinf=math.inf)
    relative = torch.nan_to_num(difference / golden.abs(), nan=0.0, posinf=math.inf)
    for name, size in (("absolute", difference), ("relative", relative)):
        at = _index(size)
        pair = f"expected {golden[at]:.6g}, actual {value[at]:.6g}, allowed {budget.expand_as(golden)[at]:.3g}"
        lines.append(f"Greatest {name} difference: {size[at]:.6g} at index {at} ({pair})")
        figures[f"max_{name}"] = float(size[at])
        figures[f"max_{name}_index"] = str(at)
    if wrong.dim() > 1:
        rows = wrong.flatten(1).any(1)
        lines.append(f"Rows with a wrong element: {int(rows.sum())} / {rows.numel()}, first {torch.nonzero(rows)[:8].flatten().tolist()}")
    return "\n".join(lines), worst, figures


def _index(size: torch.Tensor) -> tuple[int, ...]:
    flat = int(size.argmax())
    place = []
    for length in reversed(size.shape):
        flat, at = divmod(flat, length)
        place.append(at)
    return tuple(reversed(place))
