"""Every reference against its contract's second, independent formula, and the inputs' promises."""

from __future__ import annotations

import itertools

import pytest
import torch

from harness import checks
from harness.contracts import Close, Drawn, Exact, Filtered, Inputs, Judged, OneOf, fingerprint, make_inputs, op, ops
from harness.contracts.sampling.distributions import WORKED
from harness.selection import DEFAULT_CASES, preset_cases

# fp64 on both sides: what two formulas may differ by, as a share of the sum of |terms|
AGREEMENT = 1e-9
CASES = [(name, case.id) for name in ops() for case in preset_cases(DEFAULT_CASES, "smoke", name)]


def _sample(count: int) -> list[tuple[str, str]]:
    """Evenly spaced cases of each op, so that every input family is met and the test stays quick."""
    chosen = []
    for _, group in itertools.groupby(CASES, key=lambda pair: pair[0]):
        cases = list(group)
        chosen += cases[:: max(1, len(cases) // count)]
    return chosen


def _choices(name: str) -> list[dict[str, str]]:
    """Every combination of an op's choices; of many, the defaults, each other word alone and all last words together."""
    semantics = op(name).semantics
    every = [dict(zip(semantics, words, strict=True)) for words in itertools.product(*semantics.values())]
    if len(every) <= 16:
        return every
    default = every[0]
    return [default, *({**default, choice: word} for choice, words in semantics.items() for word in words[1:]), every[-1]]


@pytest.mark.parametrize(("name", "case_id"), _sample(12), ids=lambda value: value)
def test_reference_agrees_with_the_second_formula(name, case_id):
    declared = op(name)
    case = declared.axes.parse(case_id)
    for semantics in _choices(name):
        x = make_inputs(case, "cpu", seed=1)
        expected = declared.impl.reference(x, semantics)
        for output, value in declared.impl.second(make_inputs(case, "cpu", seed=1), semantics).items():
            _agree(value, expected[output], f"{name}[{case_id}] {semantics} {output}")


def _agree(value, expected, where):
    if isinstance(expected, Close):
        golden = expected.value.double()
        room = AGREEMENT * (1 + golden.abs().masked_fill(golden.isinf(), 0) + expected.magnitude)
        same = torch.where(golden.isinf(), value.double() == golden, (value.double() - golden).abs() <= room)
        if expected.undefined is not None:
            same |= expected.undefined
        assert bool(same.all()), f"{where}: {torch.nonzero(~same)[:3].tolist()}"
    elif isinstance(expected, Filtered):
        outcome = checks.filtered(value, expected)
        assert outcome.right, f"{where}: {outcome.text}"
    elif isinstance(expected, Drawn):  # the second formula says what may be drawn, not how often
        said = checks.one_of(value, expected).text if expected.ids is None else expected.first.judge(value)
        assert not said, f"{where}: {said}"
    elif isinstance(expected, Exact | OneOf | Judged):
        outcome = checks.judge(value, expected)
        assert outcome.right, f"{where}: {outcome.text}"
    else:
        pytest.fail(f"{where}: no rule for {type(expected).__name__}")


@pytest.mark.parametrize(("name", "case_id"), _sample(3), ids=lambda value: value)
def test_inputs_depend_on_case_and_seed_alone(name, case_id):
    case = op(name).axes.parse(case_id)
    first, again, other = (_prints(make_inputs(case, "cpu", seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other or not first or case.point.get("values") in (*WORKED, "four"), "only rows worked by hand are the same for every seed"


def _prints(x: Inputs) -> dict[str, int]:
    return {name: int(fingerprint(tensor)) for name, tensor in x.tensors()}


PAGED = [(name, case_id) for name, case_id in CASES if {"kv_indptr", "kv_indices", "kv_len"} <= vars(make_inputs(op(name).axes.parse(case_id), "cpu")).keys()]


@pytest.mark.parametrize(("name", "case_id"), PAGED[:: max(1, len(PAGED) // 60)], ids=lambda value: value)
def test_slots_are_what_the_page_table_says(name, case_id):
    """Both formulas read the pool by `slots`; a provider reads it by page table, which must therefore say the same."""
    x = make_inputs(op(name).axes.parse(case_id), "cpu")
    for request, slots in enumerate(x.slots):
        pages = x.kv_indices[int(x.kv_indptr[request]) : int(x.kv_indptr[request + 1])].tolist()
        tokens = [pages[t // x.case.page] * x.case.page + t % x.case.page for t in range(int(x.kv_len[request]))]
        assert slots.tolist() == tokens
