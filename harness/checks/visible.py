"""How small an error would have been seen: each row's budget in relation to the row's values."""

from __future__ import annotations

import math

import torch

ROWS = 256  # rows looked at, evenly spaced, so that the figures cost as good as nothing
FIGURES = ("scale", "scale_worst", "element", "element_worst")


def visible(golden: torch.Tensor, budget: torch.Tensor) -> dict[str, float]:
    """The least relative errors that the budget lets nobody make, over rows along the last dimension; {} where no row has a value.

    golden, budget  fp64, of one shape; rows of zeros and rows with a NaN are left out
    scale    a whole row (one head of one token) times 1 + s or 1 - s; the median over rows, and the worst row's
    element  one element off by this share of its row's root mean square, at the row's mean budget; the median, and the worst row's

    Of a kernel that is otherwise exact; the roundings of a right one add to its own error and may take from these figures.
    """
    if golden.numel() == 0:
        return {}
    width = golden.shape[-1] if golden.dim() else 1
    step = max(1, golden.numel() // width // ROWS)
    size = golden.reshape(-1, width)[::step].abs()
    size = size.masked_fill(size.isinf(), 0.0)
    budget = budget.reshape(-1, width)[::step]
    scale = (budget / size).amin(1)
    element = budget.mean(1) / size.norm(dim=1) * math.sqrt(width)
    figures: list[float] = []
    for values in torch.stack((scale, element)).tolist():
        ordered = sorted(value for value in values if math.isfinite(value))
        if not ordered:
            return {}
        figures += ordered[len(ordered) // 2], ordered[-1]
    return dict(zip(FIGURES, figures, strict=True))
