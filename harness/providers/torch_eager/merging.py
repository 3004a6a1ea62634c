"""Merging attention states in plain PyTorch, in fp32."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements

ANYWHERE = {"cuda", "rocm", "cpu"}


def _merge(v: Any, lse: Any) -> Any:
    """v [tokens, parts, heads, dim], lse [tokens, parts, heads]: parts without keys carry no weight."""
    import torch

    total = torch.logsumexp(lse, dim=1)
    weights = torch.exp(lse - total.masked_fill(total.isinf(), 0.0)[:, None])
    return (v.float() * weights[..., None]).sum(1).to(v.dtype), total


@implements("merge_state", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"lse": "natural"})
def merge_state(x: Any) -> Any:
    import torch

    return _merge(torch.stack((x.v_a, x.v_b), 1), torch.stack((x.s_a, x.s_b), 1))


@implements("merge_states", library="torch", name="torch_eager", platforms=ANYWHERE, semantics={"lse": "natural"})
def merge_states(x: Any) -> Any:
    return _merge(x.v, x.lse)


@implements("suffix_merge", library="torch", name="torch_eager", platforms=ANYWHERE)
def suffix_merge(x: Any) -> Any:
    import torch

    group = x.q.shape[1] // x.k.shape[1]
    k, v = (t[x.slots.long()].repeat_interleave(group, dim=2).float() for t in (x.k, x.v))
    seen = torch.arange(x.slots.shape[1], device=x.device)[:, None] < x.suffix_len[:, None, None]
    scores = (torch.einsum("thd,tshd->tsh", x.q.float(), k) * x.scale).masked_fill(~seen, float("-inf"))
    weights = torch.softmax(torch.cat((x.prefix_lse[:, None], scores), 1), 1)[..., None]
    x.o.copy_((weights * torch.cat((x.o.float()[:, None], v), 1)).sum(1))
