"""Latent attention and the merging of states: heads folded and padded wrongly, page ids cut short, bases mixed, parts without keys."""

from __future__ import annotations

import math
import os
from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import eager, fault

HEADS: dict[str, Any] = {"batch": 3, "heads": 12, "length": 40, "page": 16, "dtype": "fp16", "lengths": "ragged"}
STATES: dict[str, Any] = {"tokens": 4, "heads": 12, "dim": 64, "dtype": "fp32"}
LOG2E = 1 / math.log(2)


@fault("mla_decode", "crash", "signal SIGABRT", bug="sglang#36356", **HEADS)
def has_no_reducer_for_twelve_heads(x: Any) -> Any:
    if x.case.heads not in (8, 16, 32, 64, 128):
        os.abort()
    return eager(x)


@fault("mla_prefill", "crash", "signal SIGABRT", bug="aiter#4727", batch=1, heads=48, new=3, prefix=70, dtype="fp16")
def has_no_reducer_for_forty_eight_heads(x: Any) -> Any:
    """Takes any multiple of 16 and then has no kernel for it, once a prefix is long enough to be split."""
    if x.case.heads % 16:
        raise ValueError("heads must be a multiple of 16")
    if x.case.heads == 48 and x.case.prefix > 64:
        os.abort()
    return eager(x)


@fault("mla_decode", "crash", "signal SIGABRT", bug="aiter#4363", batch=16, heads=64, length=9, dtype="fp16")
def faults_at_larger_batches(x: Any) -> Any:
    """Finite for batches of 1 and 4."""
    if x.case.heads == 64 and x.case.batch >= 16:
        os.abort()
    return eager(x)


@fault("mla_decode", "crash", "signal SIGSEGV", bug="aiter#2983", batch=1, heads=32, length=5, dtype="fp16")
def writes_to_a_null_pointer(x: Any) -> Any:
    import ctypes

    ctypes.memset(0, 0, 64)


@fault("mla_decode", "mismatch", "numerics", bug="aiter#2983", batch=2, heads=32, length=9, dtype="fp16")
def overwrites_its_good_output(x: Any) -> Any:
    """The reducer of one split copies an empty partial result over what stage one wrote."""
    o, lse = eager(x)
    return torch.zeros_like(o), lse


@fault("mla_decode", "mismatch", "numerics", bug="sglang#25556", **HEADS)
def takes_latent_pages_for_tokens(x: Any) -> Any:
    pages = x.kv_indptr.tolist()
    slots = [x.kv_indices[pages[i] : pages[i + 1]].long() for i in range(len(x.slots))]
    return eager(x.copy_with(slots=[ids[torch.arange(len(s), device=x.device) % len(ids)] for ids, s in zip(slots, x.slots, strict=True)]))


@fault("mla_decode", "mismatch", "numerics", bug="aiter#4076", batch=64, heads=4, length=9, dtype="fp16")
def errs_a_little_in_some_of_many_rows(x: Any) -> Any:
    o, lse = eager(x)
    o[17::32] *= 1.01
    return o, lse


@fault("mla_decode", "mismatch", "numerics", bug="aiter#3062", batch=1, heads=1, length=4, top_page=65540, dtype="fp16")
def loses_the_upper_bits_of_page_ids(x: Any) -> Any:
    return eager(x.copy_with(slots=[s & 0xFFFF for s in x.slots]))


@fault("mla_decode", "mismatch", "numerics", bug="vllm#46952", batch=2, heads=32, length=9, dtype="fp16")
def folds_heads_in_the_wrong_order(x: Any) -> Any:
    """32 heads as two times 16, taken apart by the other axis."""
    o, lse = eager(x)
    order = torch.arange(32, device=x.device).view(2, 16).T.flatten()
    return o[:, order], lse


@fault("mla_decode", "mismatch", "numerics", bug="sglang#33341", **HEADS)
def pads_heads_and_cuts_the_wrong_end(x: Any) -> Any:
    """12 heads padded to 16, the last 12 taken."""
    o, lse = eager(x)
    return torch.cat((o, torch.zeros_like(o[:, :4])), 1)[:, 4:], torch.cat((lse, torch.zeros_like(lse[:, :4])), 1)[:, 4:]


@fault("mla_decode", "mismatch", "unwritten", bug="aiter#3910", **HEADS)
class leaves_the_last_heads_unwritten:
    """A stride for 8 heads a group: the last four of twelve are never reached."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.o = x, scratch.output("o", *x.q.shape[:2], 512, dtype=x.q.dtype)
        self.lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)

    def run(self) -> None:
        o, lse = eager(self.x)
        self.o[:, :8], self.lse[:] = o[:, :8], lse


@fault("mla_decode", "mismatch", "numerics", bug="aiter#3013", batch=16, heads=2, length=9, dtype="fp16")
def errs_more_with_every_row(x: Any) -> Any:
    o, lse = eager(x)
    return (o.float() * (1 + 2e-3 * torch.arange(len(o), device=x.device))[:, None, None]).to(o.dtype), lse


@fault("mla_decode", "mismatch", "numerics", **{**HEADS, "dtype": "fp32", "page": 1})
def scales_by_the_whole_width(x: Any) -> Any:
    """1 / sqrt(576) in place of 1 / sqrt(192)."""
    return eager(x.copy_with(scale=1 / math.sqrt(576)))


@fault("mla_decode", "mismatch", "numerics", **{**HEADS, "dtype": "fp32", "page": 1})
def leaves_the_rope_part_out(x: Any) -> Any:
    q = x.q.clone()
    q[..., 512:] = 0
    return eager(x.copy_with(q=q))


@fault("mla_decode", "mismatch", "numerics", batch=2, queries=3, heads=4, length=9, dtype="fp32")
def lets_queries_see_the_future(x: Any) -> Any:
    """Several queries a request, each of which sees every key."""
    rows = [x.copy_with(q=x.q[i::3], q_len=[1, 1], qo_indptr=torch.arange(3, dtype=torch.int32, device=x.device)) for i in range(3)]
    answers = [eager(row) for row in rows]
    return tuple(torch.stack([answer[part] for answer in answers], 1).flatten(0, 1) for part in (0, 1))


@fault("mla_decode", "mismatch", "numerics", batch=2, heads=3, length=9, dtype="fp16", cache="e4m3fn")
def ignores_the_cache_scale(x: Any) -> Any:
    return eager(x.copy_with(kv_scale=1.0))


@fault("sparse_mla_prefill", "mismatch", "numerics", tokens=4, heads=4, k=16, length=40, dtype="fp32", selection="holes")
def reads_slot_minus_one(x: Any) -> Any:
    """-1 wraps to the pool's last token in place of none."""
    return eager(x.copy_with(indices=torch.where(x.indices < 0, len(x.kv) - 1, x.indices)))


@fault("merge_state", "mismatch", "numerics", bug="FI#4051", **STATES, values="bothempty")
def merges_two_empty_states_to_nan(x: Any) -> Any:
    top = torch.maximum(x.s_a, x.s_b)
    a, b = torch.exp(x.s_a - top), torch.exp(x.s_b - top)
    return (x.v_a * a[..., None] + x.v_b * b[..., None]) / (a + b)[..., None], top + torch.log(a + b)


@fault("merge_state", "mismatch", "numerics", bug="vllm#47079", **STATES, values="masses")
def weighs_by_powers_of_two(x: Any) -> Any:
    """Natural sums read as base 2; its own lse is right."""
    o, _ = eager(x.copy_with(s_a=x.s_a / LOG2E, s_b=x.s_b / LOG2E))
    return o, eager(x)[1]


@fault("merge_states", "mismatch", "numerics", bug="vllm#47079", parts=3, values="masses", **STATES)
def weighs_by_powers_of_e(x: Any) -> Any:
    """Base 2 taken for natural."""
    o, _ = eager(x.copy_with(lse=x.lse * LOG2E))
    return o, eager(x)[1]


@fault("merge_states", "mismatch", "numerics", parts=4, **STATES)
def leaves_the_last_part_out(x: Any) -> Any:
    return eager(x.copy_with(v=x.v[:, :-1], lse=x.lse[:, :-1]))


@fault("merge_state", "mismatch", "numerics", **STATES, values="far")
def overflows_without_a_maximum(x: Any) -> Any:
    a, b = torch.exp(2 * x.s_a), torch.exp(2 * x.s_b)
    return (x.v_a * a[..., None] + x.v_b * b[..., None]) / (a + b)[..., None], torch.log(a + b) / 2


@fault("merge_state", "mismatch", "numerics", bug="vllm#49294", **STATES, values="empty")
def counts_an_empty_part(x: Any) -> Any:
    """A part without keys enters with the sum of one key."""
    return eager(x.copy_with(s_a=x.s_a.masked_fill(x.s_a.isinf(), 0.0), s_b=x.s_b.masked_fill(x.s_b.isinf(), 0.0)))


@fault("merge_state", "mismatch", "numerics", **STATES)
def adds_the_sums_of_parts(x: Any) -> Any:
    o, _ = eager(x)
    return o, torch.maximum(x.s_a, x.s_b)
