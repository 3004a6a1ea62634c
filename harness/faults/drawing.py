"""Samplers and verifications whose single answers are all possible, and whose draws are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.contracts import op
from harness.contracts._torch import torch
from harness.faults.shelf import fault

MANY: dict[str, Any] = {"vocab": 111, "draws": 20000}
FILTERED: dict[str, Any] = {**MANY, "batch": 3, "k": 10, "p": 0.9}
MIXED: dict[str, Any] = {**MANY, "batch": 5, "k": 10, "p": 0.9, "form": "mixed"}
ROWS: dict[str, Any] = {**MANY, "batch": 3}
SEEDED: dict[str, Any] = {"batch": 128, "vocab": 111}
CHAIN: dict[str, Any] = {"batch": 4000, "slots": 3, "vocab": 20, "values": "drawn"}
GRID: dict[str, Any] = {"batch": 1536, "slots": 2, "vocab": 3, "values": "grid"}


def _weights(x: Any, **parameters: Any) -> torch.Tensor:
    """fp64 [batch, vocab]: what the filters leave, with some parameters replaced."""
    impl, y = op(x.case.op).impl, x.copy_with(**parameters)
    weights: torch.Tensor = x.probs.double() * impl.support(y, op(x.case.op).resolve({})).allowed
    return weights


def _inverse(weights: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
    """Tokens [rows, draws] at the coins' places in the cumulative sums."""
    through = weights.cumsum(1)
    return torch.searchsorted(through, coins * through[:, -1:], right=True).clamp(max=weights.shape[1] - 1)


def _draw(weights: torch.Tensor, draws: int) -> torch.Tensor:
    return torch.multinomial(weights, draws, replacement=True)


def _coins(x: Any, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, device=x.device)


@fault("top_k_top_p_sample", "pass", **MIXED)
def draws_well(x: Any) -> Any:
    """A clean control."""
    return _draw(_weights(x), x.draws)


@fault("sample", "pass", **ROWS)
def was_unlucky_once(x: Any) -> Any:
    """A clean control that must pass by its second look: in the first draws a token lies five deviations off, as it may once in a while."""
    return _unlucky(x) if x.draws == MANY["draws"] else _draw(_weights(x), x.draws)


def _unlucky(x: Any) -> torch.Tensor:
    """Draws as even as can be in a random order, but that the best token of the first row comes five deviations too often."""
    weights = _weights(x)
    even = (torch.arange(x.draws, dtype=torch.float64, device=x.device) + 0.5) / x.draws
    ids = _inverse(weights, even.expand(3, -1).contiguous()).gather(1, torch.rand(3, x.draws, device=x.device).argsort(1))
    best = int(weights[0].argmax())
    share = float(weights[0, best])
    others = torch.nonzero(ids[0] != best).flatten()
    ids[0, others[: round(5 * (x.draws * share * (1 - share)) ** 0.5)]] = best
    return ids


@fault("top_k_top_p_sample", "mismatch", "silently-greedy", batch=3, vocab=111, k=10, p=1.0)
def always_takes_the_best(x: Any) -> Any:
    return _weights(x).argmax(1, keepdim=True).expand(-1, x.draws)


@fault("sample", "mismatch", "silently-greedy", **ROWS)
def takes_the_best_in_one_row(x: Any) -> Any:
    ids = _draw(_weights(x), x.draws)
    ids[1] = x.probs[1].argmax()
    return ids


@fault("top_k_top_p_sample", "mismatch", "ignored-flag", **FILTERED)
def ignores_top_k(x: Any) -> Any:
    return _draw(_weights(x, top_k=0), x.draws)


@fault("top_k_top_p_sample", "mismatch", "ignored-flag", **{**FILTERED, "p": 0.5})
def ignores_top_p(x: Any) -> Any:
    return _draw(_weights(x, top_p=1.0), x.draws)


@fault("min_p_sample", "mismatch", "ignored-flag", batch=3, min_p=0.1, **MANY)
def ignores_min_p(x: Any) -> Any:
    return _draw(_weights(x, min_p=0.0), x.draws)


@fault("top_k_top_p_sample", "mismatch", "ignored-flag", **MIXED)
def takes_the_first_rows_k(x: Any) -> Any:
    return _draw(_weights(x, top_k=int(x.top_k[0])), x.draws)


@fault("top_k_top_p_sample", "mismatch", "invariant", **MIXED)
def takes_the_neighbours_parameters(x: Any) -> Any:
    return _draw(_weights(x, top_k=torch.roll(x.top_k, 1), top_p=torch.roll(x.top_p, 1)), x.draws)


@fault("sample", "mismatch", "invariant", **ROWS)
def draws_from_the_neighbours_row(x: Any) -> Any:
    return _draw(torch.roll(_weights(x), -1, 0), x.draws)


@fault("sample", "mismatch", "reused-random", bug="aiter#2035", **ROWS)
def starts_its_random_numbers_anew(x: Any) -> Any:
    """Every thousand draws, as a launch whose offset does not advance."""
    return _inverse(_weights(x), _coins(x, 3, 1000).repeat(1, x.draws // 1000))


@fault("sample", "mismatch", "reused-random", **ROWS)
def shares_random_numbers_between_rows(x: Any) -> Any:
    return _inverse(_weights(x), _coins(x, 1, x.draws).expand(3, -1).contiguous())


@fault("sample", "mismatch", "reused-random", **ROWS)
def shares_noise_between_draws(x: Any) -> Any:
    """One exponential race for every two draws of a row, a fifth of its noise drawn anew."""
    weights = _weights(x).repeat_interleave(x.draws, 0)
    noise = torch.empty_like(weights).exponential_()
    again = torch.rand_like(weights) < 0.2
    noise[1::2] = torch.where(again[1::2], noise[1::2], noise[::2])
    return (weights / noise).argmax(1).view(-1, x.draws)


@fault("sample", "mismatch", "distribution", **ROWS)
def favours_a_token(x: Any) -> Any:
    weights = _weights(x)
    weights[2, weights[2].argmax()] *= 1.3
    return _draw(weights, x.draws)


@fault("top_k_top_p_sample", "mismatch", "distribution", **FILTERED)
def draws_kept_tokens_alike(x: Any) -> Any:
    """A filter's mask drawn from in place of its probabilities."""
    return _draw((_weights(x) > 0).double(), x.draws)


@fault("sample", "mismatch", "distribution", batch=3, vocab=111, draws=20000)
def sharpens_a_little(x: Any) -> Any:
    return _draw(_weights(x) ** 1.1, x.draws)


@fault("sample", "mismatch", "distribution", bug="pytorch#43115", batch=1, vocab=1000, draws=200000)
def never_draws_the_tail(x: Any) -> Any:
    """The least likely tokens that hold a thousandth together."""
    weights = _weights(x)
    falling, order = weights.sort(1, descending=True)
    kept = falling * (falling.cumsum(1) < 0.999)
    return _draw(torch.zeros_like(weights).scatter_(1, order, kept), x.draws)


@fault("sample", "mismatch", "support", bug="pytorch#48841", batch=4, vocab=111, draws=20000, values="flat")
def draws_a_massless_token_once(x: Any) -> Any:
    ids = _draw(_weights(x), x.draws)
    ids[3, 777] = x.probs[3].argmin()
    return ids


def _seeded(x: Any, seed: Callable[[int, int, int], int]) -> Any:
    """Two calls, each row with a generator of `seed(seed, position, call)`, on the CPU: the same draws on every device."""
    weights = x.probs.double().cpu()
    ids = torch.empty(len(weights), 2, dtype=torch.int64, device="cpu")
    for row, at in enumerate(zip(x.seeds.tolist(), x.positions.tolist(), strict=True)):
        for call in (0, 1):
            made = torch.Generator("cpu").manual_seed(seed(*at, call) & 0x7FFFFFFFFFFFFFFF)
            ids[row, call] = torch.multinomial(weights[row], 1, generator=made)[0]
    return ids.to(x.device)


@fault("seeded_sample", "pass", seeds="fewseeds", **SEEDED)
def draws_well_by_seed(x: Any) -> Any:
    """A clean control."""
    return _seeded(x, lambda seed, position, call: seed ^ (position * 0x9E3779B97F4A7C15))


@fault("seeded_sample", "mismatch", "ignored-flag", **SEEDED)
def ignores_the_seed(x: Any) -> Any:
    """Draws anew on every call."""
    return torch.multinomial(x.probs, 2, replacement=True)


@fault("seeded_sample", "mismatch", "ignored-flag", seeds="fewseeds", **SEEDED)
def ignores_the_position(x: Any) -> Any:
    return _seeded(x, lambda seed, position, call: seed)


@fault("seeded_sample", "mismatch", "ignored-flag", seeds="fewpositions", **SEEDED)
def takes_the_position_for_the_seed(x: Any) -> Any:
    return _seeded(x, lambda seed, position, call: position)


@fault("seeded_sample", "mismatch", "ignored-flag", seeds="highseeds", **SEEDED)
def cuts_the_seed_to_32_bits(x: Any) -> Any:
    return _seeded(x, lambda seed, position, call: (seed & 0xFFFFFFFF) ^ (position << 4))


@fault("seeded_sample", "mismatch", "silently-greedy", seeds="fewseeds", **SEEDED)
def is_greedy_by_seed(x: Any) -> Any:
    return x.probs.argmax(1, keepdim=True).expand(-1, 2)


def _emit(x: Any, count: torch.Tensor, final: torch.Tensor) -> None:
    """Fills the buffers of a chain: `count` drafts accepted, then the final token, both [batch]."""
    place = torch.arange(x.case.slots, device=x.device)
    tokens = torch.where(place < count[:, None], torch.roll(x.candidates, -1, 1), final[:, None])
    x.predicts.copy_(tokens.view(-1))
    x.accept_index.copy_(torch.where(place <= count[:, None], x.retrive_index, -1))
    x.accept_token_num.copy_(count)


def _accepted(x: Any, chance: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Drafts accepted, [batch], each with `chance(p, q)`."""
    drafted = x.candidates[:, 1:, None]
    p, q = x.target_probs[:, :-1].gather(2, drafted).squeeze(2), x.draft_probs.gather(2, drafted).squeeze(2)
    return ((x.uniform_samples < chance(p, q)) & (p > 0)).int().cumprod(1).sum(1)


def _last(x: Any, count: torch.Tensor, taken: float = 1.0) -> torch.Tensor:
    """The final token, from p less `taken` times q where a draft was rejected."""
    rows = torch.arange(x.case.batch, device=x.device)
    draft = torch.cat((x.draft_probs, torch.zeros_like(x.draft_probs[:, :1])), 1)[rows, count]
    left = (x.target_probs[rows, count] - taken * draft).clamp(min=0).double()
    return _inverse(left, x.uniform_final[:, None].double()).squeeze(1)


@fault("chain_verify", "pass", **CHAIN)
def verifies_well(x: Any) -> None:
    """A clean control, whose coins are used the other way round: right, though no rule of single coins would have it so."""
    x.uniform_samples.neg_().add_(1)
    count = _accepted(x, lambda p, q: p / q)
    x.uniform_samples.neg_().add_(1)
    _emit(x, count, _last(x, count))


@fault("chain_verify", "mismatch", "silently-greedy", bug="sglang#37134", **CHAIN)
def verifies_greedily(x: Any) -> None:
    """Accepts a draft that is the target's best, then takes the best."""
    best = x.target_probs.argmax(2)
    count = (x.candidates[:, 1:] == best[:, :-1]).int().cumprod(1).sum(1)
    _emit(x, count, best.gather(1, count[:, None]).squeeze(1))


@fault("chain_verify", "mismatch", "silently-greedy", **GRID)
def verifies_greedily_on_the_grid(x: Any) -> None:
    verifies_greedily(x)


@fault("chain_verify", "mismatch", "distribution", **CHAIN)
def accepts_every_draft(x: Any) -> None:
    count = _accepted(x, lambda p, q: torch.ones_like(p))
    _emit(x, count, _last(x, count))


@fault("chain_verify", "mismatch", "distribution", **CHAIN)
def accepts_by_the_target_alone(x: Any) -> None:
    """Accepts with p in place of p / q."""
    count = _accepted(x, lambda p, q: p)
    _emit(x, count, _last(x, count))


@fault("chain_verify", "mismatch", "distribution", **GRID)
def keeps_the_draft_in_the_rest(x: Any) -> None:
    """After a rejection it draws from p, not from what is left of it."""
    count = _accepted(x, lambda p, q: p / q)
    _emit(x, count, _last(x, count, taken=0.0))


@fault("tree_verify_sample", "mismatch", "silently-greedy", bug="sglang#37134", batch=2000, slots=4, vocab=20, shape="wide", values="drawn")
def verifies_a_tree_greedily(x: Any) -> None:
    """Accepts the child that holds the target's best token, then takes the best."""
    best = x.target_probs.argmax(2)
    hit = x.candidates[:, 1:] == best[:, :1]
    node = torch.where(hit.any(1), hit.int().argmax(1) + 1, 0)
    rows = torch.arange(x.case.batch, device=x.device)
    x.accept_token_num.copy_(node > 0)
    x.accept_index.fill_(-1)
    x.accept_index[:, 0] = x.retrive_index[:, 0]
    x.accept_index[node > 0, 1] = x.retrive_index[rows, node][node > 0].to(x.accept_index.dtype)
    x.predicts[x.retrive_index[:, 0]] = best[:, 0].to(x.predicts.dtype)
    x.predicts[x.retrive_index[rows, node]] = best[rows, node].to(x.predicts.dtype)


@fault("dspark_accept_sampling", "mismatch", "ignored-flag", batch=4000, slots=3, vocab=111, values="drawn", spread=5, temperature=2.0)
def ignores_the_temperature(x: Any) -> Any:
    p = torch.softmax(x.target_logits.double(), 1).view(x.case.batch, x.case.slots, -1)
    drafted = x.candidates[:, 1:, None]
    ratio = p[:, :-1].gather(2, drafted).squeeze(2) / x.draft_probs.gather(2, drafted).squeeze(2)
    count = (torch.rand_like(ratio) < ratio).int().cumprod(1).sum(1)
    rows = torch.arange(x.case.batch, device=x.device)
    draft = torch.cat((x.draft_probs, torch.zeros_like(x.draft_probs[:, :1])), 1)
    left = (p - draft).clamp(min=0)[rows, count]
    return count.int(), _draw(left, 1).squeeze(1), torch.zeros_like(count, dtype=torch.int32)
