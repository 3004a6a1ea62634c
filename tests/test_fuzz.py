"""The search: planted failures are found and made as small as they are known to be, and it can be repeated."""

from __future__ import annotations

import math
import statistics
import tomllib
from types import SimpleNamespace

import pytest
from searching import MERGE, RIGHT, Described, hunt, wrong

from harness.contracts import Case, op
from harness.errors import UsageError
from harness.providers import providers, providers_of
from harness.search import regression
from harness.search.campaign import Campaign
from harness.search.hunt import Clock
from harness.search.kept import Kept
from harness.store.ledger import Entry, Ledger

# ---- hunts ----


def test_a_wrong_shape_is_found_and_made_the_smallest_wrong_one():
    one, _ = hunt(wrong(lambda case: case.heads % 16 == 12 and case.tokens > 8))
    one.search(600, seed=1)
    (found,) = one.found.values()
    assert (found.result.values["heads"], found.result.values["tokens"]) == (12, 9)
    assert found.result.case == "t9-h12-fp32"
    assert (found.alone, found.result.seed) == ("mismatch: numerics", 0)


def test_a_bound_in_k_is_found_to_the_token():
    eager = providers()["top_k_renorm", "torch_eager"]
    one, _ = hunt(wrong(lambda case: case.k > 64 and case.vocab > 70, reason="support"), provider=eager)
    one.search(600, seed=3)
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
    one.search(600, seed=2)
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
    """The error grows with heads times tokens: the greatest of a search is nearer to the most that its cost allows, seed for seed."""
    axes = op("merge_state").axes
    greatest: dict[bool, list[int]] = {True: [], False: []}
    for target, reached in greatest.items():
        for seed in range(8):
            one, described = hunt(lambda case, seed, told=target: ("pass", "", case.heads * case.tokens / 1e6 if told else math.nan), dim=[16], dtype=["fp32"])
            one.search(150, seed=seed)
            cases = [axes.parse(case) for case, _ in described.asked]
            reached.append(max(case.heads * case.tokens for case in cases))
    assert statistics.median(greatest[True]) > statistics.median(greatest[False])


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
    ("status", "reason", "kind", "check"),
    [
        ("mismatch", "support", "sampler", "support"),
        ("crash", "signal SIGABRT", "crash", "isolation"),
        ("mismatch", "shape", "numerics", "form"),
        ("mismatch", "unwritten", "numerics", "memory"),
        ("nondeterministic", "repeat", "numerics", "determinism"),
        ("missing", "None", "missing", "resolve"),
    ],
)
def test_a_finding_is_a_row_of_the_regressions_once(tmp_path, status, reason, kind, check):
    case = op("merge_state").axes.case(tokens=9, heads=12, dtype="fp16")
    result = Described(lambda case, seed: (status, reason, 1.0))(case, 7)
    regression.add(tmp_path, result)
    regression.add(tmp_path, result)
    (bug,) = tomllib.loads((tmp_path / regression.FILE).read_text())["bug"]
    assert (bug["kind"], bug["check"]) == (kind, [check])
    assert "seed 7" in bug["wrong"]
    (row,) = bug["case"]
    assert op(row["op"]).axes.case(**row["axes"]) == case
    regression.add(tmp_path, Described(lambda case, seed: (status, reason, 1.0))(op("merge_state").axes.case(tokens=1, heads=1, dtype="fp32"), 0))
    assert len(tomllib.loads((tmp_path / regression.FILE).read_text())["bug"]) == 2


def test_a_variant_of_a_call_is_searched_where_it_is_named():
    from harness.commands.fuzz import _standing

    (variant,) = {provider.name for provider in providers_of("verify_attention") if provider.variant and provider.name.endswith("_warm")}
    for names, searched in (((), False), ((variant,), True)):
        able, elsewhere = _standing(SimpleNamespace(providers=names, machine="cpu"), ["verify_attention"])
        assert (variant in {provider.name for provider, _ in able}) == searched
        assert (variant in {provider.name for provider, _ in elsewhere}) != searched
