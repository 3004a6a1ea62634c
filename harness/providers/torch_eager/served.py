"""A server's sampler in plain PyTorch, in fp32, every row with its own parameters."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.torch_eager.sampling import ANYWHERE, above_share, drawn, filtered


def kept(x: Any) -> Any:
    """fp32 [batch, vocab]: the weights that each row draws from."""
    import torch

    count = torch.zeros_like(x.logits).scatter_add_(1, x.generated, torch.ones_like(x.generated, dtype=torch.float32))
    seen = count > 0
    lowered = x.logits - x.frequency[:, None] * count - x.presence[:, None] * seen
    scale = torch.where(seen, x.repetition[:, None], 1.0)
    value = torch.where(lowered < 0, lowered * scale, lowered / scale)
    short = x.least > x.generated.shape[1]
    at = x.stop[:, None]
    value.scatter_(1, at, value.gather(1, at).masked_fill(short[:, None], float("-inf")))
    value.masked_fill_(x.constrained[:, None] & ~x.allowed, float("-inf"))
    value.scatter_add_(1, x.bias_ids, x.bias)
    greedy = x.temperature == 0
    probs = torch.softmax(value / torch.where(greedy, 1.0, x.temperature)[:, None], -1)
    best = torch.zeros_like(probs).scatter_(1, value.argmax(-1, keepdim=True), 1.0)
    return torch.where(greedy[:, None], best, above_share(filtered(probs, x.top_k, x.top_p), x.min_p))


@implements(
    "served_sample", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties_k": "all", "ties_p": "all"}, promises=("repeat", "process")
)
def served_sample(x: Any) -> Any:
    """Free draws by the inverse of the cumulative sum; seeded ones from a generator of each row's seed and position."""
    import torch

    weights = kept(x)
    if x.case.mode == "free":
        return drawn(weights, x.draws)
    through = weights.double().cumsum(-1)
    coins = torch.empty(x.case.batch, x.draws, dtype=torch.float64)
    for row, (seed, position) in enumerate(zip(x.seeds.tolist(), x.positions.tolist(), strict=True)):
        for step in range(x.draws):  # a generator of the CPU takes the lower 32 bits of its seed alone
            mixed = (seed * 0x9E3779B97F4A7C15 + (position + step) * 0xC2B2AE3D27D4EB4F) % 2**64 >> 31
            coins[row, step] = torch.rand((), dtype=torch.float64, generator=torch.Generator().manual_seed(mixed))
    last = weights.shape[1] - 1 - (weights > 0).flip(-1).int().argmax(-1, keepdim=True)
    ids = torch.minimum(torch.searchsorted(through, coins.to(x.device) * through[:, -1:], right=True), last)
    return torch.stack((ids, ids), -1)


@implements("served_verify", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"ties_k": "all", "ties_p": "all", "order": "joint"})
def served_verify(x: Any) -> Any:
    """What a verification emits is a draw from the target, so a draw from the target is one."""
    return drawn(kept(x), x.draws)
