"""Rows of dspark_accept_sampling: a draft row near its target, and rows that the declared noise decides by a hair."""

from __future__ import annotations

import math

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.sampling import murmur
from harness.contracts.sampling.distributions import logits
from harness.contracts.speculative import noise

STRIDE = 5  # from one token of a draft row to the next
HEATS = (1.0, 0.5, 2.0)  # times the case's temperature, request by request
HAIR = 1e-4  # relative: by how much a level row decides
LEAD = 0.1  # the same of a token that its draft row has, too


def rows_inputs(case: Case, draw: Draw, tokens: torch.Tensor, rows: torch.Tensor, first: torch.Tensor, lens: torch.Tensor | None) -> Inputs:
    device = draw.device
    held = (first[:, :, None] + STRIDE * torch.arange(1 << case.spread, device=device)) % case.vocab
    draft = torch.full((case.batch, case.slots - 1, case.vocab), -math.inf, device=device).scatter_(2, held, 0.0)
    return Inputs(
        case,
        device,
        candidates=tokens,
        drafted_from=first,
        target_logits=rows.flatten(0, 1),
        draft_logits=draft,
        draft_probs=(draft == 0).float() * 2.0**-case.spread,
        temperatures=torch.full((case.batch, 1), case.temperature, device=device),
        verify_lens=lens,
        **_keys(draw),
    )


def _keys(draw: Draw) -> dict[str, torch.Tensor]:
    return {"noise_key": draw.bits(1) & 0x7FFFFFFFFFFFFFFF, "noise_step": draw.integers(1, low=0, high=1 << 20)}


def near(case: Case, draw: Draw) -> Inputs:
    """Draft rows q, and target rows that are q with one token ruled out, less a share of the rest, all of which `gaining` gets."""
    batch, slots, vocab = case.batch, case.slots, case.vocab
    heat = case.temperature * torch.tensor(HEATS, device=draw.device)[torch.arange(batch, device=draw.device) % len(HEATS), None]
    gaining = draw.integers(batch, slots, 1, low=0, high=vocab)
    gaining[0], gaining[-1] = vocab - 1, 0
    lost = (gaining + draw.integers(batch, slots, 1, low=1, high=vocab)) % vocab
    share = 2.0 ** -draw.integers(batch, slots, 1, low=1, high=5).double()
    q = torch.softmax(logits(draw, batch * slots, vocab, "random").double().view(batch, slots, vocab), -1)
    q = (0.25 * q).scatter_add(2, gaining, torch.full_like(share, 0.75))
    p = (q * (1 - share)).scatter(2, lost, 0.0).scatter(2, gaining, 0.0)
    p = p.scatter(2, gaining, 1 - p.sum(-1, keepdim=True))
    p[:, -1] = torch.zeros_like(p[:, -1]).scatter(1, gaining[:, -1], 1.0)
    right = draw.integers(batch, slots, low=0, high=4) != 0
    tokens = torch.where(right, gaining.squeeze(2), lost.squeeze(2)).roll(1, 1)
    lens = draw.integers(batch, low=1, high=slots + 1).to(torch.int32) if case.cut == "cut" else None
    draft = (heat[:, None].double() * q[:, :-1].log()).float()
    return Inputs(
        case,
        draw.device,
        candidates=tokens,
        target_logits=(heat[:, None].double() * p.log()).float().flatten(0, 1),
        draft_logits=draft,
        draft_probs=torch.softmax(draft.double() / heat[:, None].double(), -1).float(),
        temperatures=heat.float(),
        verify_lens=lens,
        **_keys(draw),
    )


def level(case: Case, draw: Draw) -> Inputs:
    """Of each row one draft by a hair more or less probable than its coin asks for; what a rejection leaves is as improbable as its noise is high.

    The other tokens of a draft row have its probability beside that; one of them leads by more, for what is left of it is a small difference.
    """
    batch, slots, vocab = case.batch, case.slots, case.vocab
    heat = case.temperature * torch.tensor(HEATS, device=draw.device)[torch.arange(batch, device=draw.device) % len(HEATS), None]
    tokens = draw.integers(batch, slots, low=0, high=vocab)
    lens = draw.integers(batch, low=1, high=slots + 1).to(torch.int32) if case.cut == "cut" else None
    x = rows_inputs(case, draw, tokens, torch.zeros(batch, slots, vocab, device=draw.device), tokens[:, 1:], lens)
    x = x.copy_with(noise_key=noise.key_for(x, murmur.WORD if slots % 2 else 0))
    made = noise.declared(x, "counter")
    q = torch.cat((x.draft_probs.double(), torch.zeros(batch, 1, vocab, dtype=torch.float64, device=draw.device)), 1)
    drafted = torch.zeros_like(q).scatter(2, torch.roll(tokens, -1, 1)[:, :, None], 1.0).bool()
    drafted[:, -1] = False
    liked = draw.integers(batch, slots, vocab, low=0, high=1 << 30) << ((q > 0) & (draw.integers(batch, slots, 1, low=0, high=2) > 0)).long()
    liked[0, :, -1] = 1 << 32  # of request 0 it is the token whose number is the least or the greatest
    best = liked.masked_fill(drafted, -1).argmax(-1, keepdim=True)
    score = -made.gumbel[:, None].expand(-1, slots, -1).scatter_add(2, best, torch.where(q.gather(2, best) > 0, -LEAD, -HAIR).double())
    p = torch.softmax(score.masked_fill(drafted, -math.inf), -1)
    hair = HAIR * (2 * draw.integers(batch, slots - 1, low=0, high=2) - 1).double()
    asked = (made.coins * 2.0**-case.spread * (1 + hair))[:, :, None]
    p[:, :-1] = (p[:, :-1] * (2.0**-case.spread - asked) + q[:, :-1]).scatter(2, tokens[:, 1:, None], asked)
    return x.copy_with(target_logits=(heat[:, None].double() * p.log()).float().flatten(0, 1), temperatures=heat.float())
