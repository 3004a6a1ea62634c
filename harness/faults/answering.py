"""Providers that return the wrong thing."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import fault, right


@fault("merge_state", "mismatch", "shape")
def returns_a_wrong_shape(x: Any) -> Any:
    o, lse = right(x)
    return o.flatten(1), lse


@fault("merge_state", "mismatch", "dtype")
def returns_a_wrong_dtype(x: Any) -> Any:
    o, lse = right(x)
    return o, lse.double()


@fault("merge_state", "mismatch", "shape")
def returns_too_few(x: Any) -> Any:
    return right(x)[0]


@fault("merge_state", "mismatch", "shape")
def returns_too_many(x: Any) -> Any:
    return (*right(x), x.s_a)


@fault("merge_state", "mismatch", "shape")
def returns_nothing(x: Any) -> Any:
    right(x)


@fault("merge_state", "mismatch", "shape")
def returns_words(x: Any) -> Any:
    return "the merged state", "and its sum"


@fault("merge_state", "mismatch", "shape")
def returns_elsewhere(x: Any) -> Any:
    """Right in form, on another device."""
    o, lse = right(x)
    return o.to("meta"), lse.to("meta")


@fault("chain_verify", "mismatch", "shape")
def returns_an_odd_walk(x: Any) -> Any:
    """Where the contract itself has to make sense of several outputs together."""
    return x.accept_token_num[:-1], x.accept_index.flatten(), x.predicts[1:]


@fault("merge_state", "mismatch", "numerics")
def forgets_to_merge(x: Any) -> Any:
    return x.v_a, right(x)[1]


@fault("merge_state", "mismatch", "numerics", bug="vllm#47079")
def returns_the_other_base(x: Any) -> Any:
    """A log-sum-exp in base 2 that is said to be natural."""
    o, lse = right(x)
    return o, lse * 1.4426950408889634


@fault("mla_decode", "mismatch", "numerics", bug="vllm#46952")
def swaps_the_last_head(x: Any) -> Any:
    """One head in silence given its neighbour's output: the others are right to the last bit."""
    o, lse = right(x)
    o[:, -1] = o[:, -2]
    return o, lse


@fault("mla_decode", "mismatch", "numerics")
def drops_the_last_key(x: Any) -> Any:
    """As a loop that ends one short, in the longest request alone."""
    o, lse = right(x)
    request = int(x.kv_len.argmax())
    keys = x.kv.flatten(0, 1)[x.slots[request][:-1].long()].double()
    weights = torch.softmax(x.q[request].double() @ keys.T * x.scale, -1)
    o[request] = (weights @ keys[:, :512]).to(o.dtype)
    return o, lse


def _filtered(x: Any, ranks: list[int]) -> torch.Tensor:
    """Keeps the tokens of those ranks (0 is the most probable) and renormalises."""
    order = x.probs.argsort(dim=-1, descending=True)[:, ranks]
    kept = torch.zeros_like(x.probs).scatter(1, order, x.probs.gather(1, order))
    return kept / kept.sum(-1, keepdim=True)


@fault("top_k_renorm", "mismatch", "support")
def keeps_one_more(x: Any) -> Any:
    return _filtered(x, list(range(x.case.k + 1)))


@fault("top_k_renorm", "mismatch", "support", bug="FI#2202")
def keeps_one_less(x: Any) -> Any:
    return _filtered(x, list(range(x.case.k - 1)))


@fault("top_k_renorm", "mismatch", "support")
def keeps_a_wrong_token(x: Any) -> Any:
    """The right number of tokens, the last of them the next best."""
    return _filtered(x, [*range(x.case.k - 1), x.case.k])


@fault("top_k_renorm", "mismatch", "numerics")
def forgets_to_renormalise(x: Any) -> Any:
    return torch.where(right(x)[0] > 0, x.probs, 0.0)


@fault("top_k_top_p_sample", "mismatch", "support", bug="FI#384")
def draws_out_of_range(x: Any) -> Any:
    ids = right(x)[0]
    ids[-1, -1] = x.case.vocab
    return ids


@fault("top_k_top_p_sample", "mismatch", "support")
def draws_a_negative_id(x: Any) -> Any:
    ids = right(x)[0]
    ids[-1, -1] = -1
    return ids


@fault("top_k_top_p_sample", "mismatch", "support")
def draws_what_was_removed(x: Any) -> Any:
    ids = right(x)[0]
    ids[-1, -1] = x.probs[-1].argmin()
    return ids
