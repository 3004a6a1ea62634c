"""Samplers whose draws are wrong rarely, in one place, or only beside other rows."""

from __future__ import annotations

from typing import Any

from harness.contracts import op
from harness.contracts._torch import torch
from harness.errors import Unsupported
from harness.faults.drawing import FILTERED, MANY, ROWS, _accepted, _coins, _draw, _emit, _inverse, _last, _seeded, _unlucky, _weights
from harness.faults.shelf import eager, fault

CHAIN: dict[str, Any] = {"batch": 4000, "slots": 3, "vocab": 20, "values": "drawn"}


@fault("top_k_top_p_sample", "mismatch", "support", bug="FI#384", batch=1, vocab=32000, k=1 << 30, p=1.0, draws=64, values="onehot")
def reads_an_id_beyond_a_onehot_row(x: Any) -> Any:
    ids = torch.full((1, x.draws), int(x.probs.argmax()), device=x.device)
    ids[0, -1] = 1061800448
    return ids


@fault("top_k_top_p_sample", "mismatch", "support", bug="FI#2456", batch=4, vocab=111, k=4, p=0.9, values="nan")
def reads_an_id_in_a_row_of_nan(x: Any) -> Any:
    return torch.where(x.probs.isnan().any(1, keepdim=True), 1 << 20, eager(x))


@fault("top_k_top_p_sample", "crash", "signal SIGSEGV", bug="FI#2456", batch=4, vocab=111, k=4, p=0.9, values="nan")
def faults_on_a_row_of_nan(x: Any) -> Any:
    import ctypes

    if bool(x.probs.isnan().any()):
        ctypes.string_at(8)
    return eager(x)


@fault("top_k_top_p_sample", "mismatch", "support", bug="TRT#1590", **FILTERED)
def draws_one_in_ten_thousand_amiss(x: Any) -> Any:
    ids = _draw(_weights(x), x.draws)
    ids[:, 9999::10000] = x.case.vocab + 7
    return ids


@fault("sample", "mismatch", "distribution", bug="pytorch#43115", batch=1, vocab=163840, draws=100000)
def never_draws_the_upper_half(x: Any) -> Any:
    weights = _weights(x)
    weights[:, 3 * 163840 // 4 :] = 0
    return _draw(weights, x.draws)


@fault("sample", "mismatch", "distribution", bug="aiter#2035", batch=2, vocab=512, draws=200000)
def loses_a_lane_of_its_prefix_sum(x: Any) -> Any:
    """The last of every 64 tokens gives its mass to the one before."""
    weights = _weights(x)
    weights[:, 62::64] += weights[:, 63::64]
    weights[:, 63::64] = 0
    return _draw(weights, x.draws)


@fault("top_k_top_p_sample", "mismatch", "distribution", **{**FILTERED, "draws": 200000})
def never_draws_the_kth_token(x: Any) -> Any:
    weights = _weights(x)
    kept = torch.where(weights > 0, weights, torch.inf)
    return _draw(weights.scatter(1, kept.argmin(1, keepdim=True), 0.0), x.draws)


@fault("top_k_top_p_sample", "mismatch", "distribution", **{**FILTERED, "k": 111, "p": 0.8, "draws": 200000})
def never_draws_the_token_that_crosses(x: Any) -> Any:
    weights = _weights(x)
    kept = torch.where(weights > 0, weights, torch.inf)
    return _draw(weights.scatter(1, kept.argmin(1, keepdim=True), 0.0), x.draws)


@fault("sample", "mismatch", "distribution", **ROWS)
def is_a_fifth_off_for_one_token(x: Any) -> Any:
    weights = _weights(x)
    weights[1, weights[1].argmax()] *= 1.2
    return _draw(weights, x.draws)


@fault("sample", "mismatch", "distribution", batch=1, vocab=1000, draws=1000000)
def is_a_fiftieth_off_for_one_token(x: Any) -> Any:
    weights = _weights(x)
    near = (weights / weights.sum() - 0.02).abs().argmin()
    weights.view(-1)[near] *= 1.1
    return _draw(weights, x.draws)


@fault("sample", "mismatch", "distribution", **ROWS)
def draws_from_probabilities_in_eight_bits(x: Any) -> Any:
    weights = _weights(x)
    top = weights.amax(1, keepdim=True)
    return _draw(torch.where(weights > 0, (weights / top * 15).ceil(), 0.0), x.draws)


@fault("sample", "mismatch", "reused-random", **ROWS)
def repeats_every_draw(x: Any) -> Any:
    return _inverse(_weights(x), _coins(x, 3, x.draws // 2).repeat_interleave(2, 1))


@fault("sample", "mismatch", "reused-random", **ROWS)
def walks_by_a_short_counter(x: Any) -> Any:
    """Coins of a counter that wraps at 4,096."""
    coins = _coins(x, 3, 4096)
    return _inverse(_weights(x), coins[:, torch.arange(x.draws, device=x.device) % 4096])


@fault("sample", "mismatch", "reused-random", **ROWS)
def mirrors_its_coins_between_rows(x: Any) -> Any:
    """Row 1 draws with 1 - u where row 0 draws with u."""
    coins = _coins(x, 3, x.draws)
    coins[1] = 1 - coins[0]
    return _inverse(_weights(x), coins.clamp(max=1 - 2.0**-53))


@fault("sample", "mismatch", "reused-random", **ROWS)
def draws_evenly_spread(x: Any) -> Any:
    """Coins on a grid, sorted: every frequency is right to a draw, and no draw is random."""
    coins = (torch.arange(x.draws, dtype=torch.float64, device=x.device) + 0.5) / x.draws
    return _inverse(_weights(x), coins.expand(3, -1).contiguous())


@fault("sample", "mismatch", "reused-random", bug="aiter#2035, fi#978", **ROWS)
def draws_the_same_in_every_call(x: Any) -> Any:
    """One call is as random as can be; its offset never goes on to the next."""
    made = torch.Generator("cpu").manual_seed(1234)
    return torch.multinomial(x.probs.double().cpu(), x.draws, replacement=True, generator=made).to(x.device)


@fault("sample", "mismatch", "distribution", **ROWS)
def is_unlucky_every_time(x: Any) -> Any:
    """Five deviations off in the first look, which chance may explain, and five more in the second, which it may not."""
    return _unlucky(x)


@fault("top_k_top_p_sample", "mismatch", "distribution", semantics={"ties": "exactly-k"}, **{**FILTERED, "k": 55, "p": 1.0, "values": "ties"})
def draws_every_tie(x: Any) -> Any:
    """It declares that it cuts ties at the k-th place."""
    return _draw(_weights(x), x.draws)


@fault("min_p_sample", "mismatch", "distribution", batch=3, min_p=0.1, **MANY)
def flattens_what_min_p_leaves(x: Any) -> Any:
    return _draw(_weights(x).sqrt(), x.draws)


@fault("top_k_top_p_sample", "mismatch", "support", **{**FILTERED, "form": "rows", "k": 5})
def swaps_its_parameters_for_defaults(x: Any) -> Any:
    """top_k 50 and top_p 1, whatever was asked for."""
    return _draw(_weights(x, top_k=50, top_p=1.0), x.draws)


@fault("top_k_top_p_sample", "mismatch", "shape", **FILTERED)
def draws_too_few(x: Any) -> Any:
    return _draw(_weights(x), x.draws - 1)


@fault("top_k_top_p_sample", "mismatch", "support", **{**FILTERED, "vocab": 40000, "draws": 64})
def packs_its_ids_in_16_bits(x: Any) -> Any:
    return _draw(_weights(x), x.draws).to(torch.int16)


@fault("seeded_sample", "mismatch", "invariant", bug="LMD#2459", batch=128, vocab=111, check="invariants")
def draws_the_first_of_equal_requests_otherwise(x: Any) -> Any:
    ids = _seeded(x, lambda seed, position, call: seed ^ (position << 20))
    ids[0] = (ids[0] + 1) % x.case.vocab
    return ids


@fault("seeded_sample", "mismatch", "invariant", batch=128, vocab=111, check="invariants")
def goes_by_the_slot_in_the_batch(x: Any) -> Any:
    weights, ids = x.probs.double().cpu(), []
    for row, (seed, position) in enumerate(zip(x.seeds.tolist(), x.positions.tolist(), strict=True)):
        made = torch.Generator("cpu").manual_seed((seed ^ (position << 20)) + 7919 * row & 0x7FFFFFFFFFFFFFFF)
        ids.append(torch.multinomial(weights[row], 1, generator=made).expand(2))
    return torch.stack(ids).to(x.device)


@fault("chain_verify", "pass", bug="vllm#40149", **CHAIN)
def verifies_drafts_as_if_certain(x: Any) -> None:
    """A clean control: every draft taken for the draft model's only choice accepts less, and is exact."""
    one = torch.zeros_like(x.draft_probs).scatter_(2, x.candidates[:, 1:, None], 1.0)
    y = x.copy_with(draft_probs=one)
    count = _accepted(y, lambda p, q: p)
    _emit(x, count, _last(y, count))


@fault("chain_verify", "mismatch", "silently-greedy", **CHAIN)
def never_draws_a_bonus_token_anew(x: Any) -> None:
    """After all drafts were accepted it takes the target's best token."""
    count = _accepted(x, lambda p, q: p / q)
    best = x.target_probs[:, -1].argmax(1)
    _emit(x, count, torch.where(count == x.case.slots - 1, best, _last(x, count)))


@fault("chain_verify", "mismatch", "numerics", bug="fi#879", batch=2, slots=4, vocab=111)
def counts_one_more_than_it_accepted(x: Any) -> None:
    eager(x)
    x.accept_token_num += 1


@fault("sample", "unsupported", "declined", **ROWS, check="isolation")
def has_no_such_path(x: Any) -> Any:
    raise Unsupported(f"no sampler for {op(x.case.op).name} here")
