"""What a verification may emit: a path from the root of the draft tree and a final token, judged together.

A chain is a tree whose every slot has one child. Node n of request b is row b * slots + n everywhere (`retrive_index` is the identity).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.contracts._torch import torch

Said = tuple[str, str] | None
INTEGERS = ("int16", "int32", "int64")


def final_range(residual: torch.Tensor, coin: torch.Tensor, band: float, slack: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """First and last token [batch] that the inverse of the cumulative sum of residual [batch, vocab] may give for coin [batch].

    band is relative to the sum, slack absolute; both widen the range.
    """
    through = residual.clamp(min=0).cumsum(-1)
    total = through[:, -1:]
    target, margin = coin.double()[:, None] * total, band * total + slack
    low = torch.searchsorted(through, target - margin, right=True)
    high = torch.searchsorted(through, target + margin, right=True)
    last = residual.shape[1] - 1
    return low.clamp(max=last).squeeze(1), high.clamp(max=last).squeeze(1)


def normalised(x: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """`predicts` as judged: int64 [batch, steps, 2] pairs (node that emitted, token) in order, -1 after the end.

    The raw form is [batch * slots] with undefined values off the path. A request whose accept_index and accept_token_num
    disagree gets -2.
    """
    raw: Any = outputs.get("predicts")
    index: Any = outputs.get("accept_index")
    count: Any = outputs.get("accept_token_num")
    if not all(isinstance(value, torch.Tensor) for value in (raw, index, count)) or raw.dim() != 1 or index.dim() != 2:
        return dict(outputs)
    batch, steps = index.shape
    slots = x.candidates.shape[1]
    place = torch.arange(steps, device=index.device)
    live = place <= count.long()[:, None]
    local = index.long() - torch.arange(batch, device=index.device)[:, None] * slots
    node = torch.where(live, local, -1)
    token = torch.where(live, raw.long()[index.long().clamp(0, raw.numel() - 1)], -1)
    inside = (local >= 0) & (local < slots)
    wrong = (count < 0) | (count >= steps) | (live & ~inside).any(1) | (~live & (index != -1)).any(1)
    pairs = torch.stack((node, token), -1).masked_fill(wrong[:, None, None], -2)
    return {**outputs, "predicts": pairs}


@dataclass(frozen=True)
class Walk:
    """Every answer a correct rule may give.

    tokens, parent  int64 [batch, slots]; the root (node 0) has parent -1
    stop            bool [batch, slots]: the walk may end at this node (reaching it included)
    depth           int64 [batch, slots]: accepted drafts at the node
    low, high       int64 [batch, slots]: range of the final token there
    support         bool [batch, slots, vocab]: tokens that may be drawn there
    steps           most nodes of a path
    """

    tokens: torch.Tensor
    parent: torch.Tensor
    stop: torch.Tensor
    depth: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    support: torch.Tensor
    steps: int

    @classmethod
    def structure(cls, x: Any, parent: torch.Tensor, depth: torch.Tensor, steps: int) -> Walk:
        """What holds whatever the coins decide: a path of drafts with mass, and a final token with mass."""
        batch, slots, vocab = x.target_probs.shape
        above = parent.clamp(min=0)
        p = x.target_probs[torch.arange(batch, device=parent.device)[:, None], above, x.candidates]
        stop = torch.ones_like(parent, dtype=torch.bool)
        for node in range(1, slots):
            stop[:, node] = stop.gather(1, above[:, node : node + 1]).squeeze(1) & (p[:, node] > 0)
        low = torch.zeros_like(parent)
        return cls(x.candidates, parent, stop, depth, low, low + vocab - 1, x.target_probs > 0, steps)

    def judge_count(self, actual: Any) -> Said:
        """accept_token_num [batch]."""
        said = _form(actual, (self.stop.shape[0],))
        if said:
            return said
        allowed = (self.stop & (self.depth == actual.long()[:, None])).any(1)
        return _first(~allowed, lambda row: f"accepted {int(actual[row])} drafts, expected {self._counts(row)}")

    def judge_index(self, actual: Any) -> Said:
        """accept_index [batch, steps]: the path's rows, -1 after it."""
        said = _form(actual, (self.stop.shape[0], self.steps))
        if said:
            return said
        slots = self.stop.shape[1]
        local = actual.long() - torch.arange(actual.shape[0], device=actual.device)[:, None] * slots
        return self._path(torch.where(actual == -1, -1, local), actual == -1)

    def judge_predicts(self, actual: Any) -> Said:
        """Normalised predicts [batch, steps, 2]: path, drafts copied, final token in range and with mass."""
        said = _form(actual, (self.stop.shape[0], self.steps, 2))
        if said:
            return said
        node, token = actual.long().unbind(-1)
        said = _first((node == -2).any(1), lambda row: "accept_index and accept_token_num disagree, or point outside the request")
        said = said or self._path(node, node == -1)
        if said:
            return said
        last = (node != -1).sum(1, keepdim=True) - 1
        following = torch.cat((node[:, 1:], torch.full_like(node[:, :1], -1)), 1)
        wrong = (following != -1) & (token != self.tokens.gather(1, following.clamp(min=0)))
        said = _first(wrong.any(1), lambda row: f"emitted {token[row].tolist()} along nodes {node[row].tolist()}: not the accepted drafts")
        return said or self._final(node.gather(1, last), token.gather(1, last))

    def _final(self, end: torch.Tensor, final: torch.Tensor) -> Said:
        vocab = self.support.shape[-1]
        rows = torch.arange(end.shape[0], device=end.device)
        at, id_ = end.squeeze(1), final.squeeze(1)
        said = _first((id_ < 0) | (id_ >= vocab), lambda row: f"final token {int(id_[row])} outside [0, {vocab})", "support")
        if said:
            return said
        massless = ~self.support[rows, at, id_]
        said = _first(massless, lambda row: f"final token {int(id_[row])} after node {int(at[row])} has no mass left there", "support")
        low, high = self.low[rows, at], self.high[rows, at]
        outside = (id_ < low) | (id_ > high)
        return said or _first(outside, lambda row: f"final token {int(id_[row])} after node {int(at[row])}, expected {int(low[row])} to {int(high[row])}")

    def _path(self, node: torch.Tensor, ended: torch.Tensor) -> Said:
        slots = self.stop.shape[1]
        safe = node.clamp(0, slots - 1)
        wrong = (~ended & ((node < 0) | (node >= slots))).any(1) | (node[:, 0] != 0) | (ended[:, :-1] & ~ended[:, 1:]).any(1)
        parent = self.parent.gather(1, safe[:, 1:])
        wrong |= (~ended[:, 1:] & (parent != node[:, :-1])).any(1)
        last = (~ended).sum(1, keepdim=True) - 1
        wrong |= ~self.stop.gather(1, safe.gather(1, last.clamp(min=0))).squeeze(1)
        return _first(wrong, lambda row: f"path over nodes {node[row].tolist()}, which may end at nodes {torch.nonzero(self.stop[row]).flatten().tolist()}")

    def _counts(self, row: int) -> str:
        return " or ".join(map(str, sorted(set(self.depth[row][self.stop[row]].tolist()))))


def _form(actual: Any, shape: tuple[int, ...]) -> Said:
    if not isinstance(actual, torch.Tensor) or tuple(actual.shape) != shape:
        return "shape", f"expected a tensor of shape {shape}, got {tuple(actual.shape) if isinstance(actual, torch.Tensor) else type(actual).__name__}"
    kind = str(actual.dtype).removeprefix("torch.")
    return None if kind in INTEGERS else ("dtype", f"expected an integer dtype, got {kind}")


def _first(wrong: torch.Tensor, words: Any, reason: str = "numerics") -> Said:
    if not bool(wrong.any()):
        return None
    row = int(torch.nonzero(wrong)[0])
    return reason, f"Wrong requests: {int(wrong.sum())} / {wrong.numel()}\nRequest {row}: {words(row)}"
