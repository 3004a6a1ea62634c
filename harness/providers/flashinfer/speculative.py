"""flashinfer.sampling's chain verification: its own random numbers, tokens in order with -1 after the end."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.speculative.emitted import GRIDS
from harness.providers.registry import implements


def _own_coins(case: Case) -> str | None:
    if case.values in GRIDS:
        return "FlashInfer's chain verification draws its own random numbers: a grid of coins cannot be given to it"
    return None if case.mode == "token" else "FlashInfer verifies chains token by token only"


@implements("chain_verify", library="flashinfer", platforms={"cuda"}, semantics={"uniforms": "own"}, accepts=_own_coins)
def chain_verify(x: Any) -> Any:
    import torch
    from flashinfer.sampling import chain_speculative_sampling

    accepted = torch.zeros(x.case.batch, dtype=torch.int32, device=x.device)
    emitted = torch.zeros_like(accepted)
    drafts = x.candidates[:, 1:].int()
    tokens, _, emitted = chain_speculative_sampling(x.draft_probs, drafts, x.target_probs, accepted, emitted)
    node = torch.arange(x.case.slots, device=x.device).repeat(x.case.batch, 1).masked_fill(tokens == -1, -1)
    return {"accept_token_num": emitted, "predicts": torch.stack((node, tokens.long()), -1)}
