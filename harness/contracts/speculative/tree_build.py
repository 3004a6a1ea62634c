"""tree_build: from the beams of a draft loop to the tree that attention and verification read."""

from __future__ import annotations

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Exact
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.paging import LENGTHS, ragged
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.tables import backwards, each
from harness.contracts.speculative import trees

MODES = ("full", "qlen", "packed")


def mask_bytes(slots: int) -> int:
    """Bytes of one bit-packed row: 1, 2 or 4."""
    return 1 if slots <= 8 else 2 if slots <= 16 else 4


@contract("speculative")
class tree_build:
    """Tree mask, positions and links of a beam-searched draft tree.

    parent_list, selected_index (see trees.Beams), seq_lens int64 [batch], topk, steps -> in place: tree_mask flat, positions int64
    [batch * slots] (seq_len + depth), retrive_index (row numbers), retrive_next_token (first child or -1), retrive_next_sibling
    int64 [batch, slots]. tree_mask by mode: full, bool [slots, seq_len + slots] a request, the prefix left as it is (true);
    qlen, bool [slots, slots] a request; packed, 1, 2 or 4 little-endian bytes a slot, for at most 32 slots.
    """

    axes = (
        number("batch", "b", "requests"),
        number("slots", "n", "tokens of the tree, the root included", least=2, search=(2, 65)),
        number("topk", "k", "branches of a beam", search=(1, 9)),
        number("steps", "d", "draft steps, the greatest depth", search=(1, 9)),
        number("length", "s", "longest sequence before the tree", least=0),
        words("lengths", LENGTHS, "sequence lengths of the requests", default="ragged"),
        words("mode", MODES, "layout of the mask", default="full"),
    )
    outputs = ("tree_mask", "positions", "retrive_index", "retrive_next_token", "retrive_next_sibling")
    mutates = outputs
    relations = {
        "slots": backwards(
            "batch",
            "parent_list",
            "selected_index",
            "seq_lens",
            entries={
                "tree_mask": lambda x: _sizes(x),
                "positions": each("batch", "slots"),
                "retrive_next_token": each("batch"),
                "retrive_next_sibling": each("batch"),
            },
        )
    }

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        nodes = case.topk + (case.steps - 1) * case.topk**2
        return None if case.slots - 1 <= nodes else f"the beams have {nodes} nodes, fewer than the {case.slots - 1} drafts"

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        batch, slots, device = case.batch, case.slots, draw.device
        made = trees.beams(draw, batch, slots, case.topk, case.steps)
        lengths = ragged(draw, batch, case.length, case.lengths, low=0)
        if case.mode == "packed":
            mask = torch.zeros(batch * slots * mask_bytes(slots), dtype=torch.uint8, device=device)
        else:
            columns = sum(lengths) if case.mode == "full" else 0
            mask = torch.ones(slots * columns + batch * slots * slots, dtype=torch.bool, device=device)
        return Inputs(
            case,
            device,
            parent_list=made.parent_list,
            selected_index=made.selected_index,
            seq_lens=torch.tensor(lengths, dtype=torch.int64, device=device),
            tree_mask=mask,
            positions=torch.full((batch * slots,), -7, dtype=torch.int64, device=device),
            **{name: torch.full((batch, slots), -1, dtype=torch.int64, device=device) for name in self.outputs[2:]},
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        batch, slots = x.retrive_index.shape
        parent = tree_parents(x)
        seen = trees.closure(parent)
        golden = {
            "tree_mask": _layout(seen, x.seq_lens, x.case.mode),
            "positions": (trees.depths(parent) + x.seq_lens[:, None]).flatten(),
            "retrive_index": torch.arange(batch * slots, device=x.device).view(batch, slots),
            **trees.links(parent),
        }
        return {name: Exact(value) for name, value in golden.items()}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Slot by slot in plain Python: up the tree for the mask, the lists grown from the back as a stack."""
        batch, slots = x.retrive_index.shape
        masks, positions, children, following = [], [], [], []
        for b, length in enumerate(x.seq_lens.tolist()):
            selected, expands = x.selected_index[b].tolist(), x.parent_list[b].tolist()
            up = [-1] + [0 if node < x.case.topk else selected.index(expands[node // x.case.topk]) + 1 for node in selected]
            child, sibling = [-1] * slots, [-1] * slots
            for slot in range(slots - 1, 0, -1):
                sibling[slot], child[up[slot]] = child[up[slot]], slot
            for slot in range(slots):
                line, at, depth = [0] * slots, slot, 0
                while at > 0:
                    line[at], at, depth = 1, up[at], depth + 1
                line[0] = 1
                masks.append([1] * length + line if x.case.mode == "full" else line)
                positions.append(length + depth)
            children.append(child)
            following.append(sibling)
        if x.case.mode == "packed":
            size = mask_bytes(slots)
            flat = torch.tensor([byte for line in masks for byte in sum(bit << i for i, bit in enumerate(line)).to_bytes(size, "little")], dtype=torch.uint8)
        else:
            flat = torch.tensor([bit for line in masks for bit in line], dtype=torch.bool)
        rows = torch.tensor([[b * slots + slot for slot in range(slots)] for b in range(batch)])
        lists = {"retrive_next_token": torch.tensor(children), "retrive_next_sibling": torch.tensor(following)}
        return {"tree_mask": flat, "positions": torch.tensor(positions), "retrive_index": rows, **lists}

    def work(self, case: Case) -> Work:
        cells = case.batch * case.slots
        return Work(cells * case.slots, cells * (case.slots + 4 * 8 + 2 * 8))


def _sizes(x: Inputs) -> list[int]:
    """Entries of each request in the mask."""
    lengths: list[int] = x.seq_lens.tolist()
    if x.case.mode == "full":
        return [x.case.slots * (n + x.case.slots) for n in lengths]
    return [x.tree_mask.numel() // len(lengths)] * len(lengths)


def tree_parents(x: Inputs) -> torch.Tensor:
    """Parent slots [batch, slots]: a node's beam is node // topk; beam 0 is the root, another the slot of the node it expands."""
    beam = x.selected_index // x.case.topk
    if x.parent_list.shape[1] == 0:
        slot = torch.zeros_like(beam)
    else:
        node = x.parent_list.gather(1, beam)
        slot = (x.selected_index[:, None, :] == node[:, :, None]).int().argmax(-1) + 1
    return torch.cat((torch.full_like(beam[:, :1], -1), torch.where(beam == 0, 0, slot)), 1)


def _layout(seen: torch.Tensor, seq_lens: torch.Tensor, mode: str) -> torch.Tensor:
    slots = seen.shape[1]
    if mode == "qlen":
        return seen.flatten()
    if mode == "packed":
        size = mask_bytes(slots)
        bits = torch.nn.functional.pad(seen.to(torch.int64), (0, 8 * size - slots)).view(*seen.shape[:2], size, 8)
        return (bits << torch.arange(8, device=seen.device)).sum(-1).to(torch.uint8).flatten()
    return torch.cat([torch.nn.functional.pad(rows, (length, 0), value=True).flatten() for rows, length in zip(seen, seq_lens.tolist(), strict=True)])
