"""What a sampler draws from when it makes a known mistake: parameters it ignores, and rows that depend on their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.contracts._torch import torch
from harness.contracts.expected import Instead
from harness.contracts.inputs import Inputs

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def of_rows(weights: torch.Tensor, keep: Callable[[Inputs], torch.Tensor], x: Inputs) -> list[Instead]:
    """The distributions of known mistakes: weights fp64 [rows, vocab], and `keep`, which says what the filters leave for x's parameters."""
    made = [Instead(reason, text, weights * keep(y)) for reason, text, y in _parameters(x)]
    if len(weights) > 1:
        kept = weights * keep(x)
        for step, word in ((1, "before"), (-1, "after")):
            moved = x.copy_with(**{name: torch.roll(value, step, 0) for name, value in _by_row(x).items()})
            if _by_row(x):
                made.append(Instead("invariant", f"A row depends on its neighbours: it has the parameters of the row {word} it", weights * keep(moved)))
            made.append(Instead("invariant", f"A row depends on its neighbours: it is drawn from the row {word} it", torch.roll(kept, step, 0)))
    return made


def _by_row(x: Inputs) -> dict[str, torch.Tensor]:
    return {name: value for name in OFF if isinstance(value := getattr(x, name, None), torch.Tensor) and bool((value != value[0]).any())}


def _parameters(x: Inputs) -> Iterator[tuple[str, str, Inputs]]:
    names = [name for name in OFF if hasattr(x, name)]
    for name in names:
        yield "ignored-flag", f"{name} is ignored: draws are those without it", x.copy_with(**{name: OFF[name]})
    if len(names) > 1:
        yield "ignored-flag", f"{' and '.join(names)} are ignored: draws are those without them", x.copy_with(**{name: OFF[name] for name in names})
    for name, value in _by_row(x).items():
        yield "ignored-flag", f"{name} of each row is ignored: all rows have that of row 0", x.copy_with(**{name: value[0].item()})
    if len(_by_row(x)) > 1:
        alike = {name: value[0].item() for name, value in _by_row(x).items()}
        yield "ignored-flag", f"{' and '.join(alike)} of each row are ignored: all rows have those of row 0", x.copy_with(**alike)
