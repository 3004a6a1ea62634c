"""What a verification emits must follow the target, whatever the drafts: Leviathan et al. 2023, theorem 1. Two input families test it.

    drawn   all requests alike: drafts drawn from q, hashed coins; the emitted tokens are draws from the target
    grid    every draft and every coin of a grid on which accept and reject fall exactly: each token is emitted exactly in proportion
            gridhot: the same, each draft row certain of its token (its probability 1), whichever token that is

On the grid all probabilities are eighths, a draft's a power of two of them, so p / q and every partial sum is a multiple of 1/8 and coins
in the middle of eighths never meet a threshold. The final coin is in the middle of 1/n, n a multiple of every residual's eighths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.expected import Drawn, Instead, Judged
from harness.contracts.inputs import hashed
from harness.contracts.speculative.walk import Said

EIGHTHS = 8
GRIDS = ("grid", "gridhot")
LAWS = ("drawn", *GRIDS)


def drafted(vocab: int) -> list[int]:
    """Eighths of each token in a draft row of the grid: powers of two that sum to 8."""
    parts = [EIGHTHS]
    while len(parts) < vocab:
        most = max(parts)
        parts.remove(most)
        parts += [most // 2, most // 2]
    return sorted(parts, reverse=True)


def target(vocab: int, step: int) -> list[int]:
    """Eighths of each token in the target row of the grid's `step`: hashed, some of them none."""
    tokens = [(bits >> 24) % vocab for bits in hashed(f"grid:{vocab}:{step}", EIGHTHS)]
    return [tokens.count(token) for token in range(vocab)]


def finals(rests: list[int]) -> int:
    """Points of the final coin, so that each residual of so many eighths falls on whole points."""
    return math.lcm(EIGHTHS, *(rest for rest in rests if rest))


def digits(count: int, sizes: list[int], device: str) -> torch.Tensor:
    """int64 [len(sizes), count]: the digits of 0, 1, 2, ... in mixed radix, over and over."""
    number, found = torch.arange(count, device=device), []
    for size in sizes:
        found.append(number % size)
        number = number // size
    return torch.stack(found)


def coin(digit: torch.Tensor, size: int) -> torch.Tensor:
    """fp32: the middle of each of `size` equal parts of [0, 1)."""
    return ((2 * digit + 1).double() / (2 * size)).float()


def exactly(counts: torch.Tensor, p: torch.Tensor, names: str) -> Said:
    """A finding where counts [rows, vocab] are not in proportion to p [rows, vocab] to the last one."""
    n = counts.sum(1, keepdim=True)
    expected = n * p
    wrong = (counts - expected).abs() > 1e-6 * n
    if not bool(wrong.any()):
        return None
    if bool((counts.amax(1) == n.squeeze(1)).all()) and bool((counts.argmax(1) == p.argmax(1)).all()) and float(p.amax(1).min()) < 1:
        return "silently-greedy", f"Every one of {int(n.sum())} emitted tokens is the most probable of its row, whatever the coins"
    row, token = torch.nonzero(wrong)[0].tolist()
    said = f"of {int(n[row])} on the grid {int(counts[row, token])} emit token {token}, expected exactly {float(expected[row, token]):.6g}"
    return "distribution", f"What is emitted does not follow the target, at {names} {row}: {said}"


def counted(ids: torch.Tensor, vocab: int) -> torch.Tensor:
    """int64 [rows, vocab] of ids [rows, any number], -1 for none."""
    return torch.stack([torch.bincount(row[row >= 0], minlength=vocab) for row in ids])


def follows(first: Judged, ids: Callable[[Any], torch.Tensor], p: torch.Tensor, grid: bool, names: str, instead: Callable[[], list[Instead]]) -> Judged | Drawn:
    """What an output that `first` judges must emit besides: ids [rows, requests], -1 for none, each row by its p [rows, vocab]."""
    p = p / p.sum(1, keepdim=True)
    if not grid:
        return Drawn(p > 0, weights=p, required=p > 0, ids=ids, first=first, instead=instead)

    def judge(actual: Any) -> Said:
        return first.judge(actual) or exactly(counted(ids(actual), p.shape[1]), p, names)

    return Judged(judge)


def by_node(pairs: torch.Tensor, slots: int) -> torch.Tensor:
    """Normalised predicts [batch, steps, 2] as int64 [slots, batch]: the token each request emits after each node, -1 off its path."""
    node, token = pairs.long().unbind(-1)
    ids = torch.full((len(pairs), slots + 1), -1, dtype=torch.int64, device=pairs.device)
    ids.scatter_(1, torch.where(node < 0, slots, node), torch.where(node < 0, -1, token))
    return ids[:, :slots].T
