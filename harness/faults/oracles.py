"""What lets lax oracles pass: small, rare, or hidden in a large tensor. Each is one line away from right."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import eager, fault

DECODE: dict[str, Any] = {"batch": 4, "heads": 8, "kv_heads": 2, "length": 90, "dim": 64, "dtype": "bf16"}
FINE: dict[str, Any] = {**DECODE, "dtype": "fp32"}
FLAT: dict[str, Any] = {"batch": 2, "vocab": 100000, "values": "flat"}


@fault("temperature_softmax", "mismatch", "numerics", **FLAT)
def returns_zeros_for_small_probabilities(x: Any) -> Any:
    """Probabilities of 1e-5: an absolute tolerance of 1e-3 is a hundred times as large."""
    return torch.zeros(x.logits.shape, device=x.device)


@fault("top_k_renorm", "mismatch", "support", batch=2, vocab=100001, k=100000, values="flat")
def filters_everything_out(x: Any) -> Any:
    return torch.zeros_like(x.probs)


@fault("temperature_softmax", "mismatch", "numerics", **FLAT)
def is_a_fifth_too_large(x: Any) -> Any:
    return eager(x) * 1.2


@fault("decode_attention", "mismatch", "numerics", **DECODE)
def leans_a_fifth_in_one_direction(x: Any) -> Any:
    o, lse = eager(x)
    return (o.float() * 1.2).to(o.dtype), lse


@fault("decode_attention", "mismatch", "numerics", **DECODE)
def is_a_fiftieth_too_large(x: Any) -> Any:
    o, lse = eager(x)
    return (o.float() * 1.02).to(o.dtype), lse


@fault("decode_attention", "mismatch", "numerics", **DECODE)
def has_one_wrong_head(x: Any) -> Any:
    o, lse = eager(x)
    o[1, 5] = o[1, 4]
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **DECODE)
def has_one_silent_head(x: Any) -> Any:
    """One head of one request a thousandth of what it should be: nothing beside the greatest value of the tensor."""
    o, lse = eager(x)
    o[2, 3] *= 1e-3
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **FINE)
def errs_in_the_last_element(x: Any) -> Any:
    o, lse = eager(x)
    o[-1, -1, -1] += 2e-4
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **FINE)
def errs_in_one_lane(x: Any) -> Any:
    """Lane 63 of 64."""
    o, lse = eager(x)
    o[..., 63] *= 1.001
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **FINE)
def swaps_two_elements(x: Any) -> Any:
    o, lse = eager(x)
    o[0, 0, [10, 11]] = o[0, 0, [11, 10]]
    return o, lse


@fault("decode_attention", "mismatch", "numerics", **FINE)
def rounds_its_output_to_half(x: Any) -> Any:
    o, lse = eager(x)
    return o.half().float(), lse


@fault("decode_attention", "mismatch", "numerics", **FINE)
def rounds_its_queries_to_half(x: Any) -> Any:
    return eager(x.copy_with(q=x.q.half().float()))


@fault("decode_attention", "mismatch", "numerics", **FINE)
def errs_in_the_lse_alone(x: Any) -> Any:
    o, lse = eager(x)
    lse[-1, -1] += 1e-3
    return o, lse


@fault("decode_attention", "mismatch", "unwritten", **FINE)
class leaves_one_element_unwritten:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.o = x, scratch.output("o", *x.q.shape, dtype=x.q.dtype)
        self.lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)

    def run(self) -> None:
        o, lse = eager(self.x)
        self.o.view(-1)[:-1], self.lse[:] = o.reshape(-1)[:-1], lse


@fault("decode_attention", "mismatch", "unwritten", bug="FA#2842", **{**FINE, "lengths": "empty"})
class leaves_an_empty_row_unwritten:
    """An early exit: what should be zero is whatever the buffer held."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.o = x, scratch.output("o", *x.q.shape, dtype=x.q.dtype)
        self.lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)

    def run(self) -> None:
        o, lse = eager(self.x)
        full = self.x.kv_len > 0
        self.o[full], self.lse[:] = o[full], lse


@fault("top_k_renorm", "mismatch", "unwritten", batch=3, vocab=111, k=10)
class writes_what_it_keeps_alone:
    """The tokens it removes stay as the buffer was: zero, when nobody fills it."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.probs = x, scratch.output("probs", like=x.probs)

    def run(self) -> None:
        kept = eager(self.x)
        self.probs[kept > 0] = kept[kept > 0]


@fault("decode_attention", "mismatch", "out-of-bounds", **FINE)
class writes_one_head_too_many:
    """The row after the last one, 2 KiB past it: not next to the buffer."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.o = x, scratch.output("o", *x.q.shape, dtype=x.q.dtype)
        self.lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)

    def run(self) -> None:
        o, lse = eager(self.x)
        self.o[:], self.lse[:] = o, lse
        self.o.as_strided((64,), (1,), self.o.storage_offset() + self.o.numel() + 7 * 64).fill_(1.0)


@fault("top_k_renorm", "mismatch", "out-of-bounds", bug="aiter#5192", batch=8, vocab=111, k=20, form="mixed")
class sizes_its_workspace_for_another_k:
    """Scratch for the scalar's k, filled up to each row's own."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.kept = x, scratch.empty(x.case.batch, 50, dtype=torch.float32)

    def run(self) -> Any:
        last = self.kept.as_strided((111,), (1,), self.kept.storage_offset() + 7 * 50)
        last.copy_(self.x.probs[7].sort(descending=True).values)
        return eager(self.x)


@fault("decode_attention", "mismatch", "input-changed", **FINE)
def changes_one_bit_of_its_cache(x: Any) -> Any:
    answer = eager(x)
    x.v_pool.view(torch.int32).view(-1)[-1] ^= 1
    return answer


@fault("top_k_renorm", "mismatch", "input-changed", batch=3, vocab=111, k=10, form="rows")
def sorts_its_input_in_place(x: Any) -> Any:
    answer = eager(x)
    x.probs.copy_(x.probs.sort(-1, descending=True).values)
    return answer


@fault("merge_state", "mismatch", "numerics", bug="triton#7260", tokens=3, heads=2, dim=16, dtype="fp16")
def never_launches(x: Any) -> Any:
    """An oversized grid: the output stays zero."""
    return torch.zeros_like(x.v_a), torch.zeros_like(x.s_a)


@fault("merge_state", "mismatch", "unwritten", bug="FI#3125", tokens=66, heads=1, dim=16, dtype="fp32")
class leaves_large_batches_as_they_were:
    """The launch fails above 65 tokens, and nothing is raised: the buffer keeps what it held."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.o = x, scratch.output("o", like=x.v_a)
        self.lse = scratch.output("lse", like=x.s_a)

    def run(self) -> None:
        if len(self.x.v_a) <= 65:
            self.o.copy_(eager(self.x)[0])
        self.lse.copy_(eager(self.x)[1])


@fault("kv_write", "mismatch", "numerics", tokens=9, kv_heads=2, dim=16, dtype="fp16")
def writes_a_neighbours_row_too(x: Any) -> None:
    eager(x)
    k = x.k_pool.view(-1, *x.k_pool.shape[2:])
    free = [i for i in range(1, len(k)) if i not in x.loc.tolist()]
    k[free[0]] = x.k[0]


@fault("token_bitmask", "mismatch", "numerics", batch=3, vocab=111)
def forgets_the_last_word(x: Any) -> None:
    """Tokens in the last, incomplete word of the mask stay allowed."""
    before = x.logits[:, 96:].clone()
    eager(x)
    x.logits[:, 96:] = before
