"""The search: its cases exist, planted failures are found and made as small as they are known to be, and it can be repeated."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.cli import cli
from harness.contracts import Case, number, op, real, words
from harness.errors import UsageError
from harness.providers import Provider, providers, providers_of
from harness.search import regression
from harness.search.bounds import bounds_of
from harness.search.campaign import Campaign
from harness.search.hunt import Clock, Hunt
from harness.search.kept import Kept
from harness.search.space import SEEDS, Space
from harness.search.spans import EDGES, span
from harness.selection import standing
from harness.store.ledger import Entry, Ledger
from harness.store.results import Result, read

COST = 1_000_000
Ending = Callable[[Case, int], tuple[str, str, float]]
HERE = [(provider, platform) for provider in providers().values() for platform, status, _ in [standing(provider, "cpu")] if not status]
MERGE = providers()["merge_state", "torch_eager"]
RIGHT = ("pass", "", 0.25)


def space(provider: Provider = MERGE, **bounds: Any) -> Space:
    return Space(provider, "cpu", cost=COST, bounds=bounds)


class Described:
    """Ends cells as a function of the case and the seed says, without a worker; remembers which were asked for."""

    def __init__(self, ending: Ending, provider: Provider = MERGE, platform: str = "cpu") -> None:
        self.ending, self.provider, self.platform, self.asked = ending, provider, platform, list[tuple[str, int]]()

    def __call__(self, case: Case, seed: int) -> Result:
        self.asked.append((case.id, seed))
        status, reason, error = self.ending(case, seed)
        cell = f"{case.op}[{self.provider.name}-{case.id}]"
        errors: Any = {} if math.isnan(error) else {"o": error}
        return Result(cell, case.op, self.provider.name, case.id, status, self.platform, reason=reason, values=dict(case.point), seed=seed, errors=errors)


def hunt(
    ending: Ending, *, provider: Provider = MERGE, platform: str = "cpu", ledger: Ledger | None = None, kept: Kept | None = None, **bounds: Any
) -> tuple[Hunt, Described]:
    described = Described(ending, provider, platform)
    return Hunt(space(provider, **bounds), described, Described(ending, provider), ledger or Ledger(), kept or Kept(None), Clock(shrink=60.0)), described


def wrong(where: Callable[[Case], bool], status: str = "mismatch", reason: str = "numerics") -> Ending:
    return lambda case, seed: (status, reason, 2.0) if where(case) else RIGHT


# ---- spans and spaces ----

numbers = st.builds(
    lambda least, default, low, width: number("size", "z", "a size", default, least=least, search=(max(low, least), max(low, least) + width)),
    st.integers(-1, 2),
    st.none() | st.integers(2, 300),
    st.integers(-1, 40),
    st.integers(0, 100_000),
)


@given(numbers)
def test_a_span_is_plain_first_then_ascending_and_stays_within_its_bounds(axis):
    low, high = axis.search
    one = span(axis)
    assert one.plain == (axis.default if axis.default is not None else min(max(low, 1), high))
    rest = [value for value in one.values if value != one.plain]
    assert rest == sorted(rest)
    assert all(low <= value <= high for value in rest)
    assert {edge for edge in EDGES if low <= edge <= high} <= set(one.values)
    assert {low, high} <= set(one.values)
    for value in one.values[:: max(1, len(one.values) // 10)]:
        assert set(one.plainer(value)) == {other for other in rest if other < value and value != one.plain} | ({one.plain} - {value})


def test_edges_are_tried_more_often_than_their_neighbours():
    one = span(number("heads", "h", "heads"))
    assert one.places.count(48) > 2 * one.places.count(46)
    assert one.places.count(129) > 2 * one.places.count(131)


def test_a_default_is_half_of_the_words_and_of_the_real_numbers():
    assert span(words("form", ("scalar", "rows", "mixed"), "form", default="rows")).places == ("rows", "rows", "scalar", "mixed")
    assert span(real("cap", "cap", "cap", 0.0, search=(5.0, 30.0))).places == (0.0, 0.0, 5.0, 30.0)
    assert span(real("p", "p", "mass", search=(0.9, 0.5))).places == (0.9, 0.5)


@pytest.mark.parametrize("bad", [lambda: number("a", "a", "a", search=(5, 4)), lambda: number("a", "a", "a", search=(0, 4))])
def test_bounds_that_hold_nothing_are_a_mistake_of_the_axis(bad):
    with pytest.raises(UsageError, match="axis 'a'"):
        bad()


SPACES = [Space(provider, platform, cost=COST) for provider, platform in HERE]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_example_is_a_case_that_the_provider_takes_and_that_is_cheap(data):
    one = data.draw(st.sampled_from(SPACES), label="space")
    case, seed = data.draw(one.strategy())
    declared = op(one.provider.op)
    assert declared.axes.parse(case.id) == case
    assert one.provider.declines(case, one.platform) is None
    assert one.provider.gated(case) is None
    work = declared.impl.work(case)
    assert work.flops + work.bytes <= COST
    assert one.platform != "interpret" or getattr(case, "batch", 1) * case.point.get("heads", 1) < 150
    assert 0 <= seed < SEEDS


def test_every_provider_gets_cases_and_few_draws_are_thrown_away():
    draw, thrown, total = random.Random(0), 0, 0
    for one in SPACES:
        drawn = [{name: draw.choice(span.places) for name, span in one.spans.items()} for _ in range(12)]
        made = [one.mended(point) for point in drawn]
        assert any(made), one.provider
        thrown, total = thrown + made.count(None), total + len(made)
    assert thrown / total < 0.03


def test_a_held_axis_stays_at_its_default_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("harness.search.space.HELD", frozenset({"values"}))
    assert "values" not in space().spans
    one, described = hunt(wrong(lambda case: case.heads > 3))
    one.search(40, seed=1)
    assert {op("merge_state").axes.parse(asked[0]).values for asked in described.asked} == {"random"}
    assert space(values=["far"]).spans["values"].values == ("far",)


def test_what_is_impossible_is_mended_and_not_thrown_away():
    one = space(providers()["decode_attention", "torch_eager"])
    plain = {axis: span.plain for axis, span in one.spans.items()}
    case = one.mended({**plain, "heads": 48, "kv_heads": 36, "length": 9})
    assert (case.heads, case.kv_heads, case.length) == (48, 24, 9)
    paged = one.mended({**plain, "heads": 160, "kv_heads": 160, "batch": 24, "length": 2, "page": 108})
    assert paged.batch * paged.kv_heads * paged.page * 128 * 8 <= COST  # what the pool holds, though only two tokens of each page are read
    dear = one.mended({**plain, "heads": 12, "length": 4097, "batch": 33})
    assert dear.heads == 12
    assert dear.batch * dear.length < 33 * 4097


# ---- hunts ----


def test_a_wrong_shape_is_found_and_made_the_smallest_wrong_one():
    one, _ = hunt(wrong(lambda case: case.heads % 16 == 12 and case.tokens > 8))
    one.search(300, seed=1)
    (found,) = one.found.values()
    assert (found.result.values["heads"], found.result.values["tokens"]) == (12, 9)
    assert found.result.case == "t9-h12-fp32"
    assert (found.alone, found.result.seed) == ("mismatch: numerics", 0)


def test_a_bound_in_k_is_found_to_the_token():
    eager = providers()["top_k_renorm", "torch_eager"]
    one, _ = hunt(wrong(lambda case: case.k > 64 and case.vocab > 70, reason="support"), provider=eager)
    one.search(300, seed=3)
    (found,) = one.found.values()
    assert (found.result.values["k"], found.result.values["vocab"], found.result.values["batch"]) == (65, 71, 1)


@pytest.mark.parametrize("status", ["crash", "hang", "build-failed"])
def test_what_costs_a_process_is_bisected_with_few_of_them(status):
    ending = wrong(lambda case: case.heads >= 33, status, "signal SIGABRT")
    one, described = hunt(ending)
    one.search(100, seed=5)
    (found,) = one.found.values()
    assert found.result.case == "t1-h33-fp32"
    dear = [asked for asked in described.asked if ending(op("merge_state").axes.parse(asked[0]), 0)[0] == status]
    assert len(dear) <= (10 if status == "hang" else 100)


def test_a_provider_that_hangs_is_left_alone_after_three_cells():
    one, described = hunt(wrong(lambda case: True, "hang", "time limit"))
    one.search(100, seed=5)
    assert list(one.found) == [("hang", "time limit")]
    assert one.tally.why_ended
    assert len(described.asked) <= 6


def test_the_search_goes_on_past_a_failure_and_reports_each_kind_once():
    def ending(case: Case, seed: int) -> tuple[str, str, float]:
        if case.heads >= 33:
            return "crash", "signal SIGABRT", math.nan
        return ("mismatch", "numerics", 3.0) if case.dtype == "bf16" and case.tokens >= 5 else RIGHT

    one, _ = hunt(ending)
    one.search(300, seed=2)
    one.finish()
    assert {kind: found.result.case for kind, found in one.found.items()} == {
        ("crash", "signal SIGABRT"): "t1-h33-fp32",
        ("mismatch", "numerics"): "t5-h1-bf16",
    }
    assert all(found.cells > 1 for found in one.found.values())


def test_what_the_ledger_lists_is_passed_over():
    entry = Entry("merge_state", "torch_eager", "known", status="mismatch", reason="numerics", where={"values": "bothempty"})
    one, _ = hunt(wrong(lambda case: case.values == "bothempty"), ledger=Ledger([entry]))
    one.search(200, seed=1)
    assert not one.found
    assert one.tally.known > 5


def test_a_listed_deviation_that_does_not_show_is_a_matter_of_presets():
    entry = Entry("merge_state", "torch_eager", "known", status="mismatch", where={"values": "bothempty"})
    one, _ = hunt(lambda case, seed: RIGHT, ledger=Ledger([entry]))
    one.search(50, seed=1)
    assert not one.found


def test_an_error_of_the_harness_is_not_taken_for_a_failing_example():
    def ending(case: Case, seed: int) -> tuple[str, str, float]:
        raise UsageError("no more disk")

    one, described = hunt(ending)
    with pytest.raises(UsageError, match="no more disk"):
        one.search(50, seed=1)
    assert len(described.asked) == 1


def test_the_search_climbs_towards_the_tolerance():
    """Wrong only far from where a plain draw falls, with an error that grows on the way there."""

    def ending(case: Case, seed: int) -> tuple[str, str, float]:
        height = case.heads * case.tokens / 3300
        return ("mismatch", "numerics", height) if height > 1 else ("pass", "", height)

    reached = []
    for target in (True, False):
        one, _ = hunt(ending if target else lambda case, seed: (*ending(case, seed)[:2], math.nan), dim=[16], dtype=["fp32"])
        for seed in range(3):
            one.search(200, seed=seed)
        reached.append(len(one.found))
    assert reached == [1, 0]


def test_two_runs_with_one_seed_ask_for_the_same_cells_in_the_same_order():
    def ending(case: Case, seed: int) -> tuple[str, str, float]:
        return ("mismatch", "numerics", 2.0) if case.heads % 16 == 12 else ("pass", "", case.tokens / 1000)

    runs = []
    for _ in range(2):
        one, described = hunt(ending)
        one.search(150, seed=11)
        runs.append(described.asked)
    assert runs[0] == runs[1]
    other, described = hunt(ending)
    other.search(150, seed=12)
    assert described.asked != runs[0]


def test_failures_are_kept_tried_first_and_forgotten_when_they_are_gone(tmp_path):
    bad = wrong(lambda case: case.heads >= 40)
    one, _ = hunt(bad, kept=Kept(tmp_path))
    one.search(200, seed=1)
    (first,) = one.found.values()
    again, described = hunt(bad, kept=Kept(tmp_path))
    again.again()
    assert described.asked[0] == (first.result.case, first.result.seed)
    assert [found.how for found in again.found.values()] == ["kept from an earlier run"]
    cured, described = hunt(lambda case, seed: RIGHT, kept=Kept(tmp_path))
    cured.again()
    assert (len(described.asked), cured.found, Kept(tmp_path).of(MERGE)) == (1, {}, [])


def test_what_is_no_case_any_more_is_dropped_from_the_kept(tmp_path):
    kept = Kept(tmp_path)
    kept.keep(MERGE, Case("merge_state", "t3-depth7", {}), 1)
    assert kept.of(MERGE) == []
    assert Kept(tmp_path).of(MERGE) == []


def test_turns_share_the_time_and_reach_every_provider():
    hunts = [hunt(lambda case, seed: RIGHT, provider=provider)[0] for provider in providers_of("merge_state")[:1] + providers_of("top_k_renorm")[:1]]
    clock = Clock()
    for one in hunts:
        one.clock = clock
    Campaign(hunts, clock).run(seed=1, seconds=1.0)
    assert all(one.tally.ran > 50 for one in hunts)


def test_slowness_of_the_interpreter_is_no_finding_and_ends_the_search():
    one, described = hunt(wrong(lambda case: True, "hang", "time limit"), platform="interpret")
    one.search(100, seed=5)
    assert (one.found, one.tally.unjudged, len(described.asked)) == ({}, 3, 3)


# ---- regressions ----


@pytest.mark.parametrize(
    ("status", "reason", "kind"), [("mismatch", "support", "sampler"), ("crash", "signal SIGABRT", "crash"), ("mismatch", "shape", "numerics")]
)
def test_a_finding_is_a_row_of_the_regressions_once(tmp_path, status, reason, kind):
    case = op("merge_state").axes.case(tokens=9, heads=12, dtype="fp16")
    result = Described(lambda case, seed: (status, reason, 1.0))(case, 7)
    regression.add(tmp_path, result)
    regression.add(tmp_path, result)
    (bug,) = tomllib.loads((tmp_path / regression.FILE).read_text())["bug"]
    assert bug["kind"] == kind
    assert "seed 7" in bug["wrong"]
    (row,) = bug["case"]
    assert op(row["op"]).axes.case(**row["axes"]) == case
    regression.add(tmp_path, Described(lambda case, seed: (status, reason, 1.0))(op("merge_state").axes.case(tokens=1, heads=1, dtype="fp32"), 0))
    assert len(tomllib.loads((tmp_path / regression.FILE).read_text())["bug"]) == 2


# ---- bounds ----


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("depth=1..3", "axes? of the chosen ops|for an axis of the chosen ops"),
        ("heads", "AXIS=1..64"),
        ("heads=0..3", "at least 1, not 0"),
        ("heads=9..3", "write 3..9"),
        ("heads=a", "takes numbers"),
        ("dtype=fp7", "fp32, fp16, bf16"),
    ],
)
def test_an_impossible_bound_is_one_line(text, words):
    with pytest.raises(UsageError, match=words) as caught:
        bounds_of([text], ["merge_state"])
    assert "\n" not in str(caught.value)


def test_bounds_hold():
    one, described = hunt(lambda case, seed: RIGHT, **bounds_of(["heads=9..11", "dtype=fp16", "tokens=4,6"], ["merge_state"]))
    one.search(60, seed=1)
    cases = [op("merge_state").axes.parse(asked[0]) for asked in described.asked]
    assert {case.heads for case in cases} == {9, 10, 11}
    assert {case.tokens for case in cases} == {4, 6}
    assert {case.dtype for case in cases} == {"fp16"}


# ---- the command, with workers ----

PLUGIN = """
import os, time
from harness.providers import implements

CPU = {"cpu"}


def merged(x):
    import torch

    v, s = torch.stack((x.v_a, x.v_b)).double(), torch.stack((x.s_a, x.s_b)).double()
    lse = torch.logsumexp(s, 0)
    weight = torch.exp(s - lse.masked_fill(lse.isinf(), 0.0))
    return (weight[..., None] * v).sum(0), lse.float()


@implements("merge_state", library="torch", name="planted_right", platforms=CPU)
def right(x):
    o, lse = merged(x)
    return o.to(x.v_a.dtype), lse


@implements("merge_state", library="torch", name="planted_numerics", platforms=CPU)
def numerics(x):
    o, lse = merged(x)
    if x.case.heads % 16 == 12 and x.case.tokens > 8:
        o[8, 11] *= 1.25
    return o.to(x.v_a.dtype), lse


@implements("merge_state", library="torch", name="planted_abort", platforms=CPU)
def aborts(x):
    if x.case.heads >= 33:
        os.abort()
    return right(x)


@implements("merge_state", library="torch", name="planted_hang", platforms=CPU)
def hangs(x):
    if x.case.heads >= 7:
        time.sleep(1000)
    return right(x)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "plugin_planted.py"
    path.write_text(PLUGIN)
    return str(path)


def fuzz(plugin: str, folder: Path, *more: str, provider: str) -> tuple[int, dict[str, Any]]:
    arguments = ["fuzz", "--op", "merge_state", "--provider", provider, "--platform", "cpu", "--plugin", plugin, "--json", "--database", str(folder / "kept")]
    done = CliRunner().invoke(cli, [*arguments, *more], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout)


def test_planted_failures_are_found_by_real_workers(plugin, tmp_path):
    code, report = fuzz(plugin, tmp_path, "--examples", "120", "--seed", "1", "--axis", "dim=16", provider="planted_numerics,planted_abort,planted_right")
    assert code == 1
    found = {row["provider"]: row for row in report["findings"]}
    assert {name: (row["status"], row["case"]) for name, row in found.items()} == {
        "planted_numerics": ("mismatch", "t9-h12-d16-fp32"),
        "planted_abort": ("crash", "t1-h33-d16-fp32"),
    }
    assert "kernel-parity repro 'merge_state[planted_numerics-t9-h12-d16-fp32]'" in found["planted_numerics"]["text"]
    searched = {row["provider"]: row for row in report["searched"]}
    assert searched["planted_right"]["passed"] == searched["planted_right"]["ran"] > 60
    assert 0 < searched["planted_right"]["worst"] <= 1


def test_a_hang_is_found(plugin, tmp_path):
    options = ("--examples", "20", "--seed", "1", "--axis", "dim=16", "--axis", "heads=1..40", "--timeout", "0.5", "--shrink-seconds", "8")
    code, report = fuzz(plugin, tmp_path, *options, provider="planted_hang")
    assert code == 1
    (found,) = report["findings"]
    assert (found["status"], found["case"]) == ("hang", "t1-h7-d16-fp32")


def test_a_run_is_repeated_by_its_seed(plugin, tmp_path):
    lists = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        log = tmp_path / name / "log.jsonl"
        code, _ = fuzz(plugin, tmp_path / name, "--examples", "40", "--seed", "9", "--results", str(log), provider="planted_right")
        assert code == 0
        lists.append([(result.cell, result.seed, result.input_hash) for result in read(log)])
    assert lists[0] == lists[1]
    assert len(lists[0]) > 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--op", "merge_stat"], "nearest: merge_state"),
        (["--provider", "torch_eagre"], "unknown provider"),
        (["--op", "merge_state", "--axis", "heads=5..2"], "write 2..5"),
        (["--op", "merge_state", "--provider", "flashinfer"], "none of the chosen providers runs here"),
        (["--op", "decode_attention", "--provider", "torch_eager", "--axis", "heads=3", "--axis", "kv_heads=2"], "lies within these bounds"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    with pytest.raises(UsageError, match=words) as caught:
        CliRunner().invoke(
            cli, ["fuzz", *arguments, "--platform", "cpu", "--database", "none", "--examples", "5"], catch_exceptions=False, standalone_mode=False
        )
    assert "\n" not in str(caught.value)


def test_an_interrupt_keeps_what_was_found(plugin, tmp_path):
    command = [sys.executable, "-m", "harness", "fuzz", "--op", "merge_state", "--provider", "planted_numerics", "--platform", "cpu", "--plugin", plugin]
    command += ["--database", str(tmp_path), "--seed", "1", "--seconds", "600", "--axis", "dim=16"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    for line in started.stderr:
        if line.startswith("found: "):
            break
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "merge_state[planted_numerics-t9-h12-d16-fp32]: mismatch (numerics)" in out
