"""Do the results of two calls have to do with each other what a relation says: equal to the bit, within both budgets, or different.

Pure: two outputs and the budgets that their references give. Nothing here comes from the kernel under test but the outputs themselves.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.checks.outcome import Outcome
from harness.checks.support import kept_values
from harness.checks.tolerance import explain, tolerance
from harness.contracts.expected import Close, Exact, Expected, Filtered

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def room(actual: Any, expected: Expected) -> torch.Tensor | None:
    """fp64, of the output's shape: how far a right answer may lie from the golden one, inf where the contract leaves it open.

    None where no distance is defined: draws, and what only the contract can judge.
    """
    if not isinstance(actual, torch.Tensor):
        return None
    if isinstance(expected, Close):
        budget = tolerance(expected, actual.dtype)
        return budget if expected.undefined is None else budget.masked_fill(expected.undefined.expand_as(budget), math.inf)
    if isinstance(expected, Exact):
        exact = torch.zeros(expected.value.shape, dtype=torch.float64, device=expected.value.device)
        return exact if expected.where is None else exact.masked_fill(~expected.where, math.inf)
    if isinstance(expected, Filtered):
        return kept_values(actual.dtype, expected, actual != 0)[1]
    return None


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of each element as an integer."""
    dense = tensor.detach().contiguous()
    return dense.view(_INTEGERS[dense.element_size()]) if dense.dtype != torch.bool else dense.view(torch.uint8)


def identical(first: torch.Tensor, second: torch.Tensor, space: torch.Tensor | None) -> Outcome:
    """Equality to the bit wherever the contract defines a value (`space` is not inf)."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return Outcome("invariant", f"{_form(first)} in the one call, {_form(second)} in the other")
    wrong = raw(first) != raw(second)
    if space is not None:
        wrong &= ~space.isinf()
    if not bool(wrong.any()):
        return Outcome(error=0.0)
    return Outcome("invariant", *_told(first, second, wrong))


def agree(first: torch.Tensor, second: torch.Tensor, space: torch.Tensor, *, by_row: bool = False) -> Outcome:
    """Within `space`, the sum of both budgets. `by_row` (filters): rows in which a tie or a rounding decided otherwise, as both
    references allow, have other values throughout and are left out."""
    if first.shape != second.shape:
        return Outcome("invariant", f"{_form(first)} in the one call, {_form(second)} in the other")
    ratio = _ratio(first, second, space)
    if by_row:
        ratio = ratio.masked_fill(((first != 0) != (second != 0)).any(-1, keepdim=True), 0.0)
    worst = float(ratio.amax()) if ratio.numel() else 0.0
    if worst <= 1:
        return Outcome(error=worst)
    text, _, figures = explain(second.double(), first.double(), ratio > 1, space, worst)
    return Outcome("invariant", text.replace("expected", "plain").replace("actual", "varied"), worst, figures)


def differ(first: torch.Tensor, second: torch.Tensor, space: torch.Tensor) -> Outcome:
    """Somewhere further apart than `space`: a flag that was turned off has had an effect."""
    ratio = _ratio(first, second, space) if first.shape == second.shape else torch.full((1,), math.inf)
    worst = float(ratio.amax()) if ratio.numel() else 0.0
    if worst > 1:
        return Outcome(figures={"apart": worst})
    return Outcome("ignored-flag", f"With and without it the results are the same: the greatest difference is {worst:.3g} of what two right answers may have")


def _ratio(first: torch.Tensor, second: torch.Tensor, space: torch.Tensor) -> torch.Tensor:
    a, b = first.double(), second.double()
    difference = (a - b).abs().masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0)
    return torch.nan_to_num((difference / space).masked_fill(difference == 0, 0.0), nan=math.inf, posinf=math.inf).masked_fill(space.isinf(), 0.0)


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _told(first: torch.Tensor, second: torch.Tensor, wrong: torch.Tensor) -> tuple[str, float, dict[str, float | int | str]]:
    count = int(wrong.sum())
    at = tuple(torch.nonzero(wrong)[0].tolist())
    apart = float((first.double() - second.double()).abs().masked_fill(~wrong, 0).nan_to_num(math.inf).amax())
    lines = [f"Elements with other bits: {count} / {wrong.numel()} ({100 * count / wrong.numel():.1f}%), greatest difference {apart:.3g}"]
    lines.append(f"First at index {at}: {first[at].item():.9g} in the one call, {second[at].item():.9g} in the other")
    if wrong.dim() > 1:
        rows = wrong.flatten(1).any(1)
        lines.append(f"Rows with one: {int(rows.sum())} / {rows.numel()}, first {torch.nonzero(rows)[:8].flatten().tolist()}")
    return "\n".join(lines), math.inf, {"count": count, "total": wrong.numel(), "max_absolute": apart}
