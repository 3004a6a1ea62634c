"""The stand-in's samplers. Draws come from torch's generator: the contract judges which tokens may be drawn."""

from __future__ import annotations

from typing import Any

import torch

from standin.shapes import WORDS, need


def _parameter(tensor: Any, scalar: Any, rows: int, dtype: torch.dtype) -> torch.Tensor:
    if tensor is None:
        return torch.full((rows, 1), scalar, dtype=dtype)
    need(tensor.dim() == 1 and tensor.shape[0] == rows, f"a parameter of shape {tuple(tensor.shape)} for {rows} rows")
    return tensor.to(dtype)[:, None]


def _top_k(p: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Which tokens are at least as probable as the row's k-th."""
    ordered = p.sort(-1, descending=True).values
    return p >= ordered.gather(1, k.clamp(1, p.shape[1]).long() - 1)


def top_k_renorm_probs(given: dict[str, Any]) -> torch.Tensor:
    """A scalar of 0 or less counts as 50; a tensor's rows of 0 or less keep nothing."""
    p = given["probs"].float()
    need(isinstance(given["top_k_val"], int), "top_k_val is an int")
    rows = given["maybe_top_k_arr"]
    k = _parameter(rows, given["top_k_val"] if given["top_k_val"] > 0 else 50, p.shape[0], torch.int64)
    kept = torch.where(_top_k(p, k) & (k > 0), p, 0.0)
    return kept / kept.sum(-1, keepdim=True).clamp_min(1e-30)


def _draw(p: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    kept = torch.nan_to_num(torch.where(allowed, p, 0.0))
    kept[kept.sum(-1) <= 0] = 1.0
    return torch.multinomial(kept, 1).view(-1).to(torch.int32)


def _nucleus(p: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Tokens before which, among the strictly more probable, less than the target lies."""
    p = torch.nan_to_num(p.double())
    ordered, order = p.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    first = torch.searchsorted(-ordered, -ordered, side="left")
    return torch.zeros_like(p, dtype=torch.bool).scatter(1, order, before.gather(1, first) < target.double())


def top_k_top_p_sampling_from_probs(given: dict[str, Any]) -> torch.Tensor:
    """Joint: both on the row's own mass; a k of 0 or less leaves the most probable token. `indices` names the row of each draw, whose
    parameters count."""
    p, rows = given["probs"].float(), given["indices"]
    need(isinstance(given["deterministic"], bool) and isinstance(given["top_k_val"], int), "argument types")
    k = _parameter(given["maybe_top_k_arr"], given["top_k_val"], p.shape[0], torch.int64)
    target = _parameter(given["maybe_top_p_arr"], given["top_p_val"], p.shape[0], torch.float32)
    allowed = torch.where(k > 0, _top_k(p, k), p == p.amax(-1, keepdim=True)) & _nucleus(p, target)
    if rows is None:
        return _draw(p, allowed)
    need(rows.dtype == torch.int32, "indices are int32")
    return _draw(p[rows.long()], allowed[rows.long()])


def top_p_sampling_from_probs(given: dict[str, Any]) -> torch.Tensor:
    """As many ids as rows of probs, whatever `indices` says."""
    p = given["probs"].float()
    need(isinstance(given["deterministic"], bool) and given["indices"] is None, "argument types")
    return _draw(p, _nucleus(p, _parameter(given["maybe_top_p_arr"], given["top_p_val"], p.shape[0], torch.float32)))


def _logits(given: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    out, logits = given["out"], given["input"]
    need(logits.dim() == 2 and logits.dtype in WORDS and logits.stride(1) == 1, "logits [rows, vocab]")
    need(out.dtype == torch.int32 and out.shape == logits.shape[:1], "out int32 [rows]")
    return out, logits.float()


def greedy_sample(given: dict[str, Any]) -> None:
    """A row without a greatest logit gives the vocabulary's size."""
    out, logits = _logits(given)
    best = logits.max(-1)
    out.copy_(torch.where(torch.isfinite(best.values), best.indices, logits.shape[1]))


def _race(given: dict[str, Any], temperatures: torch.Tensor) -> None:
    out, logits = _logits(given)
    need(temperatures.dtype == torch.float32 and temperatures.shape == logits.shape[:1], "temperatures fp32 [rows]")
    noise = torch.empty_like(logits).exponential_(generator=torch.Generator().manual_seed(7))
    scaled = torch.softmax(logits / temperatures.clamp_min(1e-5)[:, None], -1) / noise
    choice = torch.where(temperatures > 0, scaled.nan_to_num(-1.0).argmax(-1), logits.argmax(-1))
    out.copy_(choice)


def random_sample(given: dict[str, Any]) -> None:
    """The exponential race."""
    need(bool((given["temperatures"] > 0).all()), "a temperature of 0")
    _race(given, given["temperatures"])


def mixed_sample(given: dict[str, Any]) -> None:
    """The same, with temperature 0 for greedy."""
    _race(given, given["temperature"])


ENTRIES = {
    name: globals()[name]
    for name in (
        "top_k_renorm_probs",
        "top_k_top_p_sampling_from_probs",
        "top_p_sampling_from_probs",
        "greedy_sample",
        "random_sample",
        "mixed_sample",
    )
}
