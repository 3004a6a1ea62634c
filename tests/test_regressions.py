"""Public bugs: every listed one has its row, every row its case or a reason, and the page says what the rows say."""

from __future__ import annotations

import importlib.util
import re

import pytest
from click.testing import CliRunner

from harness import regressions
from harness.cli import cli
from harness.contracts import make_inputs, op
from harness.errors import UsageError
from harness.providers import providers_of
from harness.reasons import CHECKS
from harness.selection import DEFAULT_CASES, preset_cases
from harness.store.results import read
from tests.test_docs import DOCS

# the corpus: what must stay mapped, whatever else is added
CORPUS = {
    "sglang": (32569, 32630, 37134, 36356, 37310, 34837, 37847, 25556, 33064, 33915, 33539, 36173),
    "vllm": (51647, 51040, 54210, 48076, 29979, 51119, 47671, 49294, 47079, 57614, 54568, 50979, 1885, 40149, 48396, 28099),
    "aiter": (4727, 3095, 4076, 3062, 2768, 2035, 4363, 2983),
    "FI": (4051, 4485, 2113, 1193, 4979, 384, 2456, 2202, 1049, 3125, 2400),
    "FA": (2842, 2573, 1537, 2392),
    "HF": (46960, 18976, 19839),
    "pytorch": (181528, 48841, 43115, 95455),
    "TRT": (10156, 1590),
    "LMD": (2459,),
    "triton": (7260,),
}
BUGS = regressions.bugs(DEFAULT_CASES)


def page():
    spec = importlib.util.spec_from_file_location("page", DEFAULT_CASES / "regressions" / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_bug_of_the_corpus_is_mapped_once():
    names = [name for bug in BUGS for name in bug.names]
    assert {f"{place}#{number}" for place, numbers in CORPUS.items() for number in numbers} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_row_is_whole(bug):
    repository, number = bug.id.split("#")
    assert re.fullmatch(rf"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/{number}", bug.link)
    assert repository.lower() in bug.link.lower() or repository in ("FI", "FA", "TRT", "HF", "LMD")
    assert set(bug.check) <= set(CHECKS)
    assert bug.left or "small" in bug.cases
    for case in (case for cases in bug.cases.values() for case in cases):
        assert providers_of(case.op)


def test_small_cases_are_in_every_preset_and_true_sizes_in_the_larger_ones():
    for bug in BUGS:
        for size, presets in (("small", ("regressions", "smoke", "pr", "nightly")), ("real", ("pr", "nightly")), ("large", ("nightly",))):
            for case in bug.cases.get(size, ()):
                assert all(case in preset_cases(DEFAULT_CASES, preset, case.op) for preset in presets)


def test_the_page_says_what_the_rows_say():
    """Where it does not: `python cases/regressions/page.py`."""
    text = (DOCS / "bugs.md").read_text()
    assert text == page().written(text)
    assert all(f"[{bug.id}]({bug.link})" in text for bug in BUGS)


@pytest.mark.parametrize(("said", "names"), [("FI#1, FA#2", {"FI#1", "FA#2"}), (("FI#1",), {"FI#1"}), ("", {""})])
def test_a_fault_names_its_bugs(said, names):
    assert page().named(said) == names


ROW = 'id = "FI#1"\nlink = "https://github.com/a/b/issues/1"\nkind = "numerics"\nwrong = "x"\nright = "y"\n'


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROW, "needs a case and its check, or `left`"),
        (ROW.replace("numerics", "numeric") + 'left = "z"', "kind is one of"),
        (ROW.replace("wrong", "worng"), "worng"),
        (ROW + 'check = ["tolerance"]\ncase = [{ op = "merge_stat", axes = {} }]', "unknown op 'merge_stat'"),
        (ROW + 'check = ["tolerance"]\ncase = [{ op = "merge_state", axes = { tokns = 1 } }]', "no axis 'tokns'"),
        (ROW + 'check = ["tolerance"]\ncase = [{ op = "merge_state", size = "huge", axes = { tokens = 1 } }]', "size is one of"),
    ],
)
def test_a_broken_row_is_one_clear_line(row, said, tmp_path):
    (tmp_path / "regressions").mkdir()
    (tmp_path / "regressions" / "x.toml").write_text("[[bug]]\n" + row)
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        regressions.bugs(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_list_of_values_is_a_case_of_each():
    (bug,) = [bug for bug in BUGS if bug.id == "FI#1193"]
    assert {(case.op, case.soft_cap) for case in bug.cases["small"]} >= {("decode_attention", 0.0), ("decode_attention", 5.0), ("extend_attention", 5.0)}


def test_a_result_names_the_bug_it_is_kept_for(tmp_path):
    log = tmp_path / "results.jsonl"
    CliRunner().invoke(cli, ["run", "--platform", "cpu", "--cell", "merge_state[torch_eager-t1-h1-d64-fp16-bothempty]", "--results", str(log)])
    (result,) = read(log)
    assert result.notes == regressions.notes(DEFAULT_CASES, "merge_state", "t1-h1-d64-fp16-bothempty")
    assert "FI#4051" in result.notes[0]


def test_high_pages_of_decode_are_what_the_table_says():
    case = op("decode_attention").axes.case(batch=2, heads=1, kv_heads=1, length=5, dim=16, page=2, dtype="fp16", top_page=300)
    x = make_inputs(case, "cpu")
    pages = [ids for slots in x.slots for ids in (slots[::2] // 2).tolist()]
    assert pages == x.kv_indices.tolist()
    assert max(pages) == 300
    assert bool((x.k_pool[: min(pages) - 8] == 3).all())
