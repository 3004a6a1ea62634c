"""A server's sampler that forgets something, or mixes the requests of a batch up, where each draw by itself is one that might be."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import eager, fault

BATCH: dict[str, Any] = {"batch": 15, "vocab": 111, "draws": 2000}
SEEDED: dict[str, Any] = {"batch": 14, "vocab": 111, "draws": 200, "mix": "nominp", "mode": "seeded"}
PENALTIES = ("frequency", "presence", "repetition", "generated")
PARAMETERS = ("temperature", "top_k", "top_p", "min_p", *PENALTIES, "least", "stop", "allowed", "constrained", "bias_ids", "bias")
OWN = {"order": "own"}
JOINT = {"order": "joint"}  # as plain PyTorch has it


def _moved(x: Any, *names: str) -> Any:
    return x.copy_with(**{name: torch.roll(getattr(x, name), 1, 0) for name in names})


@fault("served_sample", "pass", **BATCH)
def serves_well(x: Any) -> Any:
    """A clean control."""
    return eager(x)


@fault("served_sample", "mismatch", "ignored-flag", **BATCH)
def drops_the_temperature(x: Any) -> Any:
    return eager(x.copy_with(temperature=(x.temperature > 0).float()))


@fault("served_sample", "mismatch", "silently-greedy", **BATCH)
def serves_the_best_token(x: Any) -> Any:
    return eager(x.copy_with(temperature=torch.zeros_like(x.temperature)))


@fault("served_sample", "mismatch", "invariant", **BATCH)
def serves_by_the_neighbours_parameters(x: Any) -> Any:
    return eager(_moved(x, *PARAMETERS))


@fault("served_sample", "mismatch", "invariant", **BATCH)
def has_the_neighbours_penalties(x: Any) -> Any:
    return eager(_moved(x, *PENALTIES))


@fault("served_sample", "mismatch", "invariant", **BATCH)
def has_the_neighbours_mask(x: Any) -> Any:
    return eager(_moved(x, "allowed", "constrained"))


@fault("served_sample", "mismatch", "ignored-flag", **BATCH)
def drops_the_mask(x: Any) -> Any:
    return eager(x.copy_with(constrained=torch.zeros_like(x.constrained)))


@fault("served_sample", "mismatch", "ignored-flag", **BATCH)
def drops_the_penalties(x: Any) -> Any:
    off = {name: torch.full_like(getattr(x, name), value) for name, value in (("frequency", 0.0), ("presence", 0.0), ("repetition", 1.0))}
    return eager(x.copy_with(**off))


@fault("served_sample", "mismatch", "ignored-flag", **BATCH)
def drops_the_bias(x: Any) -> Any:
    return eager(x.copy_with(bias=torch.zeros_like(x.bias)))


@fault("served_sample", "mismatch", "ignored-flag", **BATCH)
def stops_too_early(x: Any) -> Any:
    """As if min_new_tokens were not given."""
    return eager(x.copy_with(least=torch.zeros_like(x.least)))


@fault("served_sample", "mismatch", "ignored-flag", **{**BATCH, "batch": 4, "mix": "narrow"})
def serves_without_its_filters(x: Any) -> Any:
    return eager(x.copy_with(top_k=torch.where(x.temperature == 0, 1, 1 << 30), top_p=torch.ones_like(x.top_p)))


def _top_k_first(x: Any) -> Any:
    """The weights with top-p taken of what top-k leaves, in every row."""
    from harness.contracts import op

    contract: Any = op("served_sample").impl
    each = x.copy_with(min_p=x.min_p.clamp_min(1e-30))
    return contract.weights(x) * contract.support(each, op("served_sample").resolve(OWN)).allowed


@fault("served_sample", "mismatch", "support", **BATCH)
def takes_top_p_of_what_top_k_leaves(x: Any) -> Any:
    return torch.multinomial(_top_k_first(x), x.draws, replacement=True)


@fault("served_sample", "mismatch", "invariant", semantics=OWN, **BATCH)
def changes_the_order_for_a_neighbour(x: Any) -> Any:
    """As a sampler that has one way for a whole batch, chosen by whether any request has min-p."""
    return torch.multinomial(_top_k_first(x), x.draws, replacement=True)


@fault("served_sample", "mismatch", "ignored-flag", **SEEDED)
def serves_without_seeds(x: Any) -> Any:
    free = x.copy_with(case=type(x.case)(x.case.op, x.case.id, {**x.case.point, "mode": "free"}))
    return torch.stack((eager(free), eager(free)), -1)


@fault("served_sample", "mismatch", "ignored-flag", **SEEDED)
def serves_every_position_alike(x: Any) -> Any:
    return eager(x)[:, :1].expand(-1, x.draws, -1)


@fault("served_sample", "mismatch", "reused-random", **{**SEEDED, "batch": 7, "mix": "simple", "draws": 1000})
def serves_one_seed_to_all(x: Any) -> Any:
    return eager(x.copy_with(seeds=torch.full_like(x.seeds, 42), positions=torch.zeros_like(x.positions)))


@fault("served_verify", "mismatch", "ignored-flag", semantics=JOINT, batch=4, vocab=64, mix="penalties", draws=1000)
def verifies_without_penalties(x: Any) -> Any:
    """As a verification that looks for them under a name they no longer have."""
    off = {name: torch.full_like(getattr(x, name), value) for name, value in (("frequency", 0.0), ("presence", 0.0), ("repetition", 1.0), ("least", 0))}
    return eager(x.copy_with(**off))


@fault("served_verify", "mismatch", "ignored-flag", semantics=JOINT, batch=2, vocab=64, mix="shares", draws=1000)
def verifies_without_min_p(x: Any) -> Any:
    return eager(x.copy_with(min_p=torch.zeros_like(x.min_p)))


@fault("served_verify", "mismatch", "silently-greedy", semantics=JOINT, batch=8, vocab=64, draws=1000)
def verifies_every_request_greedily(x: Any) -> Any:
    return eager(x.copy_with(temperature=torch.zeros_like(x.temperature)))


@fault("served_verify", "mismatch", "invariant", semantics=JOINT, batch=8, vocab=64, draws=1000)
def verifies_by_the_neighbours_parameters(x: Any) -> Any:
    return eager(_moved(x, *PARAMETERS))
