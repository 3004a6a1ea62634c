"""The requests of served_sample: which kinds a batch mixes, their inputs, and what becomes of their logits."""

from __future__ import annotations

import math
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.registry import Semantics
from harness.contracts.sampling import filters

TOP_K_ALL = 1 << 30
BIASED = 4  # tokens with a bias in a biased row
PLAIN = {
    "temperature": 1.0, "top_k": TOP_K_ALL, "top_p": 1.0, "min_p": 0.0, "frequency": 0.0, "presence": 0.0, "repetition": 1.0,
    "forced": False, "constrained": False, "biased": False,
}  # fmt: skip
PENALISED = {"frequency": 0.5, "presence": 0.25, "repetition": 1.25}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 2.0},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.2},
    "both": {"top_k": 6, "top_p": 0.8},
    "penalised": PENALISED,
    "rewarded": {"frequency": -0.5, "presence": -0.25, "repetition": 0.75},
    "forced": {"forced": True},
    "constrained": {"constrained": True},
    "biased": {"biased": True},
    "filtered": {"temperature": 0.7, "top_k": 20, "top_p": 0.9, **PENALISED, "constrained": True, "biased": True},
    "everything": {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.1, **PENALISED, "forced": True, "constrained": True, "biased": True},
}
_SIMPLE = ("plain", "cold", "hot", "penalised", "forced", "constrained", "biased")
MIXES: dict[str, tuple[str, ...]] = {
    "every": tuple(KINDS),
    "nominp": tuple(kind for kind in KINDS if "min_p" not in KINDS[kind]),  # a batch whose sampler takes both filters at once
    "narrow": ("greedy", "top-k", "both", "filtered"),  # every row has a top-k: the scheduler knows the greatest
    "simple": _SIMPLE,  # no row has a filter
    "greedy": ("greedy",),
    "chosen": ("greedy", "plain", "cold", "hot", "top-k", "top-p", "both", "biased"),  # what a verification is asked for by every server
    "penalties": ("plain", "penalised", "rewarded", "forced"),
    "shares": ("plain", "min-p"),
}
BY_ROW = (
    "logits", "temperature", "top_k", "top_p", "min_p", "frequency", "presence", "repetition", "generated", "least", "stop", "allowed", "constrained",
    "bias_ids", "bias", "seeds", "positions",
)  # fmt: skip


def requests(case: Case, draw: Draw, rows: torch.Tensor) -> Inputs:
    """The inputs of a case whose logits are `rows`. A row's grammar and least length forbid its best token, which it has generated, so that each tells."""
    kinds = [PLAIN | KINDS[MIXES[case.mix][row % len(MIXES[case.mix])]] for row in range(case.batch)]

    def of(name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([kind[name] for kind in kinds], dtype=dtype, device=draw.device)

    best = rows.argmax(-1, keepdim=True)
    generated = draw.integers(case.batch, case.length, low=0, high=case.vocab)
    generated[:, 1::3] = generated[:, : generated[:, 1::3].shape[1]]  # some tokens more than once
    generated[:, :1] = best[:, : case.length]
    allowed = draw.integers(case.batch, case.vocab, low=0, high=2) == 1
    allowed.scatter_(1, (best + 1) % case.vocab, True).scatter_(1, best, False)
    constrained, biased, forced = (of(name, torch.bool) for name in ("constrained", "biased", "forced"))
    steps = torch.arange(case.vocab, device=draw.device)[:BIASED]
    ids = (draw.integers(case.batch, 1, low=0, high=case.vocab) + steps) % case.vocab
    values = torch.tensor([5.0, -3.0, 2.5, -100.0], device=draw.device)[: len(steps)]
    fields = {name: of(name, torch.float32) for name in ("temperature", "top_p", "min_p", "frequency", "presence", "repetition")}
    return Inputs(
        case,
        draw.device,
        logits=rows,
        **fields,
        top_k=of("top_k", torch.int32),
        generated=generated,
        least=torch.where(forced, case.length + 1, torch.arange(case.batch, device=draw.device) % 2 * case.length),  # one that is reached forbids nothing
        stop=best[:, 0],
        allowed=allowed | ~constrained[:, None],
        constrained=constrained,
        bias_ids=ids,
        bias=torch.where(biased[:, None], values, 0.0),
        seeds=draw.bits(case.batch) & 0x7FFFFFFFFFFFFFFF,
        positions=draw.integers(case.batch, low=0, high=1 << 17),
        draws=case.draws,
    ).copy_with(top_k=torch.where(fields["temperature"] == 0, 1, of("top_k", torch.int32)))


def adjusted(x: Inputs) -> torch.Tensor:
    """fp64 [batch, vocab]: logits with penalties, without the stop tokens of rows that are too short and without what a grammar forbids, biased."""
    count = torch.zeros(x.logits.shape, dtype=torch.float64, device=x.device)
    count.scatter_add_(1, x.generated, torch.ones_like(x.generated, dtype=torch.float64))
    seen, scale = count > 0, x.repetition.double()[:, None]
    value = x.logits.double() - x.frequency.double()[:, None] * count - x.presence.double()[:, None] * seen
    value = torch.where(seen, torch.where(value < 0, value * scale, value / scale), value)
    short = (x.least > x.generated.shape[1])[:, None] & (torch.arange(x.logits.shape[1], device=x.device) == x.stop[:, None])
    value = value.masked_fill(short | (~x.allowed & x.constrained[:, None]), -math.inf)
    return value.scatter_add(1, x.bias_ids, x.bias.double())


def heat(x: Inputs, value: torch.Tensor) -> torch.Tensor:
    """Logits over each row's temperature; a greedy row as it is."""
    return value / torch.where(x.temperature == 0, 1.0, x.temperature.double())[:, None]


def kept_alone(x: Inputs, row: int, semantics: Semantics) -> list[int]:
    """The second formula: the tokens that one row keeps, by plain arithmetic on its own parameters."""
    mine = {name: getattr(x, name)[row].tolist() for name in BY_ROW}
    value: list[float] = mine["logits"]
    for token in set(mine["generated"]):
        count = mine["generated"].count(token)
        less = value[token] - count * mine["frequency"] - mine["presence"]
        value[token] = less * mine["repetition"] if less < 0 else less / mine["repetition"]
    if len(mine["generated"]) < mine["least"]:
        value[mine["stop"]] = -math.inf
    if mine["constrained"]:
        value = [one if let else -math.inf for one, let in zip(value, mine["allowed"], strict=True)]
    for token, bias in zip(mine["bias_ids"], mine["bias"], strict=True):
        value[token] += bias
    warmth = mine["temperature"] or 1.0
    top = max(value)
    weight = [math.exp((one - top) / warmth) for one in value]
    whole = math.fsum(weight)
    p = [one / whole for one in weight]
    first = semantics["order"] == "top-k-first" or (semantics["order"] == "own" and mine["min_p"] > 0)
    order = "top-k-first" if first else "joint"
    # of equal ones all may be kept, by every policy, as far as the k-th
    kept = filters.kept_by_rank(p, min(mine["top_k"], len(p)), mine["top_p"], "all" if semantics["ties_k"] == "all" else "exactly-k", order)
    return [token for token in kept if p[token] >= mine["min_p"] * max(p)]
