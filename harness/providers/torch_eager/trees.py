"""Draft trees in plain PyTorch, fp32."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.torch_eager.speculative import ANYWHERE, draw_final


def _follow(x: Any, choose: Any) -> tuple[Any, Any]:
    """Walks every request's tree at once: `choose(node)` gives the accepted child of node [batch], or -1. Fills accept_index and
    accept_token_num and returns the last node and, [batch, steps], the path."""
    import torch

    steps = x.accept_index.shape[1]
    at = torch.zeros_like(x.retrive_index[:, 0])
    path = torch.full((len(at), steps), -1, dtype=torch.int64, device=x.device)
    path[:, 0] = 0
    live = torch.ones_like(at, dtype=torch.bool)
    for step in range(1, steps):
        child = choose(at)
        live &= child >= 0
        at = torch.where(live, child, at)
        path[:, step] = torch.where(live, child, -1)
    x.accept_index.copy_(torch.where(path >= 0, x.retrive_index.gather(1, path.clamp(min=0)), -1))
    x.accept_token_num.copy_((path >= 0).sum(1) - 1)
    return at, path


def _children(x: Any, at: Any) -> Any:
    """The children of at [batch] one after another, -1 where a request has no more."""
    node = x.retrive_next_token.gather(1, at[:, None]).squeeze(1)
    while bool((node >= 0).any()):
        yield node
        node = node.where(node < 0, x.retrive_next_sibling.gather(1, node.clamp(min=0)[:, None]).squeeze(1))


@implements("tree_verify_greedy", library="torch", name="torch_eager", platforms=ANYWHERE)
def tree_verify_greedy(x: Any) -> None:
    import torch

    def choose(at: Any) -> Any:
        wanted = x.target_predict.gather(1, at[:, None]).squeeze(1)
        chosen = torch.full_like(at, -1)
        for node in _children(x, at):
            same = x.candidates.gather(1, node.clamp(min=0)[:, None]).squeeze(1) == wanted
            chosen = torch.where((chosen < 0) & (node >= 0) & same, node, chosen)
        return chosen

    _follow(x, choose)
    x.predicts.copy_(x.target_predict.flatten())


@implements("tree_verify_sample", library="torch", name="torch_eager", platforms=ANYWHERE)
def tree_verify_sample(x: Any) -> None:
    import torch

    batch = x.candidates.shape[0]
    rows = torch.arange(batch, device=x.device)

    def choose(at: Any) -> Any:
        chosen = torch.full_like(at, -1)
        passed = torch.zeros(batch, device=x.device)
        coin = x.uniform_samples.gather(1, at[:, None]).squeeze(1)
        for node in _children(x, at):
            token = x.candidates.gather(1, node.clamp(min=0)[:, None]).squeeze(1)
            p = torch.where(node >= 0, x.target_probs[rows, at, token], 0.0)
            passed += p
            good = (node >= 0) & (p > 0) & ((coin < passed / x.threshold_acc) | (p >= x.threshold_single))
            chosen = torch.where((chosen < 0) & good, node, chosen)
            rejected = (node >= 0) & (chosen < 0)
            x.draft_probs[rows[rejected], at[rejected], token[rejected]] = p[rejected]
        return chosen

    last, path = _follow(x, choose)
    final = draw_final((x.target_probs[rows, last] - x.draft_probs[rows, last]).clamp(min=0), x.uniform_final)
    following = torch.cat((path[:, 1:], torch.full_like(path[:, :1], -1)), 1)
    emitted = torch.where(following >= 0, x.candidates.gather(1, following.clamp(min=0)), final[:, None])
    x.predicts[x.retrive_index.gather(1, path.clamp(min=0))[path >= 0]] = emitted[path >= 0].int()


@implements("tree_build", library="torch", name="torch_eager", platforms=ANYWHERE)
def tree_build(x: Any) -> None:
    import torch

    batch, slots = x.retrive_index.shape
    beam = x.selected_index // x.case.topk
    parent = torch.zeros(batch, slots, dtype=torch.int64, device=x.device)
    if x.parent_list.shape[1]:
        node = x.parent_list.gather(1, beam)
        found = (x.selected_index[:, None, :] == node[:, :, None]).int().argmax(-1) + 1
        parent[:, 1:] = torch.where(beam > 0, found, 0)
    place = torch.arange(slots, device=x.device).repeat(batch, 1)
    sees = torch.zeros(batch, slots, slots, dtype=torch.bool, device=x.device)
    depth, at = torch.zeros_like(parent), place
    for _ in range(x.case.steps + 1):
        sees.scatter_(2, at[:, :, None], True)
        depth += at > 0
        at = parent.gather(1, at)
    x.positions.copy_((depth + x.seq_lens[:, None]).flatten())
    x.retrive_index.copy_(torch.arange(batch * slots, device=x.device).view(batch, slots))
    for slot in range(slots - 1, 0, -1):
        up = parent[:, slot : slot + 1]
        x.retrive_next_sibling[:, slot : slot + 1] = x.retrive_next_token.gather(1, up)
        x.retrive_next_token.scatter_(1, up, slot)
    _fill_mask(x, sees)


def _fill_mask(x: Any, sees: Any) -> None:
    import torch

    slots = sees.shape[1]
    if x.case.mode == "qlen":
        x.tree_mask.copy_(sees.flatten())
    elif x.case.mode == "packed":
        row = (sees.long() << torch.arange(slots, device=x.device)).sum(-1)
        size = x.tree_mask.numel() // row.numel()
        x.tree_mask.copy_(torch.stack([(row >> (8 * i)) & 255 for i in range(size)], -1).to(torch.uint8).flatten())
    else:
        start = 0
        for length, rows in zip(x.seq_lens.tolist(), sees, strict=True):
            stop = start + slots * (length + slots)
            x.tree_mask[start:stop].view(slots, -1)[:, length:] = rows
            start = stop
