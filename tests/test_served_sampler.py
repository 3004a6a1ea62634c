"""SGLang's own sampler, driven: right as it is, and each fault planted in its source is caught and named; the requests and their references by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from edited import edited
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import checks
from harness.contracts import Drawn, make_inputs, op
from harness.contracts.sampling.requests import BY_ROW, KINDS, MIXES, adjusted
from harness.faults import FAULTS
from harness.providers import registry
from harness.providers.torch_eager.served import kept, served_sample
from harness.served.sampling import verifying
from harness.served.sampling.driving import Step, parameters
from harness.served.sampling.layer import SAMPLER, Layer, installed

for _fault in FAULTS.values():  # the shelf is declared in the workers; here it would join the selections of other tests
    registry._providers.pop((_fault.op, _fault.provider), None)

CONTRACT = op("served_sample")
DRAWS = 300
BATCH_INFO = "sglang/srt/sampling/sampling_batch_info.py"
SAMPLER_FILE = "sglang/srt/layers/sampler.py"
ONE = "torch.multinomial(probs_sort, num_samples=1)"
DIVIDED, BIASED = "logits.div_(sampling_info.temperatures)", "logits.add_(self.logit_bias)"
MASKED = "self.grammar_mask.apply(logits)\n\n        self._apply_post"
JOINT = "    probs_sort[(probs_sum - probs_sort) >"
RENORMALISED = "    probs_sort = probs_sort / probs_sort.sum(-1, keepdim=True)\n    probs_sum = probs_sort.cumsum(-1)\n"
# what is planted in SGLang's source -> (file, its text, the text planted, mix of the batch, reason, a word of what is said)
PLANTED = {
    "drops the temperature": (SAMPLER_FILE, "logits.div_(sampling_info.temperatures)", "pass", "every", "ignored-flag", "temperature"),
    "takes the best": (SAMPLER_FILE, ONE, "probs_sort.argmax(-1, keepdim=True)", "every", "silently-greedy", "most probable"),
    "neighbour's top-k": (SAMPLER_FILE, ">= top_ks.view(-1, 1)", ">= top_ks.roll(1).view(-1, 1)", "nominp", "invariant", "top_k of the row before"),
    "neighbour's temperature": (SAMPLER_FILE, DIVIDED, DIVIDED.replace(")", ".roll(1, 0))"), "simple", "invariant", "temperature of the row before"),
    "drops the mask": (BATCH_INFO, MASKED, MASKED.replace("self.grammar_mask.apply(logits)", "pass"), "every", "ignored-flag", "grammar mask"),
    "drops the bias": (BATCH_INFO, BIASED, "pass", "every", "ignored-flag", "logit bias"),
    "neighbour's bias": (BATCH_INFO, BIASED, "logits.add_(self.logit_bias.roll(1, 0))", "every", "invariant", "logit bias of the row before"),
    "drops top-p": (SAMPLER_FILE, "> top_ps.view(-1, 1)", "> 2", "nominp", "ignored-flag", "top_p"),
    "top-p after top-k": (SAMPLER_FILE, JOINT, RENORMALISED + JOINT, "every", "support", "another order"),
}


def layer(root: Path, backend: str = "pytorch", *, seeded: bool = False, **answers: object) -> Layer:
    return Layer(backend, seeded, "cpu", root, answers={f"{SAMPLER}.{name}": value for name, value in answers.items()})


def drawn(made: Layer, case: str, *, twice: bool = False):
    """Inputs, and what the layer drew from them."""
    x = make_inputs(CONTRACT.axes.parse(case), "cpu", 3)
    torch.manual_seed(5)
    step = Step(made, x, x.draws)
    return x, torch.stack((step.sample(0), step.sample(0)), -1).long() if twice else step.sample(0).long()


def judged(x, ids, **semantics: str) -> checks.Outcome:
    return checks.judge(ids, CONTRACT.impl.reference(x, CONTRACT.resolve(semantics))["ids"])


# ---- SGLang's layer ----


@pytest.mark.parametrize("mix", MIXES)
def test_the_layer_as_it_is_draws_right(mix):
    x, ids = drawn(layer(installed()), f"b15-v64-{mix}-n{DRAWS}" if mix != "every" else f"b15-v64-n{DRAWS}")
    outcome = judged(x, ids)
    assert outcome.right or outcome.suspicious, outcome.text


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_in_the_source_is_caught_and_named(name, tmp_path):
    file, before, after, mix, reason, word = PLANTED[name]
    root = edited(installed(), tmp_path, file, (before, after))
    x, ids = drawn(layer(root), f"b15-v64-n{DRAWS}" if mix == "every" else f"b15-v64-{mix}-n{DRAWS}")
    outcome = judged(x, ids)
    assert (outcome.reason, word in outcome.text) == (reason, True), outcome.text


def test_a_seed_that_the_source_ignores_is_caught(tmp_path):
    case = "b7-v64-simple-seeded-n200"
    x, ids = drawn(layer(installed(), seeded=True), case, twice=True)
    outcome = judged(x, ids)
    assert outcome.right or outcome.suspicious, outcome.text
    root = edited(installed(), tmp_path, SAMPLER_FILE, ("sampling_seed=sampling_info.sampling_seed", "sampling_seed=None"))
    assert judged(*drawn(layer(root, seeded=True), case, twice=True)).reason == "ignored-flag"


def test_a_batch_with_one_min_p_has_another_order_of_filters_with_flashinfer():
    """The layer's own branch for FlashInfer, its four kernels stood in for in plain PyTorch: which of them it calls is what is judged."""
    from harness.served.story.renorm import sort_mask_divide, sort_sum_divide

    def joint(probs, top_k, top_p, filter_apply_order):
        assert filter_apply_order == "joint"
        kept = sort_mask_divide(probs, top_k) * (sort_sum_divide(probs, top_p) > 0)
        return torch.multinomial(kept, 1).view(-1)

    def min_p(probs, share):
        return torch.multinomial(probs * (probs >= share[:, None] * probs.amax(-1, keepdim=True)), 1).view(-1)

    kernels = {
        "top_k_renorm_prob": sort_mask_divide,
        "top_p_renorm_prob": sort_sum_divide,
        "min_p_sampling_from_probs": min_p,
        "top_k_top_p_sampling_from_probs": joint,
    }
    made = layer(installed(), "flashinfer", **kernels)
    without = judged(*drawn(made, f"b14-v64-nominp-n{DRAWS}"), order="own")
    assert without.right or without.suspicious, without.text
    mixed = judged(*drawn(made, f"b15-v64-n{DRAWS}"), order="own")
    assert (mixed.reason, "as one request has min-p" in mixed.text) == ("invariant", True), mixed.text


def test_a_seeded_request_draws_otherwise_beside_one_with_a_filter():
    """Known of SGLang (cases/ledger.toml): the noise of a seed goes with ranks as soon as one request of the batch has a filter."""
    x, together = drawn(layer(installed(), seeded=True), "b2-v64-nominp-seeded-n50")
    plain = x.copy_with(case=x.case, **{name: getattr(x, name)[1:] for name in BY_ROW})
    alone = Step(layer(installed(), seeded=True), plain, x.draws).sample(0).long()
    assert not torch.equal(together[1:], alone)


def test_a_request_says_what_its_user_said():
    x = make_inputs(CONTRACT.axes.parse("b15-v64"), "cpu")
    names = dict(zip(MIXES["every"], range(15), strict=True))
    said = {name: parameters(layer(installed()), x, row) for name, row in names.items()}
    assert (said["greedy"].temperature, said["greedy"].top_k) == (1.0, 1)
    assert (said["plain"].top_k, said["plain"].logit_bias, said["plain"].sampling_seed) == (1 << 30, None, None)
    assert (said["both"].top_k, round(said["both"].top_p, 6)) == (6, 0.8)
    assert len(said["biased"].logit_bias) == 4
    assert said["forced"].min_new_tokens == 17


def verified(monkeypatch, case: str, root: Path) -> checks.Outcome:
    """What the first tokens of SGLang's verification are found to be, on these sources."""
    monkeypatch.setattr(verifying, "installed", lambda: root)
    x = make_inputs(op("served_verify").axes.parse(case), "cpu", 3)
    torch.manual_seed(5)
    made = verifying.ServedDspark()
    made.prepare(x, None)
    return checks.judge(made.run().long(), op("served_verify").impl.reference(x, op("served_verify").resolve({}))["ids"])


def test_what_a_verification_drops_is_named_and_gone_where_the_source_is_mended(monkeypatch, tmp_path):
    """Known of SGLang (cases/ledger.toml): penalties are looked for under a name that the batch does not have."""
    dropped = verified(monkeypatch, "b4-v64-penalties-n500", installed())
    assert (dropped.reason, "penalties and min_new_tokens are ignored" in dropped.text) == ("ignored-flag", True), dropped.text
    names = ('getattr(sampling_info, "acc_linear_penalties", None)', 'getattr(sampling_info, "acc_additive_penalties", None)')
    mended = verified(monkeypatch, "b4-v64-penalties-n500", edited(installed(), tmp_path, "sglang/srt/speculative/dflash_utils.py", names))
    assert (mended.reason, "repetition is ignored" in mended.text) == ("ignored-flag", True), mended.text


def test_a_verification_of_what_most_requests_ask_for_is_right(monkeypatch):
    outcome = verified(monkeypatch, "b8-v64-n500", installed())
    assert outcome.right or outcome.suspicious, outcome.text


# ---- the contract ----


def test_every_kind_of_request_changes_its_row():
    """Each kind that is no plain one is told from it by what it may draw or how often."""
    x = make_inputs(CONTRACT.axes.parse("b15-v64"), "cpu", 1)
    rows = dict(zip(MIXES["every"], range(15), strict=True))
    weights = CONTRACT.impl.weights(x) * CONTRACT.impl.support(x, CONTRACT.resolve({})).allowed
    plain = torch.softmax(x.logits.double(), -1)
    for kind, row in rows.items():
        apart = float((weights[row] / weights[row].sum() - plain[row]).abs().sum())
        assert (apart < 1e-12) == (not KINDS[kind]), kind


def test_the_order_of_what_is_done_to_a_logit():
    """One token through all of it: subtracted from, scaled by its sign, biased, divided by the temperature; forbidden ones stay so."""
    x = make_inputs(CONTRACT.axes.parse("b15-v64"), "cpu", 2)
    row = MIXES["every"].index("filtered")
    token = int(x.generated[row, 1])
    count = int((x.generated[row] == token).sum())
    before = float(x.logits[row, token]) - 0.5 * count - 0.25
    scaled = before * 1.25 if before < 0 else before / 1.25
    bias = float(x.bias[row][x.bias_ids[row] == token].sum())
    value = float(adjusted(x)[row, token])
    assert value == pytest.approx(scaled + bias, abs=1e-5) or (value == -math.inf and not bool(x.allowed[row, token]))
    assert bool((adjusted(x)[row][~x.allowed[row]] == -math.inf).all())
    forced = MIXES["every"].index("forced")
    assert float(adjusted(x)[forced, x.stop[forced]]) == -math.inf


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 30), st.integers(8, 200), st.sampled_from(sorted(MIXES)), st.integers(0, 1000), st.permutations(range(6)))
def test_a_row_is_judged_by_its_own_parameters_alone(batch, vocab, mix, seed, order):
    """The reference of some rows in another order is that of the whole batch, row by row: nothing of a neighbour is in it."""
    x = make_inputs(CONTRACT.axes.case(batch=batch, vocab=vocab, mix=mix), "cpu", seed)
    rows = torch.tensor([place for place in order if place < batch])
    some = x.copy_with(**{name: getattr(x, name)[rows] for name in BY_ROW})
    semantics = CONTRACT.resolve({"order": "own"})
    whole, part = CONTRACT.impl.support(x, semantics), CONTRACT.impl.support(some, semantics)
    assert torch.equal(whole.allowed[rows], part.allowed)
    assert torch.equal(whole.required[rows], part.required)
    assert bool(whole.allowed.any(1).all())
    assert bool((whole.allowed | ~whole.required).all())


def test_plain_pytorch_keeps_what_the_reference_lets_it():
    x = make_inputs(CONTRACT.axes.parse("b30-v111"), "cpu", 4)
    support = CONTRACT.impl.support(x, CONTRACT.resolve({"ties_k": "all", "ties_p": "all"}))
    mine = kept(x) > 0
    assert not bool((mine & ~support.allowed).any())
    assert not bool((support.required & ~mine).any())


def test_draws_of_a_seed_are_held_to_two_calls():
    x = make_inputs(CONTRACT.axes.parse("b4-v64-simple-seeded-n100"), "cpu")
    expected: Drawn = CONTRACT.impl.reference(x, CONTRACT.resolve({}))["ids"]
    ids = served_sample(x)
    assert expected.first.judge(ids) is None
    other = ids.clone()
    other[2, 7, 1] = (other[2, 7, 1] + 1) % 64
    assert expected.first.judge(other)[0] == "invariant"
    assert "Row 2" in expected.first.judge(other)[1]
    assert expected.first.judge(ids[:, :1].expand(-1, 100, -1))[1].startswith("The position is ignored")
    assert expected.first.judge(ids[..., 0])[0] == "shape"


def test_the_shelf_has_a_fault_for_each_thing_that_a_batch_may_get_wrong():
    said = {fault.provider.removeprefix("fault_") for fault in FAULTS.values() if fault.op == "served_sample"}
    assert {"drops_the_temperature", "serves_the_best_token", "serves_by_the_neighbours_parameters", "serves_without_seeds"} <= said
    assert {"takes_top_p_of_what_top_k_leaves", "has_the_neighbours_penalties", "drops_the_mask", "stops_too_early"} <= said
