"""The samplers' check: exact tails, its rate of false alarms, its power and its bands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from harness import checks
from harness.checks import distribution, power, tails, tally
from harness.contracts import Case, Draw, Drawn, make_inputs, op
from harness.providers import providers_of
from harness.selection import DEFAULT_CASES, preset_cases

SAMPLERS = ("sample", "top_k_top_p_sample", "min_p_sample", "seeded_sample", "chain_verify", "tree_verify_sample", "dspark_accept_sampling")


def drawn(weights: torch.Tensor, draws: int, seed: int) -> torch.Tensor:
    return torch.multinomial(weights, draws, replacement=True, generator=torch.Generator().manual_seed(seed))


def plain(weights: torch.Tensor, **more: Any) -> Drawn:
    return Drawn(weights > 0, weights=weights, required=weights > 0, **more)


def looks(draw: Callable[[int, int], torch.Tensor], expected: Drawn, draws: int, seed: int) -> tuple[checks.Outcome, bool]:
    """The first look at `draw(draws, seed)`, and whether it is a finding in the end."""
    first = checks.judge(draw(draws, 2 * seed), expected)
    if first.right or not first.suspicious:
        return first, not first.right
    return first, not checks.judge(draw(power.RETRY * draws, 2 * seed + 1), expected, confirm=True).right


def test_the_tails_are_those_of_scipy() -> None:
    count, n, p = (part.ravel() for part in np.meshgrid([-1, 0, 1, 7, 99, 100, 4_900_000], [100, 5_000_000], [0.0, 1e-9, 0.01, 0.5, 0.98, 1.0]))
    held = (count <= n) & ((p > 0) | (count <= 0))
    count, n, p = count[held], n[held], p[held]
    np.testing.assert_allclose(tails.above(count, n, p), stats.binom.sf(count, n, p), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(tails.upto(count, n, p), stats.binom.cdf(count, n, p), rtol=1e-9, atol=1e-300)
    inside = (p > 0) & (p < 1) & (count >= 0)
    np.testing.assert_allclose(tails.exactly(count, n, p)[inside], stats.binom.pmf(count, n, p)[inside], rtol=1e-7, atol=1e-290)
    assert tails.chi_square(30.0, 7) == pytest.approx(stats.chi2.sf(30.0, 7))
    assert tails.normal(5.0) == pytest.approx(stats.norm.sf(5.0))


@pytest.mark.parametrize("p", [[0.9, 0.06, 0.03, 0.009, 0.001], [0.2] * 5, [0.5, 0.5]])
def test_the_chain_is_exact_at_any_number_of_draws(p: list[float]) -> None:
    """Where a chi-square of counts would be far off: three draws, cells of a thousandth."""
    random = np.random.default_rng(5)
    for n in (3, 40):
        sums = []
        for counts in random.multinomial(n, p, 1500):
            z = tally.chain(counts, np.array(p), np.zeros(len(p)), random.random(len(p)))
            sums.append(float(z @ z))
        assert stats.kstest(sums, stats.chi2(len(p) - 1).cdf).pvalue > 1e-3


def cells() -> Iterator[tuple[str, str]]:
    """Clean cells small enough to be run often: every sampler, each kind of row and parameter, few draws and many."""
    for values in ("random", "peaked", "flat", "ties", "onehot", "tail"):
        yield "sample", f"b2-v20-n700-{values}".replace("-random", "")
        yield "top_k_top_p_sample", f"b5-v20-k4-p0.8-mixed-{values}".replace("-random", "")
    yield from (("sample", "b40-v9-n1"), ("sample", "b1-v300-n2000"), ("min_p_sample", "b5-v20-mp0.1-mixed-n300"))
    yield from (("top_k_top_p_sample", "b3-v20-k4-p0.5-n300-ties"), ("top_k_top_p_sample", "b3-v20-k4-p1-n300"))


def test_false_alarms_stay_within_their_bound() -> None:
    """1,020 clean cells with fresh seeds: suspicious at most as often as DOUBT lets 1 in a million such tests see, never a finding."""
    suspicious = findings = count = below = 0
    impl = {name: op(name).impl for name in SAMPLERS}
    for seed, (name, case_id) in itertools.product(range(60), cells()):
        x = make_inputs(op(name).axes.parse(case_id), "cpu", seed)
        semantics = op(name).resolve({"ties": "exactly-k"} if name == "top_k_top_p_sample" and seed % 2 else {})
        expected = impl[name].reference(x, semantics)["ids"]
        weights = _some_rule(expected)
        first, finding = looks(lambda n, s, weights=weights: drawn(weights, n, s), expected, x.draws, count)
        below += first.figures.get("p_value", 1.0) < 0.05
        suspicious, findings, count = suspicious + (not first.right), findings + finding, count + 1
    assert count == 1020
    assert findings == 0
    assert suspicious <= stats.binom.isf(1e-6, count, power.DOUBT)
    assert below <= stats.binom.isf(1e-6, count, 0.05)


def _some_rule(expected: Drawn) -> torch.Tensor:
    """The weights of one correct rule: of the band as many as are to be kept, the first of them."""
    kept = expected.allowed
    if expected.kept is not None:
        band = kept & ~expected.required
        free = torch.where(expected.kept < 0, band.sum(1), expected.kept - expected.required.sum(1))
        kept = expected.required | (band & (band.cumsum(1) <= free[:, None]))
    return expected.weights * kept


@pytest.mark.parametrize(("p", "draws"), [(0.5, 3000), (0.1, 5000), (0.02, 20000)])
def test_the_power_that_is_printed_is_the_power(p: float, draws: int) -> None:
    """A bias just as large is found in nearly every trial, half of it in few."""
    weights = torch.full((1, 40), (1 - p) / 39, dtype=torch.float64)
    weights[0, 17] = p
    expected = plain(weights)
    first = checks.judge(drawn(weights, draws, 1), expected)
    slack = p * 2.0**-24 * (8 + 4 * 40**0.5) + 2.0**-24
    bias = power.detectable(draws, p, 1, 5, slack)  # one row, asked five questions: there is no band
    if p in power.TOKENS:
        assert first.figures[f"bias_at_{p:g}"] == pytest.approx(bias)

    def biased(share: float, sign: int) -> Callable[[int, int], torch.Tensor]:
        wrong = weights.clone()
        wrong[0, 17] *= 1 + sign * share * bias
        wrong[0, :17] *= (1 - wrong[0, 17]) / (1 - p)
        wrong[0, 18:] *= (1 - wrong[0, 17]) / (1 - p)
        return lambda n, seed: drawn(wrong, n, seed)

    trials = 50
    caught = {share: sum(looks(biased(share, 1 - 2 * (seed % 2)), expected, draws, 1000 + seed)[1] for seed in range(trials)) for share in (1.0, 0.5)}
    assert caught[1.0] >= stats.binom.ppf(1e-4, trials, power.POWER)
    assert caught[0.5] <= trials // 2


def test_power_by_hand() -> None:
    """The exact tests against the normal approximation, and what more draws buy."""
    bias = power.detectable(5_000_000, 0.1, 1, 5)
    part = power.DOUBT * 0.1 / 5 / 2
    assert bias == pytest.approx((stats.norm.isf(part) + stats.norm.isf(0.01)) * math.sqrt(0.9 / 0.1 / 5_000_000), rel=0.02)
    assert bias <= 0.01
    assert power.detectable(20_000_000, 0.1, 1, 5) == pytest.approx(bias / 2, rel=0.02)
    assert power.detectable(300, 0.01, 1, 5) == math.inf
    assert power.seen(1000, 0.3, 0.1, 1e-3) == pytest.approx(
        stats.binom.sf(stats.binom.isf(1e-3, 1000, 0.3), 1000, 0.33) + stats.binom.cdf(stats.binom.ppf(1e-3, 1000, 0.3) - 1, 1000, 0.33), rel=0.15
    )


def test_no_preset_has_more_cells_than_the_level_is_split_over() -> None:
    for preset in ("smoke", "pr", "nightly"):
        assert sum(len(preset_cases(DEFAULT_CASES, preset, name)) * len(providers_of(name)) for name in SAMPLERS) <= power.CELLS
    assert pytest.approx(power.SUITE) == power.SURE * 3 * power.CELLS
    assert pytest.approx(power.SURE) == power.DOUBT * power.CONFIRM


weight = st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(any)


@settings(max_examples=60, deadline=None)
@given(weight, st.integers(1, 900), st.sampled_from([1.0, 1e-9, 3e4]), st.integers(0, 2**31))
def test_a_scale_of_the_weights_changes_nothing_and_draws_in_proportion_are_right(row: list[int], draws: int, scale: float, seed: int) -> None:
    weights = torch.tensor([row], dtype=torch.float64)
    ids = drawn(weights, draws, seed)
    one, other = checks.judge(ids, plain(weights)), checks.judge(ids, plain(weights * scale))
    assert (one.right, one.suspicious) == (other.right, other.suspicious)
    assert one.right or one.suspicious
    even = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws * weights.sum()
    spread = torch.searchsorted(weights[0].cumsum(0), even, right=True)[torch.randperm(draws, generator=torch.Generator().manual_seed(seed))]
    assert checks.judge(spread[None], plain(weights)).right


@settings(max_examples=60, deadline=None)
@given(weight, st.integers(1, 400))
def test_the_argmax_is_named_as_soon_as_chance_is_ruled_out(row: list[int], draws: int) -> None:
    weights = torch.tensor([row], dtype=torch.float64)
    share = float(weights[weights == weights.max()].sum() / weights.sum())
    outcome = checks.judge(weights.argmax(1, keepdim=True).expand(1, draws), plain(weights))
    if draws * math.log(share) < math.log(power.SURE / 2) - 1e-6:
        assert outcome.reason == "silently-greedy"
    elif share == 1:
        assert outcome.right or int((weights == weights.max()).sum()) > 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=3, max_size=14), st.integers(1, 10), st.sampled_from([0.3, 0.75, 1.0]), st.integers(0, 1000), st.booleans())
@example(row=[1, 3, 6, 6], k=3, p=0.75, seed=0, exact=False)  # the band is all but the two best
def test_whatever_a_correct_rule_keeps_of_the_band_is_right(row: list[int], k: int, p: float, seed: int, exact: bool) -> None:
    name = "top_k_top_p_sample"
    x = make_inputs(op(name).axes.case(batch=1, vocab=len(row), k=k, p=p, draws=400), "cpu")
    probs = torch.tensor([row], dtype=torch.float64)
    x = x.copy_with(probs=(probs / probs.sum()).float())
    expected = op(name).impl.reference(x, op(name).resolve({"ties": "exactly-k" if exact else "all"}))["ids"]
    band = torch.nonzero((expected.allowed & ~expected.required)[0]).flatten()
    random = torch.Generator().manual_seed(seed)
    kept = expected.required.clone()
    free = int(torch.randint(len(band) + 1, (), generator=random))
    if exact and int(expected.kept[0]) >= 0:
        free = int(expected.kept[0] - expected.required.sum())
    kept[0, band[torch.randperm(len(band), generator=random)[:free]]] = True
    if bool(kept.any()):
        outcome = checks.judge(drawn(expected.weights * kept, 400, seed), expected)
        assert outcome.right or outcome.suspicious, outcome.text


def test_wrong_bands_are_caught() -> None:
    weights = torch.tensor([[0.4, 0.2, 0.2, 0.1, 0.1]], dtype=torch.float64)
    allowed = torch.tensor([[True, True, True, False, False]])
    required = torch.tensor([[True, False, False, False, False]])
    free = Drawn(allowed, weights=weights, required=required)
    one = Drawn(allowed, weights=weights, required=required, kept=torch.tensor([2]))
    kept_both, kept_one, kept_none = (torch.tensor([row], dtype=torch.float64) for row in ([4, 2, 2, 0, 0], [4, 0, 2, 0, 0], [1, 0, 0, 0, 0]))
    assert all(checks.judge(drawn(w, 4000, 1), free).right for w in (kept_both, kept_one))
    assert checks.judge(drawn(kept_one, 4000, 2), one).right
    assert checks.judge(drawn(kept_both, 4000, 3), one).reason == "distribution"  # one of two ties is to be kept, both are
    assert checks.judge(drawn(kept_none, 4000, 4), one).reason == "silently-greedy"
    heavy = torch.tensor([[4, 3, 3, 0, 0]], dtype=torch.float64)
    assert checks.judge(drawn(heavy, 4000, 5), free).reason == "distribution"
    foreign = torch.tensor([[4, 2, 2, 0.02, 0]], dtype=torch.float64)
    assert checks.judge(drawn(foreign, 4000, 6), free).reason == "support"


def test_order_is_judged_where_draws_are_missing_and_rows_are_uneven() -> None:
    weights = torch.rand(3, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for seed in range(10):
        ids = drawn(weights, 3000, seed)
        ids[1, torch.rand(3000, generator=torch.Generator().manual_seed(seed)) < 0.9] = -1
        ids[2, 300:] = -1
        assert checks.judge(ids, plain(weights, ids=lambda given: given)).right
    ids[1] = torch.where(ids[1] >= 0, ids[0], -1)
    assert checks.judge(ids, plain(weights[:1].expand(3, -1), ids=lambda given: given)).reason == "reused-random"


def test_two_calls_tell_where_they_could_hardly_draw_alike() -> None:
    even = torch.ones(3, 8, dtype=torch.float64)
    assert distribution.tells(torch.zeros(3, 4), plain(even))  # 8 ** -12
    assert not distribution.tells(torch.zeros(3, 3), plain(even))  # 8 ** -9
    assert not distribution.tells(torch.zeros(3, 400), plain(even, valid=torch.zeros(3, dtype=torch.bool)))
    assert not distribution.tells(torch.zeros(3, 400), plain(even, ids=lambda given: given))  # its coins are inputs


def test_too_few_draws_are_no_draws() -> None:
    x = make_inputs(op("sample").axes.parse("b2-v9-n50"), "cpu")
    with pytest.raises(RuntimeError):
        op("sample").impl.convert(x, {"ids": torch.zeros(2, 49, dtype=torch.int64)}, {})


def test_cases_are_immutable_while_draws_grow() -> None:
    case = op("sample").axes.parse("b2-v9-n300")
    x = make_inputs(case, "cpu")
    more = op("sample").impl.again(x, Draw("x"))
    assert (case.draws, more.case.draws, more.draws) == (300, 1200, 1200)
    assert isinstance(more.case, Case)


@pytest.mark.parametrize("name", ["sample", "top_k_top_p_sample", "min_p_sample"])
def test_no_rows_of_draws_are_right_and_draws_of_none_are_not(name):
    declared = op(name)
    values = {"k": 3, "p": 0.9, "min_p": 0.1}
    x = make_inputs(declared.axes.case(batch=0, vocab=7, **{axis: value for axis, value in values.items() if axis in declared.axes.by_name}), "cpu")
    expected = declared.impl.reference(x, declared.resolve({}))["ids"]
    assert checks.judge(torch.zeros(0, 16, dtype=torch.int64), expected).right
    assert checks.judge(torch.zeros(1, 16, dtype=torch.int64), expected).reason == "shape"
