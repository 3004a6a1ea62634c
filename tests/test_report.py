"""What people read: the text of a failure, the table, the totals."""

from __future__ import annotations

import pytest
import torch

from harness import checks, report
from harness.contracts import Close, Exact, Filtered, OneOf
from harness.store.ledger import Entry, Verdict
from harness.store.results import Result


def result(**fields):
    base = {"cell": "merge_state[lib-t2-h3-fp16]", "op": "merge_state", "provider": "lib", "case": "t2-h3-fp16", "status": "mismatch", "platform": "cuda"}
    more = {"evidence": "measured", "reason": "numerics", "device": {"name": "H200"}, "versions": {"torch": "2.11", "lib": "1.0"}}
    return Result(**{**base, **more, **fields})


def test_a_failure_says_what_was_called_and_how_to_see_it_again():
    row = result(
        detail="Output 'o': Mismatched elements: 1 / 6",
        inputs={"v_a": "float16[2, 3, 128]", "scale": "0.5"},
        values={"tokens": 2, "heads": 3, "dtype": "fp16"},
        notes=["went round a check"],
        seed=3,
    )
    assert report.explain(row, Verdict("finding")).splitlines() == [
        "merge_state[lib-t2-h3-fp16]: mismatch (numerics), measured on H200 (torch 2.11 lib 1.0)",
        "case: tokens=2, heads=3, dtype=fp16, seed 3",
        "call: merge_state(v_a=float16[2, 3, 128], scale=0.5)",
        "Output 'o': Mismatched elements: 1 / 6",
        "note: went round a check",
        "again: kernel-parity run --cell 'merge_state[lib-t2-h3-fp16]' --seed 3   alone: kernel-parity repro 'merge_state[lib-t2-h3-fp16]' --seed 3",
    ]


def test_a_listed_cell_that_passes_names_the_entry_to_remove():
    verdict = Verdict("gone", Entry("merge_state", "lib", "once wrong", status="mismatch", place="ledger.toml entry 2"), "the ledger lists mismatch")
    assert "the ledger lists mismatch; remove or narrow ledger.toml entry 2" in report.explain(result(status="pass", reason=""), verdict)


def test_a_required_cell_that_did_not_run_says_so():
    row = result(cell="merge_state[lib]", case="", status="absent", reason="not here", detail="lib is not installed", device={}, versions={}, evidence="none")
    text = report.explain(row, Verdict("finding", Entry("merge_state", "lib", "ours", kind="required"), "required, but absent: ours"))
    assert text.splitlines() == ["merge_state[lib]: absent (not here), none on no device", "lib is not installed", "required, but absent: ours"]


def _close(value, **fields):
    return Close(torch.tensor(value, dtype=torch.float64), torch.tensor(value, dtype=torch.float64).abs(), **fields)


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        (
            torch.tensor([[1.0, 2.0], [4.0, 9.0]]),
            _close([[1.0, 2.0], [4.0, 8.0]]),
            [
                "Mismatched elements: 1 / 4 (25.0%)",
                "Greatest absolute difference: 1 at index (1, 1) (expected 8, actual 9",
                "Greatest relative difference: 0.125 at index (1, 1)",
            ],
        ),
        (torch.tensor([1.0, float("nan")]), _close([1.0, 2.0]), ["NaN where a number belongs: 1 elements, first at index (1,), expected 2"]),
        (torch.tensor([1, 5]), Exact(torch.tensor([1, 7])), ["Mismatched elements: 1 / 2 (50.0%)", "index (1,)", "expected 7, actual 5"]),
        (
            torch.tensor([[0.5, 0.5, 0.0]]),
            Filtered(torch.tensor([[0.5, 0.2, 0.3]], dtype=torch.float64), torch.tensor([[True, False, True]]), torch.tensor([[True, False, True]])),
            [
                "Rows with a wrong set of tokens: 1 / 1",
                "Row 0: kept 2 of 3 tokens, expected 2",
                "dropped a token that every rule keeps: 1 in all",
                "kept a token that no rule keeps",
            ],
        ),
        (torch.tensor([7]), OneOf(torch.tensor([[True, False]])), ["Wrong draws: 1 / 1", "drew id 7 outside [0, 2)"]),
        (torch.tensor([1.0]), _close([1.0, 2.0]), ["expected shape (2,), got (1,)"]),
        (torch.tensor([1, 2]), _close([1.0, 2.0], dtype=torch.float16), ["expected torch.float16, got torch.int64"]),
    ],
)
def test_each_kind_of_mismatch_gives_its_numbers(actual, expected, said):
    text = checks.judge(actual, expected).text
    for part in said:
        assert part in text


def test_the_table_has_a_line_an_op_and_provider_and_says_who_did_not_run():
    rows = [
        (result(), Verdict("finding")),
        (result(status="pass", reason=""), Verdict("ok")),
        (result(reason="support"), Verdict("known")),
        (result(provider="other", case="", status="absent", detail="other is not installed", evidence="none"), Verdict("ok")),
        (result(op="greedy", provider="other", case="", status="absent", detail="other is not installed", evidence="none"), Verdict("ok")),
    ]
    text = report.summary(rows)
    line = next(line for line in text.splitlines() if line.startswith("merge_state"))
    assert line.split() == ["merge_state", "lib", "measured", "1", "2", "1", "finding,", "1", "known"]
    assert "not run here, absent (other is not installed): other (2 ops)" in text
    assert report.totals(rows) == "5 rows: 1 pass, 2 mismatch, 2 absent; 3 measured; findings 1, known 1"


def test_a_table_of_nothing_is_not_a_table():
    assert report.summary([]) == ""
    assert report.totals([]) == "0 rows: ; none ran; findings 0, known 0"


def test_time_is_shown_by_share():
    text = report.harness_share([result(seconds={"harness": 0.002, "kernel": 0.006}), result(seconds={"harness": 0.002, "kernel": 0.01})])
    line = next(line for line in text.splitlines() if line.startswith("harness"))
    assert line.split() == ["harness", "0.00", "20.0", "%", "2.00"]
