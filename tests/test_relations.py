"""Laws between calls: each fits its op, its comparison says what it should, and each planted fault shows in its law alone."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.agreement import agree, differ, identical, room
from harness.contracts import Close, Exact, Filtered, make_inputs, op, ops
from harness.contracts.relations import base, pages, requests
from harness.errors import UsageError
from harness.faults import FAULTS, relating
from harness.machine.execute import Bench
from harness.machine.platforms import Device, machine_platform
from harness.machine.relations import impossible_here
from harness.providers import implements, providers, registry
from harness.selection import DEFAULT_CASES, Cell, preset_cases
from harness.session import Session, same_bits
from harness.store.ledger import Entry, Ledger, load_ledger
from harness.store.results import Result

HERE = machine_platform()
CPU = Device("cpu", "cpu", {"name": "a cpu", "arch": "cpu"})
LAWFUL = [declared for declared in ops().values() if declared.relations]
PLANTED = [fault for fault in FAULTS.values() if "relation" in (fault.point or {}) and HERE in fault.platforms]
FLAGS = ("uncapped", "unsunk", "unscaled", "unwindowed", "untempered")


def providers_of_faults() -> dict:
    """The shelf's providers, wherever another test has put them."""
    found = {key: provider for key, provider in registry._providers.items() if key[1] in FAULTS}
    for fault in PLANTED:
        key = (fault.op, fault.provider)
        if key not in found:
            made = getattr(relating, fault.provider.removeprefix("fault_"))
            implements(fault.op, library="torch", name=fault.provider, platforms=fault.platforms, promises=PROMISED.get(fault.provider))(made)
            found[key] = registry._providers.pop(key)
    return found


PROMISED = {"fault_depends_on_the_batch": {"alone"}, "fault_draws_otherwise_beside_a_filter": {"alone"}}


# ---- the axis ----


def test_every_case_of_before_keeps_its_id_and_its_values():
    case = op("mla_decode").axes.parse("b2-h5-s33-fp32")
    assert "relation" not in case.point
    assert op("mla_decode").relation(case) is None
    related = op("mla_decode").axes.parse("b2-h5-s33-fp32-slots")
    assert related.point == {**case.point, "relation": "slots"}
    assert op("mla_decode").relation(related) is op("mla_decode").relations["slots"]


@pytest.mark.parametrize("declared", LAWFUL, ids=lambda declared: declared.name)
def test_every_law_has_words_and_a_case_in_some_preset(declared):
    listed = {case.point.get("relation") for preset in ("smoke", "pr", "nightly") for case in preset_cases(DEFAULT_CASES, preset, declared.name)}
    listed |= {"process", "highpages", "edgepages"}  # processes and pools that cost much: listed for some ops
    assert set(declared.relations) <= listed
    assert all("-" not in word and law.doc for word, law in declared.relations.items())


def test_a_case_that_a_law_says_nothing_of_is_refused_in_one_line():
    with pytest.raises(UsageError, match="there is no case 'b1-h5-s9-fp32-slots': it needs two requests or more"):
        op("mla_decode").axes.parse("b1-h5-s9-fp32-slots")
    with pytest.raises(UsageError, match="soft_cap is off already"):
        op("decode_attention").axes.case(batch=2, heads=2, kv_heads=1, length=9, dtype="fp32", relation="uncapped")
    with pytest.raises(UsageError, match="promises are repeat, process, slots, alone, not \\['always'\\]"):
        implements("merge_state", library="torch", platforms={"cpu"}, promises={"always"})


# ---- the varied inputs ----


@pytest.mark.parametrize("name", ["decode_attention", "extend_attention", "verify_attention", "mla_decode", "mla_prefill", "mla_prefill_absorbed"])
def test_requests_in_another_order_are_the_same_requests(name):
    declared = op(name)
    case = next(case for case in preset_cases(DEFAULT_CASES, "pr", name) if case.point.get("relation") == "slots")
    x = make_inputs(case, "cpu")
    golden = declared.impl.reference(x, declared.resolve({}))
    law = declared.relations["slots"]
    y = law.vary(x, {})[0]
    assert "memo" not in vars(y)
    turned = {key: expected.value for key, expected in declared.impl.reference(y, declared.resolve({})).items()}
    for key, value in law.back(x, [turned]).items():
        torch.testing.assert_close(value, golden[key].value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("declared", LAWFUL, ids=lambda declared: declared.name)
def test_references_obey_the_laws_themselves(declared):
    """In fp64 the golden values of the varied calls, mapped back, are those of the plain one; for a flag they differ."""
    seen = set()
    for case in [case for preset in ("smoke", "pr") for case in preset_cases(DEFAULT_CASES, preset, declared.name)]:
        law = declared.relation(case)
        word = case.point.get("relation")
        if law is None or word in seen or law.how != "call" or law.nbytes(case) > 1 << 24:
            continue
        seen.add(word)
        x = make_inputs(case, "cpu")
        semantics = declared.resolve({})
        golden = declared.impl.reference(x, semantics)
        given = values(golden)
        varied = law.vary(x, {key: value.float() for key, value in given.items()})
        mine, theirs = law.part(x, given), law.back(x, [values(declared.impl.reference(y, semantics)) for y in varied])
        for key in mine.keys() & theirs.keys():
            apart = (mine[key].double() - theirs[key].double()).abs().nan_to_num(0).amax()
            if law.off and key == declared.outputs[0]:
                assert apart > 1e-3, f"{case}: the flag changes nothing"
            elif not law.off:
                assert apart < 1e-4, f"{case}: {key} is {apart} apart"
    assert "slots" in seen or "strided" in seen or "twice" in seen or declared.name in ("chain_verify", "tree_verify_sample")


def values(golden):
    """Golden values as a right library would give them."""
    given = {}
    for name, expected in golden.items():
        if isinstance(expected, (Close, Exact)):
            given[name] = expected.value.masked_fill(~expected.where, 0) if isinstance(expected, Exact) and expected.where is not None else expected.value
        elif isinstance(expected, Filtered):
            kept = torch.where(expected.required, expected.weights, 0.0)
            given[name] = kept / kept.sum(-1, keepdim=True)
    return given


@given(st.integers(2, 9), st.integers(1, 4), st.sampled_from([torch.float32, torch.float16, torch.int32, torch.float8_e4m3fn]))
def test_other_layouts_hold_the_same_values(rows, width, dtype):
    tensor = torch.arange(rows * width).view(rows, width).to(dtype)
    behind, apart = base._behind(tensor), base._apart(tensor)
    assert behind.storage_offset() == width
    assert apart.stride(0) == width + base.MARGIN
    for moved in (behind, apart):
        assert torch.equal(moved.float(), tensor.float())


@given(st.integers(2, 40))
def test_the_other_order_changes_neighbours(count):
    order = requests._order(count)
    assert sorted(order) == list(range(count))
    assert not set(itertools.pairwise(range(count))) & set(itertools.pairwise(order))


def test_high_pages_lie_on_both_sides_of_the_edge():
    case = op("decode_attention").axes.parse("b2-h2-kv1-s20-d16-fp32-highpages")
    x = make_inputs(case, "cpu")
    y = op("decode_attention").relations["highpages"].vary(x, {})[0]
    assert int(y.kv_indices.min()) < pages.WORD <= int(y.kv_indices.max())
    assert torch.equal(y.k_flat[torch.cat(y.slots)], x.k_flat[torch.cat(x.slots)])


# ---- the comparison ----


def test_bits_are_compared_where_the_contract_defines_them():
    first = torch.tensor([1.0, 0.0, math.nan])
    assert identical(first, first.clone(), None).right
    one_off = torch.nextafter(first, torch.tensor(2.0))
    assert "Elements with other bits: 2 / 3" in identical(first, one_off, None).text
    assert identical(first, one_off, torch.tensor([math.inf, math.inf, 0.0])).right
    assert not identical(torch.zeros(1), -torch.zeros(1), None).right
    assert "float16[1] in the other" in identical(torch.zeros(1), torch.zeros(1).half(), None).text


@given(st.floats(0.01, 100), st.floats(-0.99, 0.99))
def test_results_agree_up_to_the_sum_of_both_budgets(space, share):
    first, budget = torch.tensor([3.0], dtype=torch.float64), torch.tensor([space], dtype=torch.float64)
    assert agree(first, first + share * budget, budget).right
    assert not agree(first, first + 1.01 * budget, budget).right
    assert differ(first, first + 1.01 * budget, budget).right
    assert differ(first, first + share * budget, budget).reason == "ignored-flag"


def test_what_lies_apart_is_told():
    first, budget = torch.zeros(2, 2), torch.full((2, 2), 0.1, dtype=torch.float64)
    outcome = agree(first, torch.tensor([[0.0, 0.0], [1.0, math.nan]]), budget)
    assert outcome.reason == "invariant"
    assert "Rows with a wrong element: 1 / 2, first [1]" in outcome.text
    infinite = torch.tensor([-math.inf])
    assert agree(infinite, infinite, torch.ones(1)).right


def test_rows_that_a_tie_decides_are_left_out_by_row_alone():
    first, second = torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0]]), torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    space = torch.full((2, 3), 1e-3, dtype=torch.float64)
    assert "first [1]" in agree(first, second, space, by_row=True).text
    assert agree(first[:1], second[:1], space[:1], by_row=True).right
    assert not agree(first[:1], second[:1], space[:1]).right


def test_what_the_contract_leaves_open_has_all_the_room():
    open_at = torch.tensor([True, False])
    close = Close(torch.ones(2).double(), torch.ones(2).double(), undefined=open_at)
    assert room(torch.ones(2), close).isinf().tolist() == [True, False]
    assert room(torch.ones(2), Exact(torch.ones(2), where=~open_at)).tolist() == [math.inf, 0.0]
    assert room("no tensor", close) is None


# ---- a cell ----


def test_a_device_law_and_a_pool_that_does_not_fit_are_unsupported_with_the_reason():
    parse = op("decode_attention").axes.parse
    assert "neither streams nor graphs" in impossible_here(parse("b2-h2-kv1-s9-d16-fp32-replay"), CPU)
    assert "does not fit: the varied inputs take" in impossible_here(parse("b2-h2-kv1-s9-d16-fp32-edgepages"), CPU)
    assert impossible_here(parse("b2-h2-kv1-s9-d16-fp32-highpages"), CPU) is None
    assert impossible_here(parse("b2-h2-kv1-s9-d16-fp32"), CPU) is None


def test_a_required_cell_is_not_missed_where_its_law_cannot_be_shown():
    required = Ledger([Entry("mla_decode", "p", "it must run", kind="required")])
    row = {"cell": "c", "op": "mla_decode", "provider": "p", "case": "x", "status": "unsupported", "platform": "cpu"}
    assert required.judge(Result(**row)).kind == "finding"
    assert required.judge(Result(**row, values={"relation": "replay"})).kind == "ok"
    assert required.judge(Result(**{**row, "status": "refused"}, values={"relation": "slots"})).kind == "finding"


def test_two_processes_are_held_to_the_promise():
    row = {"cell": "c", "op": "o", "provider": "p", "case": "x", "status": "pass", "platform": "cpu"}

    def rows(one, other):
        return Result(**row, figures={"o": {"bits": one}}), Result(**row, figures={"o": {"bits": other}})

    assert same_bits(*rows("aa", "aa"), frozenset({"process"})).status == "pass"
    told = same_bits(*rows("aa", "bb"), frozenset({"process"}))
    assert (told.status, told.reason) == ("nondeterministic", "process")
    assert "'o' aa and bb" in told.detail
    assert same_bits(*rows("aa", "bb"), frozenset()).status == "pass"
    first, second = rows("aa", "bb")
    second.status = "crash"
    assert same_bits(first, second, frozenset({"process"})) is second


@pytest.mark.skipif(HERE != "cpu", reason="the plain cases are run beside, on the cpu")
@pytest.mark.parametrize("fault", [fault for fault in PLANTED if fault.status != "pass"], ids=lambda fault: fault.provider)
def test_only_the_law_catches_what_is_planted(fault):
    """The plain call of the same inputs is right (a flag that is ignored aside: it is wrong there, and the law names it)."""
    provider = providers_of_faults()[fault.op, fault.provider]
    bench = Bench(CPU)
    plain = {name: value for name, value in fault.case.point.items() if name != "relation"}
    case = op(fault.op).axes.case(**plain)
    free = type(provider)(**{**vars(provider), "accepts": None})
    result, _ = bench.run(case, free, "cpu")
    if fault.reason == "ignored-flag":
        assert (result.status, result.reason) == ("mismatch", "numerics")
    else:
        assert result.status == "pass", result.detail


def test_every_law_that_a_cpu_can_show_has_a_planted_fault():
    words = {word for declared in LAWFUL for word, law in declared.relations.items() if not law.on_a_device}
    assert words - {fault.case.point["relation"] for fault in PLANTED if fault.status != "pass"} == {"edgepages"}


@pytest.mark.skipif(HERE != "cpu", reason="a device runs these in its presets")
def test_the_providers_here_obey_the_laws_of_the_smallest_cases():
    ledger = load_ledger(DEFAULT_CASES / "ledger.toml")
    cells = [
        Cell(declared.name, provider, case, "interpret" if "interpret" in provider.platforms else "cpu")
        for declared in LAWFUL
        for case in preset_cases(DEFAULT_CASES, "smoke", declared.name)
        if "relation" in case.point
        for provider in providers().values()
        if provider.op == declared.name and provider.platforms & {"interpret", "cpu"} and provider.library.installed()
    ]
    wrong = []
    with Session("cpu") as session:
        session.run_all(cells, lambda cell, result: wrong.append(result) if ledger.judge(result).bad else None, 2)
    assert not [(result.cell, result.status, result.reason, result.detail) for result in wrong]
    assert len(cells) > 60


def test_a_finding_says_which_call_it_is_of():
    provider = providers_of_faults()["mla_decode", "fault_leaves_the_tile_of_16_half_done"]
    result, _ = Bench(CPU).run(FAULTS[provider.name].case, provider, "cpu")
    assert result.detail.startswith("in the call with zero heads added to each group and cut off again: Output 'o'")
    provider = providers_of_faults()["merge_state", "fault_depends_on_its_slot"]
    result, _ = Bench(CPU).run(FAULTS[provider.name].case, provider, "cpu")
    assert "the plain call and that with the rows in another order, which the provider promises to be equal to the bit (slots)" in result.detail
