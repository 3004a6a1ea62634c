"""Faults that are right in most cases: only some head count, length, dtype, flag or corner shows them, and finding it is the presets' work."""

from __future__ import annotations

import math
from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import eager, fault


@fault("decode_attention", "mismatch", "numerics", swept=True)
def errs_in_the_last_of_128_lanes(x: Any) -> Any:
    o, lse = eager(x)
    if o.shape[-1] == 128:
        o[..., 127] *= 1.02
    return o, lse


@fault("decode_attention", "mismatch", "numerics", bug="vllm#51647", swept=True)
def repeats_heads_beyond_twenty(x: Any) -> Any:
    """24 heads padded from 20: the surplus are the first ones again."""
    o, lse = eager(x)
    if x.case.heads == 24:
        o[:, 20:] = o[:, :4]
    return o, lse


@fault("decode_attention", "mismatch", "numerics", swept=True)
def takes_a_window_of_zero_for_one(x: Any) -> Any:
    return eager(x.copy_with(window=1) if x.window == 0 else x)


@fault("decode_attention", "mismatch", "numerics", swept=True)
def counts_its_sinks_twice(x: Any) -> Any:
    return eager(x if x.sinks is None else x.copy_with(sinks=x.sinks + math.log(2)))


@fault("decode_attention", "mismatch", "numerics", swept=True)
def caps_a_fiftieth_too_high(x: Any) -> Any:
    return eager(x.copy_with(soft_cap=x.soft_cap * 1.02))


@fault("decode_attention", "mismatch", "numerics", swept=True)
def drops_a_key_alone_on_its_page(x: Any) -> Any:
    return eager(x.copy_with(slots=[s[:-1] if x.case.page > 1 and len(s) > 1 and len(s) % x.case.page == 1 else s for s in x.slots]))


@fault("decode_attention", "mismatch", "numerics", swept=True)
def scales_its_scores_a_little_too_much(x: Any) -> Any:
    """By three in a thousand."""
    return eager(x.copy_with(scale=x.scale * 1.003))


@fault("extend_attention", "mismatch", "numerics", swept=True)
def forgets_the_first_key_of_a_prefix(x: Any) -> Any:
    return eager(x.copy_with(slots=[s[1:] if prefix else s for s, prefix in zip(x.slots, x.prefix_len, strict=True)]))


@fault("extend_attention", "mismatch", "numerics", swept=True)
def shifts_queries_after_the_first_tile(x: Any) -> Any:
    o, lse = eager(x)
    o[64:] = o[64:].roll(1, 0)
    return o, lse


@fault("verify_attention", "mismatch", "numerics", swept=True)
def lets_the_last_node_see_its_neighbour(x: Any) -> Any:
    tree = x.tree.clone()
    if tree.shape[1] > 2:
        tree[:, -1, -2] = True
    return eager(x.copy_with(tree=tree))


@fault("mla_decode", "mismatch", "numerics", swept=True)
def errs_in_heads_beyond_a_multiple_of_eight(x: Any) -> Any:
    o, lse = eager(x)
    whole = x.case.heads // 8 * 8 if x.case.heads % 8 else x.case.heads
    return torch.cat((o[:, :whole], o[:, whole:] * 1.01), 1), lse


@fault("mla_prefill", "mismatch", "numerics", swept=True)
def leaves_its_last_column_zero(x: Any) -> Any:
    o, lse = eager(x)
    return torch.cat((o[..., :-1], torch.zeros_like(o[..., -1:])), -1), lse


@fault("sparse_mla_prefill", "mismatch", "numerics", swept=True)
def drops_its_last_index(x: Any) -> Any:
    return eager(x.copy_with(indices=torch.cat((x.indices[..., :-1], torch.full_like(x.indices[..., -1:], -1)), -1)))


@fault("top_k_renorm", "mismatch", "support", swept=True)
def keeps_one_more_beyond_256(x: Any) -> Any:
    """Where another kernel takes over."""
    return eager(x.copy_with(top_k=x.top_k + 1) if isinstance(x.top_k, int) and x.top_k > 256 else x)


@fault("top_p_renorm", "mismatch", "support", swept=True)
def sums_its_nucleus_in_half_precision(x: Any) -> Any:
    through = x.probs.float().sort(-1, descending=True).values.half().cumsum(-1)
    kept = ((through.float() < torch.as_tensor(x.top_p, device=x.device).reshape(-1, 1)).sum(-1) + 1).clamp(max=x.case.vocab)
    edge = x.probs.float().sort(-1, descending=True).values.gather(1, kept[:, None] - 1)
    probs = x.probs.float()
    probs = probs.masked_fill(probs < edge, 0.0)
    return probs / probs.sum(-1, keepdim=True)


@fault("top_k_top_p_filter", "mismatch", "support", swept=True)
def drops_top_p_where_parameters_are_tensors(x: Any) -> Any:
    return eager(x.copy_with(top_p=1.0) if isinstance(x.top_k, torch.Tensor) else x)


@fault("min_p_filter", "mismatch", "support", swept=True)
def drops_the_best_token_at_min_p_1(x: Any) -> Any:
    """A threshold that is strict."""
    probs = x.probs.float()
    probs = probs.masked_fill(probs <= probs.amax(-1, keepdim=True) * torch.as_tensor(x.min_p, device=x.device).reshape(-1, 1), 0.0)
    return probs / probs.sum(-1, keepdim=True)


@fault("temperature_softmax", "mismatch", "numerics", swept=True)
def overflows_without_the_greatest_logit(x: Any) -> Any:
    weights = torch.exp(x.logits.float() / torch.as_tensor(x.temperature, device=x.device).reshape(-1, 1))
    return weights / weights.sum(1, keepdim=True)


@fault("temperature_softmax", "mismatch", "numerics", swept=True)
def flushes_small_probabilities(x: Any) -> Any:
    probs = eager(x)
    return probs.masked_fill(probs < 1e-7, 0.0)


@fault("token_bitmask", "mismatch", "numerics", swept=True)
def takes_bit_31_for_a_sign(x: Any) -> None:
    before = x.logits[:, 31::32].clone()
    eager(x)
    x.logits[:, 31::32] = before


@fault("sample", "mismatch", "distribution", swept=True)
def draws_with_twelve_bits(x: Any) -> Any:
    through = x.probs.double().nan_to_num().cumsum(1)
    coins = torch.rand(len(through), x.draws, dtype=torch.float64, device=x.device).mul(4096).floor() / 4096
    return torch.searchsorted(through, coins * through[:, -1:], right=True).clamp(max=x.case.vocab - 1)


@fault("verify_target_probs", "mismatch", "numerics", swept=True)
def takes_the_first_requests_temperature(x: Any) -> Any:
    return eager(x.copy_with(temperatures=x.temperatures[:1].expand_as(x.temperatures)))


@fault("kv_indices", "mismatch", "numerics", swept=True)
def shifts_indices_beyond_512(x: Any) -> Any:
    indices = eager(x).clone()
    indices[512:] = indices[512:].roll(1)
    return indices


@fault("tree_build", "mismatch", "numerics", swept=True)
def places_the_deepest_nodes_one_too_far(x: Any) -> None:
    eager(x)
    x.positions += x.positions >= x.positions.max()


@fault("suffix_merge", "mismatch", "numerics", swept=True)
def leaves_the_last_suffix_token_out(x: Any) -> None:
    eager(x.copy_with(suffix_len=(x.suffix_len - 1).clamp(min=0)))
