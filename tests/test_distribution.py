"""The samplers' check: exact tails, its rate of false alarms, its power, its bands, and the laws of speculative verification."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness import checks
from harness.checks import power, tails, tally
from harness.cli import cli
from harness.contracts import Case, Draw, Drawn, make_inputs, op
from harness.contracts.speculative import chain_rules
from harness.machine.execute import Bench
from harness.machine.platforms import open_device
from harness.providers import implements, providers_of, registry
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


def test_too_few_draws_are_no_draws() -> None:
    x = make_inputs(op("sample").axes.parse("b2-v9-n50"), "cpu")
    with pytest.raises(RuntimeError):
        op("sample").impl.convert(x, {"ids": torch.zeros(2, 49, dtype=torch.int64)}, {})


def test_batches_hold_every_draw_and_stay_small() -> None:
    x = make_inputs(op("sample").axes.parse("b3-v1000-n5000"), "cpu")
    sizes = []

    def call(part: Any) -> torch.Tensor:
        sizes.append(part.repeated("probs").numel())
        assert len(part.draw_rows) == 3 * part.draws
        return torch.full((3 * part.draws,), len(sizes))

    ids = x.in_batches(call)
    assert tuple(ids.shape) == (3, 5000)
    assert len(sizes) > 1
    assert max(sizes) <= 1 << 22
    assert sum(sizes) == 3 * 5000 * 1000
    assert ids[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "case_id"),
    [
        ("sample", "b2-v9-n300"),
        ("seeded_sample", "b64-v9-fewseeds"),
        ("chain_verify", "b300-n3-v9-drawn"),
        ("tree_verify_sample", "b300-n4-v9-drawn"),
        ("dspark_accept_sampling", "b300-n3-v60-drawn-t0.5"),
    ],
)
def test_a_second_look_asks_the_same_question_with_four_times_the_draws(name: str, case_id: str) -> None:
    impl, semantics = op(name).impl, op(name).resolve({})
    x = make_inputs(op(name).axes.parse(case_id), "cpu")
    more = impl.again(x, Draw("again", 0))
    first, second = (impl.reference(y, semantics) for y in (x, more))
    one, other = (next(e for e in made.values() if isinstance(e, Drawn)) for made in (first, second))
    assert torch.equal(one.weights, other.weights)
    size = "draws" if name == "sample" else "batch"
    assert getattr(more.case, size) == power.RETRY * getattr(x.case, size)


def test_results_are_the_same_for_one_seed_and_others_for_another() -> None:
    bench, provider = Bench(open_device("cpu")), next(p for p in providers_of("sample") if p.name == "torch_eager")
    case = op("sample").axes.parse("b2-v50-n3000")
    figures = [bench.run(case, provider, "cpu", seed)[0].figures for seed in (0, 0, 5)]
    assert figures[0] == figures[1] != figures[2]
    assert figures[0]["ids"]["draws_a_row"] == 3000


def test_a_finding_says_what_the_first_look_said() -> None:
    @implements("sample", library="torch", name="slightly_off", platforms={"cpu"})
    def slightly_off(x: Any) -> Any:
        weights = x.probs.double()
        weights[0, weights[0].argmax()] *= 1.3
        return torch.multinomial(weights, x.draws, replacement=True)

    provider = registry._providers.pop(("sample", "slightly_off"))
    case = op("sample").axes.parse("b1-v111-n4000")
    results = [Bench(open_device("cpu")).run(case, provider, "cpu", seed)[0] for seed in range(4)]
    twice = [result for result in results if any("first look" in note for note in result.notes)]
    assert twice
    assert all(result.reason == "distribution" and result.figures["ids"]["draws_a_row"] == 16000 for result in twice)


def test_show_power(tmp_path) -> None:
    cell = "sample[torch_eager-b1-v111-n20000]"
    done = CliRunner().invoke(cli, ["run", "--platform", "cpu", "--cell", cell, "--show-power", "--results", str(tmp_path / "r.jsonl")])
    line = next(line for line in done.stdout.splitlines() if line.startswith(cell) and "%" in line)
    assert [part for part in line.split() if part != "%"][1] == "20000"
    assert "bias of p = 0.1" in done.stdout


# --- speculative verification: trap T5, exactly ---


def emitted_law(p: list[list[float]], q: list[list[float]], block: bool, drafts: Iterator[tuple[int, ...]] | None = None) -> dict[tuple[int, ...], float]:
    """Probability of each whole continuation (drafts accepted, the final token, then the target), every accept/reject path weighed exactly."""
    vocab, steps = len(p[0]), len(q)
    law: dict[tuple[int, ...], float] = dict.fromkeys(itertools.product(range(vocab), repeat=steps + 1), 0.0)
    for drafted in drafts or itertools.product(range(vocab), repeat=steps):
        chance_of_draft = math.prod(q[i][token] for i, token in enumerate(drafted))
        if not chance_of_draft:
            continue
        chances = [_threshold(p, q, list(drafted), step, block) for step in range(steps)]
        for path in itertools.product((True, False), repeat=steps):
            chance = chance_of_draft * math.prod(c if taken else 1 - c for c, taken in zip(chances, path, strict=True))
            if not chance:
                continue
            coins = [c / 2 if taken else (1 + c) / 2 for c, taken in zip(chances, path, strict=True)]
            count, scale = chain_rules.accepted(p, q, list(drafted), coins, block)
            rest = p[count] if count == steps else [max(scale * a - b, 0.0) for a, b in zip(p[count], q[count], strict=True)]
            for final, mass in enumerate(rest):
                if mass:
                    for tail in itertools.product(range(vocab), repeat=steps - count):
                        through = math.prod(p[count + 1 + i][token] for i, token in enumerate(tail))
                        law[(*drafted[:count], final, *tail)] += chance * mass / sum(rest) * through
    return law


def _threshold(p: list[list[float]], q: list[list[float]], drafted: list[int], step: int, block: bool) -> float:
    """Below which coin of this step the draft (of a block: the prefix) is accepted, found by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        coins = [2.0 if block or i > step else -1.0 for i in range(len(q))]
        coins[step] = middle
        if block:
            taken = chain_rules.accepted(p, q, drafted, coins, True)[0] == step + 1
        else:
            taken = chain_rules.accepted(p[step:], q[step : step + 1], drafted[step : step + 1], [middle], False)[0] == 1
        low, high = (middle, high) if taken else (low, middle)
    return low


P = [[0.5, 0.3, 0.2], [0.1, 0.25, 0.65], [0.7, 0.3, 0.0]]
Q = [[0.1, 0.1, 0.8], [0.3, 0.6, 0.1]]


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("q", [Q, P[:2], [[0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3]]])
def test_the_reference_emits_the_target_for_any_draft(q: list[list[float]], block: bool) -> None:
    law = emitted_law(P, q, block)
    for tokens, chance in law.items():
        assert chance == pytest.approx(math.prod(P[i][token] for i, token in enumerate(tokens)), abs=1e-9), tokens


def test_a_draft_that_is_certain_of_its_token_leaves_the_target_as_it_is() -> None:
    """Trap T5: accept with p(x), else redraw from p without x, whatever x; acceptance is .24 where the drafted row has .40, by the same law."""
    for drafted in itertools.product(range(3), repeat=2):
        certain = [[float(token == t) for t in range(3)] for token in drafted]
        for tokens, chance in emitted_law(P, certain, block=False).items():
            assert chance == pytest.approx(math.prod(P[i][token] for i, token in enumerate(tokens)), abs=1e-9)
    one_hot = sum(q * p for q, p in zip(Q[0], P[0], strict=True))
    by_ratio = sum(min(q, p) for q, p in zip(Q[0], P[0], strict=True))
    assert (one_hot, by_ratio) == (pytest.approx(0.24), pytest.approx(0.40))


@pytest.mark.parametrize(
    ("name", "case_id"),
    [
        ("chain_verify", "b512-n2-v4-grid"),
        ("chain_verify", "b768-n2-v4-gridhot"),
        ("tree_verify_sample", "b192-n3-v4-wide-grid"),
        ("tree_verify_sample", "b1536-n3-v8-chain-grid"),
    ],
)
def test_every_path_of_the_grid_together_is_the_target_exactly(name: str, case_id: str) -> None:
    impl, x = op(name).impl, make_inputs(op(name).axes.parse(case_id), "cpu")
    made, expected = impl.second(x, op(name).resolve({})), impl.reference(x, op(name).resolve({}))
    assert all(checks.judge(made[output], expected[output]).right for output in expected)
    pairs = made["predicts"].clone()
    last = (pairs[:, :, 0] >= 0).sum(1) - 1
    rows = torch.arange(len(pairs))
    at = int(torch.nonzero(x.target_probs[rows, pairs[rows, last, 0], 0] > 0)[0])
    moved = 1 if int(pairs[at, last[at], 1]) != 1 and float(x.target_probs[at, pairs[at, last[at], 0], 1]) > 0 else 0
    pairs[at, last[at], 1] = moved if int(pairs[at, last[at], 1]) != moved else 2
    said = checks.judge(pairs, expected["predicts"])
    assert said.reason in ("distribution", "support")


def test_a_grid_wants_whole_batches() -> None:
    for name, wrong in (("chain_verify", "b511-n2-v4-grid"), ("tree_verify_sample", "b100-n3-v4-wide-grid"), ("chain_verify", "b512-n2-v4-grid-block")):
        with pytest.raises(Exception, match="grid"):
            op(name).axes.parse(wrong)
    with pytest.raises(Exception, match="thresholds"):
        op("tree_verify_sample").axes.parse("b100-n3-v9-drawn-ta0.5")


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
