"""Draft trees as arrays: parent [batch, slots] int64, the root (slot 0) with parent -1, every parent before its children."""

from __future__ import annotations

from dataclasses import dataclass

from harness.contracts._torch import torch
from harness.contracts.inputs import Draw

SHAPES = ("chain", "wide", "mixed")


def parents(draw: Draw, batch: int, slots: int, shape: str) -> torch.Tensor:
    """chain: each slot follows the last; wide: all children of the root; mixed: hashed, at most slots // 2 deep (4 at least)."""
    place = torch.arange(slots, device=draw.device).repeat(batch, 1)
    if shape == "chain":
        return place - 1
    if shape == "wide":
        return torch.where(place == 0, -1, 0)
    parent = torch.full_like(place, -1)
    depth = torch.zeros_like(place)
    limit = max(4, slots // 2)
    for i in range(1, slots):
        chosen = draw.integers(batch, 1, low=0, high=i)
        chosen = torch.where(depth.gather(1, chosen) < limit, chosen, 0)
        parent[:, i : i + 1] = chosen
        depth[:, i : i + 1] = depth.gather(1, chosen) + 1
    return parent


def depths(parent: torch.Tensor) -> torch.Tensor:
    """Edges from the root to each slot."""
    depth = torch.zeros_like(parent)
    for i in range(1, parent.shape[1]):
        depth[:, i] = depth.gather(1, parent[:, i : i + 1]).squeeze(1) + 1
    return depth


def siblings(parent: torch.Tensor) -> torch.Tensor:
    """bool [batch, slots, slots]: row and column have one parent, and are no roots."""
    return (parent[:, :, None] == parent[:, None, :]) & (parent >= 0)[:, :, None]


def ranks(parent: torch.Tensor) -> torch.Tensor:
    """How many siblings come before each slot."""
    return torch.tril(siblings(parent), -1).sum(-1)


def links(parent: torch.Tensor) -> dict[str, torch.Tensor]:
    """First child and next sibling of each slot, in ascending order, -1 for none."""
    slots = parent.shape[1]
    place = torch.arange(slots, device=parent.device)
    child = parent[:, None, :] == place[:, None]
    later = torch.triu(siblings(parent), 1)
    return {
        "retrive_next_token": torch.where(child.any(-1), child.int().argmax(-1), -1),
        "retrive_next_sibling": torch.where(later.any(-1), later.int().argmax(-1), -1),
    }


def closure(parent: torch.Tensor) -> torch.Tensor:
    """bool [batch, slots, slots]: the column is the row itself or an ancestor of it."""
    slots = parent.shape[1]
    seen = torch.eye(slots, dtype=torch.bool, device=parent.device).repeat(parent.shape[0], 1, 1)
    rows = torch.arange(parent.shape[0], device=parent.device)
    for i in range(1, slots):
        seen[:, i] |= seen[rows, parent[:, i]]
    return seen


def verify_buffers(batch: int, slots: int, steps: int, device: str) -> dict[str, torch.Tensor]:
    """The three tensors a verify kernel fills, as SGLang allocates them, holding -7 where it leaves them uninitialised."""
    return {
        "predicts": torch.full((batch * slots,), -7, dtype=torch.int32, device=device),
        "accept_index": torch.full((batch, steps), -1, dtype=torch.int32, device=device),
        "accept_token_num": torch.full((batch,), -7, dtype=torch.int32, device=device),
        "retrive_index": torch.arange(batch * slots, dtype=torch.int64, device=device).view(batch, slots),
    }


@dataclass(frozen=True)
class Beams:
    """What EAGLE's draft loop hands over: `parent_list` int64 [batch, topk (steps - 1) + 1] (none for one step), the node each
    beam expands, and `selected_index` int64 [batch, slots - 1], the nodes kept, ascending."""

    parent_list: torch.Tensor
    selected_index: torch.Tensor


def beams(draw: Draw, batch: int, slots: int, topk: int, steps: int) -> Beams:
    """A beam search over hashed integer costs: each step expands topk beams by topk tokens; the cheapest slots - 1 nodes are kept.

    A child costs more than its parent, so every kept node's parent is kept. Nodes of step i > 1 are numbered from
    topk + topk^2 (i - 2), beam by beam.
    """
    cost = draw.integers(batch, topk, low=1, high=1000)
    costs, expanded = [cost], [torch.full((batch, 1), -1, dtype=torch.int64, device=draw.device)]
    beam = torch.arange(topk, device=draw.device).repeat(batch, 1)
    for step in range(1, steps):
        expanded.append(beam)
        child = (cost[:, :, None] + draw.integers(batch, topk, topk, low=1, high=1000)).flatten(1)
        costs.append(child)
        kept = torch.argsort(child, dim=1, stable=True)[:, :topk]
        cost = child.gather(1, kept)
        beam = kept + topk + topk * topk * (step - 1)
    order = torch.argsort(torch.cat(costs, 1), dim=1, stable=True)[:, : slots - 1]
    parent_list = torch.cat(expanded, 1) if steps > 1 else expanded[0][:, :0]
    return Beams(parent_list.contiguous(), torch.sort(order, dim=1).values.contiguous())
