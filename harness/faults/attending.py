"""Attention that is nearly right: what goes wrong in pages, heads, masks, flags, scales, accumulators and rows without keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import eager, fault

PAGED: dict[str, Any] = {"batch": 3, "heads": 4, "kv_heads": 2, "length": 150, "dim": 64, "page": 16, "dtype": "fp16", "lengths": "ragged"}
PLAIN: dict[str, Any] = {**PAGED, "page": 1, "dtype": "fp32"}
EMPTY: dict[str, Any] = {**PLAIN, "length": 20, "lengths": "empty"}
NEW: dict[str, Any] = {"batch": 3, "heads": 4, "kv_heads": 2, "new": 6, "prefix": 40, "dim": 64, "dtype": "fp16", "lengths": "ragged"}


def _count(x: Any, numbers: int) -> torch.Tensor:
    return torch.arange(numbers, device=x.device)


def _moved(x: Any, slot: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The answer with every token read from `slot` of its slot, modulo the pool."""
    return eager(x.copy_with(slots=[slot(s) % len(x.k_flat) for s in x.slots]))


def _without(x: Any, keep: Callable[[int], torch.Tensor]) -> Any:
    """The answer with those keys alone whose place in the request (of so many) `keep` gives."""
    return eager(x.copy_with(slots=[s[keep(len(s))] for s in x.slots]))


@fault("decode_attention", "mismatch", "numerics", bug="sglang#25556", **PAGED)
def takes_page_ids_for_tokens(x: Any) -> Any:
    """Metadata of whole pages read as if pages held one token."""
    table = x.block_table.long()
    return eager(x.copy_with(slots=[table[i, _count(x, len(s)) % table.shape[1]] for i, s in enumerate(x.slots)]))


@fault("decode_attention", "mismatch", "numerics", bug="aiter#3095", **PAGED)
def strides_pages_by_one(x: Any) -> Any:
    return _moved(x, lambda s: s // 16 + s % 16)


@fault("decode_attention", "mismatch", "numerics", bug="vllm#57614", **{**PAGED, "page": 32})
def wraps_inside_a_page_of_32(x: Any) -> Any:
    """Right up to 16 tokens of a page, wrong from the 17th."""
    return _moved(x, lambda s: s // 32 * 32 + s % 16)


@fault("decode_attention", "mismatch", "numerics", bug="vllm#47671", **PAGED)
def wraps_its_offsets(x: Any) -> Any:
    """The product of page and stride in too few bits."""
    return _moved(x, lambda s: s & 127)


@fault("decode_attention", "mismatch", "numerics", bug="aiter#2768", **PLAIN)
def reads_anything_past_its_reach(x: Any) -> Any:
    """Right for short sequences; beyond 128 keys the first ones come again."""
    return eager(x.copy_with(slots=[s[_count(x, len(s)) % 128] for s in x.slots]))


@fault("decode_attention", "mismatch", "numerics", bug="fi#3219", **PAGED)
def ignores_that_pages_are_scattered(x: Any) -> Any:
    """From the first page on it reads one after the other."""
    return eager(x.copy_with(slots=[(s[:1] + _count(x, len(s))) % len(x.k_flat) for s in x.slots]))


@fault("decode_attention", "mismatch", "numerics", **PAGED)
def reads_to_the_end_of_the_page(x: Any) -> Any:
    """kv_len ignored: the stale tokens after the last one take part."""
    table = x.block_table.long()
    whole = [(table[i, : -(-len(s) // 16)][:, None] * 16 + _count(x, 16)).flatten() for i, s in enumerate(x.slots)]
    return eager(x.copy_with(slots=whole, window=-1, causal=False))


@fault("decode_attention", "mismatch", "numerics", **PLAIN)
def skips_a_block_of_keys(x: Any) -> Any:
    """The second block of 32 keys, in the longest request alone."""
    longest = max(map(len, x.slots))
    return _without(x, lambda n: torch.tensor([i for i in range(n) if n < longest or not 32 <= i < 64], device=x.device))


@fault("decode_attention", "mismatch", "numerics", **{**PLAIN, "values": "flat"})
def forgets_one_key_of_many(x: Any) -> Any:
    return _without(x, lambda n: _count(x, max(n - 1, 1)))


@fault("decode_attention", "mismatch", "numerics", **{**PLAIN, "length": 151})
def misses_the_last_key_at_odd_lengths(x: Any) -> Any:
    return _without(x, lambda n: _count(x, n - n % 2 if n > 1 else n))


@fault("decode_attention", "mismatch", "numerics", swept=True)
def errs_beyond_one_block(x: Any) -> Any:
    """Right up to 128 keys; of longer sequences the last ones that fill no block are left out."""
    return _without(x, lambda n: _count(x, n - n % 128 if n > 128 else n))


@fault("decode_attention", "mismatch", "numerics", swept=True)
def errs_in_bf16_alone(x: Any) -> Any:
    """One head in eight a hundredth too large."""
    o, lse = eager(x)
    if o.dtype == torch.bfloat16:
        o[:, ::8] *= 1.03
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **PLAIN)
def lets_one_head_speak_for_another(x: Any) -> Any:
    """The last query head reads the kv head of the group before."""
    o, lse = eager(x)
    other, _ = eager(x.copy_with(k_pool=x.k_pool.flip(2), v_pool=x.v_pool.flip(2)))
    o[:, -1] = other[:, -1]
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **PLAIN)
def interleaves_its_kv_heads(x: Any) -> Any:
    """Query head h reads kv head h % kv_heads in place of h // group."""
    order = _count(x, x.case.heads).view(-1, x.case.heads // x.case.kv_heads).T.flatten()
    o, lse = eager(x.copy_with(q=x.q[:, order.argsort()]))
    return o[:, order], lse[:, order]


@fault("decode_attention", "mismatch", "numerics", bug="FI#1193", **{**PLAIN, "soft_cap": 5.0})
def computes_without_its_soft_cap(x: Any) -> Any:
    return eager(x.copy_with(soft_cap=0.0))


@fault("decode_attention", "mismatch", "numerics", bug="vllm#54568", **{**PLAIN, "sinks": "sinks"})
def drops_the_sinks(x: Any) -> Any:
    return eager(x.copy_with(sinks=None))


@fault("decode_attention", "mismatch", "numerics", **{**PLAIN, "sinks": "sinks"})
def takes_the_first_heads_sink(x: Any) -> Any:
    return eager(x.copy_with(sinks=x.sinks[:1].expand(len(x.sinks))))


@fault("extend_attention", "mismatch", "numerics", bug="FI#4979", **{**NEW, "scales": "scaled", "cache": "e4m3fn"})
def ignores_the_key_scale(x: Any) -> Any:
    return eager(x.copy_with(k_scale=1.0))


@fault("extend_attention", "mismatch", "numerics", bug="FI#4979", **{**NEW, "scales": "scaled", "cache": "e4m3fn"})
def ignores_the_value_scale(x: Any) -> Any:
    return eager(x.copy_with(v_scale=1.0))


@fault("decode_attention", "mismatch", "numerics", **{**PLAIN, "window": 9})
def computes_without_its_window(x: Any) -> Any:
    return eager(x.copy_with(window=-1))


@fault("decode_attention", "mismatch", "numerics", **{**PLAIN, "window": 9})
def has_a_window_one_too_wide(x: Any) -> Any:
    return eager(x.copy_with(window=x.window + 1))


@fault("extend_attention", "mismatch", "numerics", **NEW)
def is_not_causal(x: Any) -> Any:
    return eager(x.copy_with(causal=False))


@fault("extend_attention", "mismatch", "numerics", bug="FA#1778", **{**NEW, "prefix": 3, "lengths": "cut"})
def aligns_its_mask_top_left(x: Any) -> Any:
    """Query i sees the keys up to i, wherever the sequence ends."""
    o, lse = eager(x)
    for i, (low, slots) in enumerate(zip(x.qo_indptr.tolist(), x.slots, strict=False)):
        for row in range(min(x.q_len[i], len(slots))):
            one = x.copy_with(q=x.q[low + row : low + row + 1], q_len=[1], slots=[slots[: row + 1]], qo_indptr=_count(x, 2), case=_alone(x), causal=False)
            o[low + row], lse[low + row] = (part[0] for part in eager(one))
    return o, lse


def _alone(x: Any) -> Any:
    from harness.contracts import Case

    return Case(x.case.op, x.case.id, {**x.case.point, "batch": 1})


@fault("verify_attention", "mismatch", "numerics", batch=2, heads=2, kv_heads=1, nodes=6, prefix=9, dim=16, dtype="fp32", shape="tree")
def sees_the_whole_tree(x: Any) -> Any:
    """A chain's mask on a tree: every node sees those before it."""
    return eager(x.copy_with(tree=torch.ones_like(x.tree).tril()))


@fault("decode_attention", "mismatch", "numerics", bug="fi#4267", **{**PLAIN, "length": 40, "values": "low"})
def starts_its_maximum_too_high(x: Any) -> Any:
    """A running maximum that begins at -5e4 in place of -inf: far below it everything vanishes."""
    o, lse = eager(x)
    low = lse < -30000
    return o.masked_fill(low[..., None], 0.0), lse.masked_fill(low, -50000.0)


@fault("decode_attention", "mismatch", "numerics", **PLAIN)
def forgets_to_rescale(x: Any) -> Any:
    """Two halves of the keys, each with its own maximum, summed as if it were the same."""
    halves = [eager(x.copy_with(slots=[s[part::2] if len(s) > 1 else s for s in x.slots])) for part in (0, 1)]
    (o_a, lse_a), (o_b, lse_b) = halves
    return ((o_a + o_b) / 2).to(o_a.dtype), torch.logaddexp(lse_a, lse_b)


@fault("decode_attention", "mismatch", "numerics", **{**PAGED, "dtype": "fp16", "values": "flat", "length": 300})
def accumulates_in_bf16(x: Any) -> Any:
    group, rows = x.case.heads // x.case.kv_heads, []
    for slots in x.slots:
        v = x.v_flat[slots].repeat_interleave(group, 1).bfloat16()
        total = torch.zeros_like(v[0])
        for value in v:
            total = total + value
        rows.append((total.float() / len(slots)).to(x.q.dtype))
    return torch.stack(rows), eager(x)[1]


@fault("decode_attention", "mismatch", "numerics", **PLAIN)
def leaves_the_scale_out_of_its_lse(x: Any) -> Any:
    o, lse = eager(x)
    return o, lse + math.log(x.scale)


@fault("decode_attention", "mismatch", "numerics", bug="vllm#47079", **PLAIN)
def gives_its_lse_in_base_2(x: Any) -> Any:
    o, lse = eager(x)
    return o, lse / math.log(2)


@fault("decode_attention", "mismatch", "numerics", **PLAIN)
def gives_the_maximum_for_the_lse(x: Any) -> Any:
    o, lse = eager(x)
    return o, lse - torch.tensor([math.log(len(s)) for s in x.slots], device=x.device)[:, None]


@fault("decode_attention", "mismatch", "numerics", bug="FA#2842", **EMPTY)
def has_the_wrong_infinity_for_an_empty_row(x: Any) -> Any:
    o, lse = eager(x)
    return o, torch.where(lse == -math.inf, math.inf, lse)


@fault("decode_attention", "mismatch", "numerics", bug="vllm#49294, fi#4452", **EMPTY)
def has_a_finite_lse_for_an_empty_row(x: Any) -> Any:
    o, lse = eager(x)
    return o, lse.clamp_min(-1e4)


@fault("decode_attention", "mismatch", "numerics", bug="FA#2842", **EMPTY)
def writes_an_empty_rows_lse_elsewhere(x: Any) -> Any:
    """At the padded offset: another request's is overwritten."""
    o, lse = eager(x)
    lse[-1] = -math.inf
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **EMPTY)
def divides_by_nothing_in_an_empty_row(x: Any) -> Any:
    o, lse = eager(x)
    return torch.where((lse == -math.inf)[..., None], math.nan, o), lse


@fault("decode_attention", "mismatch", "numerics", **EMPTY)
def leaves_values_in_an_empty_row(x: Any) -> Any:
    o, lse = eager(x)
    o[1] = x.v_flat[0, 0, 0]
    return o, lse
