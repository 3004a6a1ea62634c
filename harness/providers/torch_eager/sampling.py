"""Sampling ops in plain PyTorch, in the working precision: fp32 where a library computes in fp32, the logits' dtype in place."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


def column(value: Any, like: Any, dtype: Any) -> Any:
    """A parameter of any form as [rows, 1] beside `like`."""
    import torch

    return torch.as_tensor(value, device=like.device).to(dtype).reshape(-1, 1).expand(like.shape[0], 1)


def filtered(probs: Any, top_k: Any, top_p: Any) -> Any:
    """fp32 probabilities with top-k and top-p applied on the original mass, by thresholds, ties kept; not renormalised."""
    import torch

    p = probs.float()
    k = column(top_k, p, torch.int64)
    k = torch.where((k <= 0) | (k > p.shape[1]), p.shape[1], k)
    target = column(top_p, p, torch.float32)
    ordered = torch.sort(p, dim=-1, descending=True).values
    before = ordered.cumsum(-1) - ordered
    before[:, 0] = -1
    inside = (torch.arange(p.shape[1], device=p.device) < k) & ((before < target) | (target >= 1))
    edge = ordered.gather(1, inside.sum(-1, keepdim=True) - 1)
    return p.masked_fill(p < edge, 0.0)


def renormalised(p: Any) -> Any:
    return p / p.sum(-1, keepdim=True)


@implements("top_k_renorm", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties": "all"})
def top_k_renorm(x: Any) -> Any:
    return renormalised(filtered(x.probs, x.top_k, 1.0))


@implements("top_p_renorm", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties": "all"})
def top_p_renorm(x: Any) -> Any:
    return renormalised(filtered(x.probs, 0, x.top_p))


@implements("top_k_top_p_filter", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties": "all", "order": "joint"})
def top_k_top_p_filter(x: Any) -> Any:
    return renormalised(filtered(x.probs, x.top_k, x.top_p))


def above_share(probs: Any, min_p: Any) -> Any:
    """fp32 probabilities of at least min_p times the best one; the rest 0."""
    import torch

    p = probs.float()
    return p.masked_fill(p < p.amax(-1, keepdim=True) * column(min_p, p, torch.float32), 0.0)


@implements("min_p_filter", library="torch", name="torch_eager", platforms=ANYWHERE)
def min_p_filter(x: Any) -> Any:
    return renormalised(above_share(x.probs, x.min_p))


def drawn(weights: Any, draws: int) -> Any:
    """Draws by the inverse of the cumulative sum in fp64, which take rows of NaN or zeros without an error: int32 [rows, draws]."""
    import torch

    through = torch.nan_to_num(weights.double()).cumsum(-1)
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(-1, keepdim=True)
    ids = torch.zeros(weights.shape[0], draws, dtype=torch.int32, device=weights.device)
    for start in range(0, draws, 1 << 22):
        part = ids[:, start : start + (1 << 22)]
        coins = torch.rand(part.shape, dtype=torch.float64, device=weights.device) * through[:, -1:]
        part.copy_(torch.minimum(torch.searchsorted(through, coins, right=True), last))
    return ids


@implements("sample", library="torch", name="torch_eager", platforms=ANYWHERE)
def sample(x: Any) -> Any:
    return drawn(x.probs, x.draws)


@implements("top_k_top_p_sample", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties": "all", "order": "joint"})
def top_k_top_p_sample(x: Any) -> Any:
    return drawn(filtered(x.probs, x.top_k, x.top_p), x.draws)


@implements("min_p_sample", library="torch", name="torch_eager", platforms=ANYWHERE)
def min_p_sample(x: Any) -> Any:
    return drawn(above_share(x.probs, x.min_p), x.draws)


@implements("seeded_sample", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties": "all"})
def seeded_sample(x: Any) -> Any:
    """Row by row from a generator of the row's own seed and position, twice."""
    import torch

    def once() -> Any:
        weights = filtered(x.probs, x.top_k, x.top_p)
        noise = torch.empty_like(weights)
        for row, (seed, position) in enumerate(zip(x.seeds.tolist(), x.positions.tolist(), strict=True)):
            # a generator of the CPU takes the lower 32 bits of its seed alone
            made = torch.Generator(device=x.device).manual_seed((seed * 0x9E3779B97F4A7C15 + position * 0xC2B2AE3D27D4EB4F) % 2**64 >> 31)
            noise[row].exponential_(generator=made)
        return (weights / noise.clamp_min_(torch.finfo(torch.float32).tiny)).argmax(-1)

    return torch.stack((once(), once()), -1)


@implements("temperature_softmax", library="torch", name="torch_eager", platforms=ANYWHERE)
def temperature_softmax(x: Any) -> Any:
    import torch

    return torch.softmax(x.logits.float() / column(x.temperature, x.logits, torch.float32), dim=-1)


@implements("greedy", library="torch", name="torch_eager", platforms=ANYWHERE)
def greedy(x: Any) -> Any:
    import torch

    return (x.cap * torch.tanh(x.logits.float() / x.cap) if x.cap else x.logits).argmax(-1)


@implements("token_bitmask", library="torch", name="torch_eager", platforms=ANYWHERE)
def token_bitmask(x: Any) -> None:
    import torch

    shift = torch.arange(32, dtype=torch.int32, device=x.device)
    allowed = ((x.bitmask.unsqueeze(-1) >> shift) & 1).bool().flatten(1)
    masked = torch.zeros_like(x.logits, dtype=torch.bool)
    width = min(allowed.shape[1], x.logits.shape[1])
    rows = slice(None) if x.indices is None else x.indices.long()
    masked[rows, :width] = ~allowed[rows, :width]
    x.logits.masked_fill_(masked, float("-inf"))


@implements("penalties", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"order": "additive-first"})
def penalties(x: Any) -> None:
    import torch

    count = torch.zeros(x.logits.shape, dtype=torch.float32, device=x.device)
    count.scatter_add_(1, x.generated, torch.ones_like(x.generated, dtype=torch.float32))
    seen = count > 0
    scale = torch.where(seen, x.repetition[:, None], 1.0)
    lowered = x.logits.float() - x.frequency[:, None] * count - x.presence[:, None] * seen
    x.logits.copy_(torch.where(lowered < 0, lowered * scale, lowered / scale))
