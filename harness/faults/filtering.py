"""Filters, softmax, greedy picks and index lists that keep the wrong tokens, or the right ones with wrong values."""

from __future__ import annotations

from typing import Any

from harness.contracts._torch import torch
from harness.faults.shelf import eager, fault

ROWS: dict[str, Any] = {"batch": 3, "vocab": 111}
MIXED: dict[str, Any] = {"batch": 8, "vocab": 111, "k": 10, "form": "mixed"}
NUCLEUS: dict[str, Any] = {"batch": 3, "vocab": 500, "p": 0.9}
BOTH: dict[str, Any] = {"batch": 100, "vocab": 111, "k": 4, "p": 0.82}


def _ranked(x: Any, keep: torch.Tensor) -> torch.Tensor:
    """The renormalised row of the ranks that `keep`, bool [rows, vocab], marks (rank 0 is the most probable)."""
    order = x.probs.argsort(dim=-1, descending=True, stable=True)
    kept = torch.zeros_like(x.probs).scatter(1, order, torch.where(keep, x.probs.gather(1, order), 0.0))
    return kept / kept.sum(-1, keepdim=True)


def _before(x: Any) -> torch.Tensor:
    """fp64 [rows, vocab]: the mass above each rank."""
    ordered = x.probs.double().sort(-1, descending=True).values
    return ordered.cumsum(-1) - ordered


@fault("top_k_renorm", "missing", "None", bug="sglang#32569", **ROWS, k=10)
def calls_a_filter_that_is_none(x: Any) -> Any:
    top_k_renorm_prob: Any = None
    return top_k_renorm_prob(x.probs, x.top_k)


@fault("top_p_renorm", "missing", "unbound", bug="sglang#32630", **ROWS, p=0.9)
def finds_no_filter_in_its_package(x: Any) -> Any:
    from harness.providers import resolve

    return resolve("torch.nn:top_p_renorm_prob", "torch.special:top_p_renorm_prob")(x.probs, x.top_p)


@fault("top_p_renorm", "mismatch", "support", bug="FI#2202", **NUCLEUS)
def drops_the_token_that_crosses(x: Any) -> Any:
    before = _before(x)
    through = torch.cat((before[:, 1:], torch.ones_like(before[:, :1])), 1)
    return _ranked(x, (through < x.case.p) | (before == 0))


@fault("top_p_renorm", "mismatch", "support", bug="HF#18976", **NUCLEUS)
def keeps_one_token_past_the_crossing(x: Any) -> Any:
    before = _before(x)
    return _ranked(x, torch.cat((torch.zeros_like(before[:, :1]), before[:, :-1]), 1) < x.case.p)


@fault("top_p_renorm", "mismatch", "support", bug="HF#19839", **{**NUCLEUS, "p": 0.0})
def masks_every_token_at_p_0(x: Any) -> Any:
    kept = torch.where(_before(x) < 0, x.probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)


@fault("top_k_renorm", "mismatch", "support", bug="vllm#50979", **ROWS, k=55, values="ties")
def cuts_ties_that_it_promised_to_keep(x: Any) -> Any:
    return _ranked(x, (torch.arange(111, device=x.device) < 55).expand(len(x.probs), -1))


@fault("top_k_renorm", "mismatch", "support", bug="fi#3774", semantics={"ties": "exactly-k"}, **ROWS, k=55, values="ties")
def keeps_ties_that_it_promised_to_cut(x: Any) -> Any:
    return eager(x)


@fault("top_k_renorm", "mismatch", "support", semantics={"ties": "exactly-k"}, **ROWS, k=55, values="ties")
def breaks_ties_across_the_edge(x: Any) -> Any:
    """Exactly k tokens, one of them less probable than one left out."""
    keep = torch.arange(111, device=x.device) < 55
    keep[0], keep[-1] = False, True
    return _ranked(x, keep.expand(len(x.probs), -1))


@fault("top_k_top_p_filter", "mismatch", "support", bug="sglang#36173", **BOTH)
def takes_the_mass_of_what_top_k_left(x: Any) -> Any:
    """top-k first, though it declares the joint order."""
    order = torch.arange(111, device=x.device) < 4
    kept = x.probs.double().sort(-1, descending=True).values * order
    before = (kept.cumsum(-1) - kept) / kept.sum(-1, keepdim=True)
    return _ranked(x, order & (before < x.case.p))


@fault("top_k_top_p_filter", "mismatch", "support", bug="vllm#1885", semantics={"order": "top-k-first"}, **{**BOTH, "p": 0.7})
def takes_the_mass_of_the_whole_row(x: Any) -> Any:
    return eager(x)


@fault("top_k_renorm", "mismatch", "support", bug="fi#2325", **MIXED)
def keeps_a_histogram_from_the_row_before(x: Any) -> Any:
    """Rows that keep everything leave their count to the next."""
    return eager(x.copy_with(top_k=torch.where(x.top_k.roll(1) >= 111, x.top_k.roll(1), x.top_k)))


@fault("top_k_renorm", "mismatch", "support", bug="aiter#5192", **MIXED)
def uses_the_first_rows_k(x: Any) -> Any:
    return eager(x.copy_with(top_k=int(x.top_k[0])))


@fault("top_k_renorm", "mismatch", "support", bug="aiter, scalar k", **ROWS, k=-1)
def takes_fifty_where_k_is_off(x: Any) -> Any:
    return eager(x.copy_with(top_k=50))


@fault("top_k_renorm", "mismatch", "support", **ROWS, k=111)
def takes_the_vocabulary_for_one_less(x: Any) -> Any:
    return eager(x.copy_with(top_k=110))


@fault("top_k_renorm", "mismatch", "support", batch=2, vocab=1000, k=5)
def keeps_an_equal_number_of_others(x: Any) -> Any:
    """Ranks 2 to 6: as many as asked for."""
    rank = torch.arange(1000, device=x.device)
    return _ranked(x, ((rank > 0) & (rank <= 5)).expand(2, -1))


@fault("top_k_renorm", "mismatch", "support", swept=True)
def drops_the_last_column(x: Any) -> Any:
    """In vocabularies that are no multiple of 4."""
    probs = x.probs.clone()
    if x.case.vocab % 4 and x.case.vocab > 1:
        probs[:, -1] = 0
    return eager(x.copy_with(probs=probs))


@fault("top_k_renorm", "mismatch", "numerics", **ROWS, k=10)
def divides_by_the_mass_of_the_row_before(x: Any) -> Any:
    kept = eager(x) * x.probs.sum(-1, keepdim=True)
    kept[-1] *= 1 + 1e-4
    return kept


@fault("top_p_renorm", "mismatch", "numerics", **NUCLEUS)
def renormalises_in_half_precision(x: Any) -> Any:
    kept = eager(x)
    return kept / kept.half().sum(-1, keepdim=True).float() * (1 + 2.0**-12)


@fault("min_p_filter", "mismatch", "support", **ROWS, min_p=0.1)
def takes_min_p_as_it_is(x: Any) -> Any:
    """Not as a share of the best token."""
    kept = torch.where(x.probs >= 0.1 * x.probs.amax(-1, keepdim=True) * 2, x.probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)


@fault("temperature_softmax", "mismatch", "numerics", batch=3, vocab=111, temperature=0.7)
def multiplies_by_the_temperature(x: Any) -> Any:
    return torch.softmax(x.logits.float() * x.case.temperature, -1)


@fault("temperature_softmax", "mismatch", "numerics", batch=3, vocab=111, temperature=0.7)
def leaves_the_temperature_out(x: Any) -> Any:
    return torch.softmax(x.logits.float(), -1)


@fault("temperature_softmax", "mismatch", "numerics", batch=3, vocab=111, values="masked")
def gives_masked_tokens_a_little(x: Any) -> Any:
    """-inf replaced by a large negative number that is not large enough."""
    return torch.softmax(x.logits.clamp_min(-20), -1)


@fault("temperature_softmax", "mismatch", "numerics", batch=4, vocab=111, values="onenan")
def turns_another_rows_values_to_nan(x: Any) -> Any:
    probs = eager(x)
    spoilt = probs.isnan().any(1)
    return torch.where(spoilt.roll(1)[:, None], torch.nan, probs.masked_fill(spoilt[:, None], 0.0))


@fault("temperature_softmax", "hang", "time limit", slow=True, bug="FI#1049", batch=3, vocab=111, values="masked")
def waits_for_masked_logits_for_ever(x: Any) -> Any:
    """A search for a threshold that never narrows where a logit is -inf."""
    while bool((x.logits == -torch.inf).any()):
        pass
    return eager(x)


@fault("greedy", "mismatch", "support", bug="sglang#27247", batch=4, vocab=111, values="allmasked")
def gives_the_vocabulary_for_an_id(x: Any) -> Any:
    """A row without a greatest logit."""
    return torch.where((x.logits == -torch.inf).all(1), x.case.vocab, x.logits.argmax(1))


@fault("greedy", "mismatch", "support", batch=4, vocab=111)
def picks_one_wrong_token(x: Any) -> Any:
    """The second best, in one row."""
    ids = x.logits.argmax(1)
    ids[2] = x.logits[2].topk(2).indices[1]
    return ids


@fault("greedy", "mismatch", "support", batch=64, vocab=70000)
def holds_ids_in_16_bits(x: Any) -> Any:
    return x.logits.argmax(1).to(torch.int16).to(torch.int32)


@fault("greedy", "mismatch", "dtype", batch=3, vocab=111)
def gives_ids_as_floats(x: Any) -> Any:
    return x.logits.argmax(1).float()


@fault("indexer_topk", "mismatch", "support", bug="pytorch#95455", rows=3, length=100, k=16)
def picks_indices_out_of_range(x: Any) -> Any:
    indices = eager(x)
    indices[-1, -1] = 2033619248
    return indices


@fault("indexer_topk", "mismatch", "support", rows=3, length=100, k=16)
def picks_one_token_twice(x: Any) -> Any:
    indices = eager(x)
    indices[0, 1] = indices[0, 0]
    return indices


@fault("indexer_topk", "mismatch", "support", rows=3, length=100, k=16, lengths="ragged")
def picks_past_the_end_of_a_row(x: Any) -> Any:
    return eager(x.copy_with(lengths=torch.full_like(x.lengths, x.scores.shape[1])))
