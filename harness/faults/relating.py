"""Providers that are right in the plain call of their case, and that only a relation between calls catches."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.inputs import Draw
from harness.faults.shelf import eager, fault, right
from harness.providers.refilling import overwrite

_CALLS = itertools.count()
_PROCESS = int.from_bytes(os.urandom(4))  # another in each process that loads the shelf

STATES: dict[str, Any] = {"tokens": 4, "heads": 3, "dim": 16, "dtype": "fp32"}
ROWS: dict[str, Any] = {"batch": 4, "vocab": 111, "k": 10, "form": "rows"}
SOFTMAX: dict[str, Any] = {"batch": 3, "vocab": 111, "temperature": 0.7, "form": "rows"}
DECODE: dict[str, Any] = {"batch": 2, "heads": 6, "kv_heads": 2, "length": 20, "dim": 16, "dtype": "fp32"}
LATENT: dict[str, Any] = {"batch": 2, "heads": 5, "length": 9, "dtype": "fp32"}


def _raised(tensor: torch.Tensor, where: torch.Tensor | bool) -> torch.Tensor:
    """The next greater number where it is so: an error of one ulp."""
    return torch.where(torch.as_tensor(where, device=tensor.device), torch.nextafter(tensor, tensor + 1), tensor)


def _rows(tensor: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return wanted.view(-1, *(1,) * (tensor.dim() - 1))


# ---- equal to the bit ----


@fault("merge_state", "nondeterministic", "repeat", relation="repeat", **STATES)
def differs_from_call_to_call(x: Any) -> Any:
    o, lse = right(x)
    return _raised(o, next(_CALLS) % 2 == 1), lse


@fault("merge_state", "nondeterministic", "process", relation="process", **STATES)
def differs_from_process_to_process(x: Any) -> Any:
    o, lse = right(x)
    return _raised(o, Draw("planted", _PROCESS, x.device).integers(*o.shape, low=0, high=2) == 1), lse


@fault("merge_state", "nondeterministic", "slots", relation="slots", **STATES)
def depends_on_its_slot(x: Any) -> Any:
    """Every second row is one ulp off."""
    o, lse = right(x)
    return _raised(o, _rows(o, torch.arange(len(o), device=o.device) % 2 == 1)), lse


@fault("mla_decode", "nondeterministic", "slots", relation="slots", **{**LATENT, "batch": 16, "lengths": "ragged"})
def depends_on_the_request_before(x: Any) -> Any:
    """As a split whose size the neighbour's length decides."""
    o, lse = right(x)
    return _raised(o, _rows(o, torch.roll(x.kv_len, 1) < x.kv_len)), lse


@fault("top_k_renorm", "nondeterministic", "alone", relation="alone", promises={"alone"}, **ROWS)
def depends_on_the_batch(x: Any) -> Any:
    probs = right(x)[0]
    return _raised(probs, (probs > 0) & (len(probs) > 1))


@fault("mla_decode", "pass", relation="repheads", **LATENT)
def rounds_by_head(x: Any) -> Any:
    """A clean control: one ulp that depends on the number of heads, of which nobody promised anything."""
    o, lse = right(x)
    return _raised(o, x.case.heads > 8), lse


@fault("sample", "pass", relation="repeat", batch=3, vocab=111)
def draws_alike_by_seed(x: Any) -> Any:
    """A clean control: the same seed gives the same draws."""
    return right(x)[0]


@fault("sample", "nondeterministic", "repeat", relation="repeat", batch=3, vocab=111)
def draws_whatever_the_seed(x: Any) -> Any:
    torch.manual_seed(next(_CALLS))
    return right(x)[0]


# ---- another layout ----


@fault("top_k_renorm", "mismatch", "support", relation="storage", **ROWS)
def forgets_the_storage_offset(x: Any) -> Any:
    """Reads from where the storage begins."""
    return right(x.copy_with(probs=torch.nan_to_num(x.probs.as_strided(x.probs.shape, x.probs.stride(), 0))))[0]


@fault("merge_state", "mismatch", "numerics", relation="strided", **STATES)
def takes_rows_for_packed(x: Any) -> Any:
    """Walks on by what a row is long, not by its stride."""
    dense = torch.empty(x.v_a.shape, device="meta").stride()
    return right(x.copy_with(v_a=x.v_a.as_strided(x.v_a.shape, dense), v_b=x.v_b.as_strided(x.v_b.shape, dense)))


@fault("decode_attention", "mismatch", "numerics", relation="repaged", **DECODE)
def takes_pages_for_tokens(x: Any) -> Any:
    """Reads the token slot of a page's id: right at page size 1."""
    slots = [own // x.case.page for own in x.slots]
    return right(x.copy_with(slots=slots, memo={}))


@fault("decode_attention", "mismatch", "numerics", relation="highpages", **{**DECODE, "heads": 2, "kv_heads": 1})
def cuts_page_ids_to_16_bits(x: Any) -> Any:
    return right(x.copy_with(slots=[own & 0xFFFF for own in x.slots], memo={}))


@fault("mla_decode", "mismatch", "numerics", relation="padheads", **LATENT)
def leaves_the_tile_of_16_half_done(x: Any) -> Any:
    """Heads by eights, and of a full tile only the first eight, whose results the others get."""
    o, lse = right(x)
    if x.case.heads % 16 == 0:
        o[:, 4:] = o[:, :1]
    return o, lse


@fault("mla_decode", "mismatch", "numerics", relation="repheads", **LATENT)
def mixes_heads_of_a_full_tile(x: Any) -> Any:
    o, lse = right(x)
    return (o.flip(1), lse) if x.case.heads % 16 == 0 else (o, lse)


# ---- parts and the whole ----


@fault("decode_attention", "mismatch", "numerics", relation="split", **DECODE)
def forgets_the_scale_of_short_requests(x: Any) -> Any:
    """With ten keys or fewer the log-sum-exp is that of scores left unscaled by ln 2."""
    o, lse = right(x)
    return o, torch.where(x.kv_len[:, None] > 10, lse, lse / math.log(2))


@fault("decode_attention", "mismatch", "numerics", relation="twicekeys", **DECODE)
def reads_a_page_once(x: Any) -> Any:
    """A page that comes twice counts once, as where a shared prefix is looked up by its id."""
    return right(x.copy_with(slots=[own.unique() for own in x.slots], memo={}))


@fault("merge_state", "mismatch", "numerics", relation="commuted", **{**STATES, "values": "empty"})
def loses_what_follows_an_empty_part(x: Any) -> Any:
    o, lse = right(x)
    return o.masked_fill(x.s_a.isinf()[..., None], 0.0), lse


# ---- filters and softmax ----


@fault("top_k_renorm", "mismatch", "support", relation="neighbours", **ROWS)
def takes_the_neighbours_k(x: Any) -> Any:
    """Right where all rows have one k."""
    return right(x.copy_with(top_k=torch.roll(x.top_k, 1)))[0]


@fault("top_k_top_p_filter", "mismatch", "support", relation="neighbours", p=0.9, **ROWS)
def filters_by_the_least_p_of_the_batch(x: Any) -> Any:
    return right(x.copy_with(top_p=torch.full_like(x.top_p, float(x.top_p.min()))))[0]


@fault("top_k_renorm", "mismatch", "support", relation="permuted", **{**ROWS, "batch": 64, "vocab": 112}, values="tail")
def never_reads_the_last_token(x: Any) -> Any:
    """A loop that ends one short; in the plain call that token's mass is a denormal, which no row keeps."""
    probs = x.probs.clone()
    probs[:, -1] = 0
    return right(x.copy_with(probs=probs))[0]


@fault("top_k_renorm", "mismatch", "support", relation="twice", **ROWS)
def stops_at_a_zero(x: Any) -> Any:
    """Takes the first token without mass for the end of the row."""
    return right(x.copy_with(probs=x.probs * (x.probs > 0).cumprod(1)))[0].nan_to_num(0.0)


@fault("top_k_renorm", "mismatch", "numerics", relation="powered", **ROWS)
def divides_by_one_less_the_rest(x: Any) -> Any:
    """Takes the row's sum for 1."""
    kept = right(x)[0] > 0
    rest = torch.where(kept, 0.0, x.probs.double()).sum(1, keepdim=True)
    return (torch.where(kept, x.probs.double(), 0.0) / (1 - rest)).float()


@fault("top_k_renorm", "mismatch", "support", relation="identity", **ROWS)
def always_drops_one(x: Any) -> Any:
    return right(x.copy_with(top_k=x.top_k.clamp(max=x.case.vocab - 1)))[0]


@fault("temperature_softmax", "mismatch", "numerics", relation="shifted", **SOFTMAX)
def exponentiates_as_it_is(x: Any) -> Any:
    """Without taking the greatest logit off."""
    weights = torch.exp(x.logits / x.temperature[:, None])
    return weights / weights.sum(1, keepdim=True)


# ---- flags ----


@fault("decode_attention", "mismatch", "ignored-flag", relation="uncapped", soft_cap=5.0, **DECODE)
def ignores_the_soft_cap(x: Any) -> Any:
    return right(x.copy_with(soft_cap=0.0, memo={}))


@fault("decode_attention", "mismatch", "ignored-flag", relation="unwindowed", window=5, **DECODE)
def ignores_the_window(x: Any) -> Any:
    return right(x.copy_with(window=-1, memo={}))


@fault("decode_attention", "mismatch", "ignored-flag", relation="unsunk", sinks="sinks", **DECODE)
def ignores_the_sinks(x: Any) -> Any:
    return right(x.copy_with(sinks=None, memo={}))


@fault("decode_attention", "mismatch", "ignored-flag", relation="unscaled", scales="scaled", **DECODE)
def ignores_the_scales(x: Any) -> Any:
    return right(x.copy_with(k_scale=1.0, v_scale=1.0, memo={}))


@fault("temperature_softmax", "mismatch", "ignored-flag", relation="untempered", **SOFTMAX)
def ignores_the_given_temperature(x: Any) -> Any:
    return torch.softmax(x.logits, 1)


# ---- devices ----


@fault("sample", "mismatch", "reused-random", relation="replay", platforms={"cuda", "rocm"}, batch=3, vocab=111)
class DrawsBeforeTheGraph:
    """Its coins are thrown while it plans, so that every replay uses them again."""

    def prepare(self, x: Any, scratch: Any) -> None:
        weights = x.probs.double().cumsum(1)
        self.weights, self.coins = weights, torch.rand(x.case.batch, x.draws, dtype=torch.float64, device=x.device) * weights[:, -1:]

    def run(self) -> Any:
        return torch.searchsorted(self.weights, self.coins, right=True).clamp_(max=self.weights.shape[1] - 1)


class _Decode:
    """mla_decode in plain PyTorch at page size 1, with lengths and pages on the device alone."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x, self.table, self.lengths = x, x.block_table, x.kv_len
        self.bound = self.table.shape[1]
        self.out = scratch.output("o", like=x.q_nope), scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)

    def refill(self, x: Any) -> None:
        overwrite((self.table, self.lengths), (x.block_table, x.kv_len))

    def run(self) -> None:
        keys = self.x.kv[:, 0][self.table[:, : self.bound].long()]
        beyond = torch.arange(self.bound, device=keys.device) >= self.lengths[:, None]
        scores = (self.x.q @ keys.mT * self.x.scale).masked_fill(beyond[:, None], -math.inf)
        self.out[0].copy_(torch.softmax(scores, -1) @ keys[..., :512])
        self.out[1].copy_(torch.logsumexp(scores, -1))


@fault("mla_decode", "pass", relation="longer", platforms={"cuda", "rocm"}, lengths="ragged", **LATENT)
class ReadsLengthsOnTheDevice(_Decode):
    """A clean control: its loop goes on to the most keys that its buffers hold."""


@fault("mla_decode", "mismatch", "numerics", relation="longer", platforms={"cuda", "rocm"}, lengths="ragged", **LATENT)
class PlansForTheLengthsOfTheCapture(_Decode):
    """Its loop ends where the longest request ended when its host planned, which a captured graph keeps."""

    def refill(self, x: Any) -> None:
        super().refill(x)
        self.bound = max(map(len, x.slots))


@fault("mla_decode", "mismatch", "numerics", relation="longer", platforms={"cuda", "rocm"}, lengths="ragged", **{**LATENT, "batch": 3})
class KeepsThePagesOfTheCapture(_Decode):
    """Lengths come from the device, page ids from a copy made when its host planned."""

    def refill(self, x: Any) -> None:
        self.read, self.table = self.table, self.table.clone()  # what a graph reads must stay in memory
        super().refill(x)


# ---- requests that a server serves together ----


@fault("served_sample", "nondeterministic", "alone", promises={"alone"}, relation="alone", batch=5, vocab=111, mix="nominp", mode="seeded")
def draws_otherwise_beside_a_filter(x: Any) -> Any:
    """As a sampler that gives its noise to ranks instead of tokens as soon as any request has a filter."""
    filtered = bool((x.top_k < 1 << 30).any())
    return eager(x.copy_with(seeds=x.seeds + filtered))


@fault("served_sample", "mismatch", "silently-greedy", relation="solo", batch=5, vocab=111, draws=1000)
def is_greedy_alone(x: Any) -> Any:
    """As a path of its own for one request."""
    return eager(x.copy_with(temperature=x.temperature * (len(x.logits) > 1)))
