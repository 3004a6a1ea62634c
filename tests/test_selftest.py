"""The selftest: it passes on a sound harness and fails on one whose checks are sabotaged, each in turn."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from scipy import stats

from harness import report, selftest
from harness.checks import rivals
from harness.cli import cli
from harness.contracts import Close, Drawn, Filtered
from harness.errors import UsageError
from harness.faults import FAULTS
from harness.machine.platforms import machine_platform
from harness.providers import registry
from harness.reasons import CHECKS
from harness.selection import DEFAULT_CASES
from harness.selftest import bound
from harness.store.ledger import load_ledger

for _fault in FAULTS.values():  # the shelf is declared in the workers; here it would join the selections of other tests
    registry._providers.pop((_fault.op, _fault.provider), None)

LEDGER = load_ledger(DEFAULT_CASES / "ledger.toml")
FINE = "from harness.checks.outcome import Outcome\nfine = lambda *a, **k: Outcome(error=0.0)\nimport harness.checks as checks\n"
# the attribute of that name is the function
TOLERANCE = "import importlib\nroom = importlib.import_module('harness.checks.tolerance')\n"
TALLY = "import harness.checks.tally as tally\n"
DRAWS = "import harness.checks.distribution as room\n"
MEMORY = "import harness.machine.memory as memory\n"
EXECUTE = "import harness.machine.execute as execute\n"

SABOTAGE = {
    "tolerance-x1000": (TOLERANCE + "old = room.tolerance\nroom.tolerance = lambda e, d: 1000 * old(e, d)\n", "errs_in_the_lse_alone errs_in_one_lane"),
    "tolerance-x10": (TOLERANCE + "old = room.tolerance\nroom.tolerance = lambda e, d: 10 * old(e, d)\n", "is_a_fiftieth_too_large"),
    "values-always-right": (FINE + "checks.close = fine\n", "swaps_the_last_head skips_a_block_of_keys forgets_to_rescale has_one_wrong_head"),
    "integers-always-right": (FINE + "checks.exact = fine\n", "writes_a_neighbours_row_too"),
    "nan-is-right": (
        TOLERANCE + FINE + "old = room.close\nchecks.close = lambda a, e: old(a.where(~a.isnan(), e.value.to(a.dtype)), e)\n",
        "merges_two_empty_states_to_nan",
    ),
    "kept-tokens-always-right": (FINE + "checks.filtered = fine\n", "keeps_a_wrong_token cuts_ties_that_it_promised_to_keep"),
    "drawn-tokens-always-right": (FINE + DRAWS + "checks.one_of = room.one_of = fine\n", "draws_what_was_removed draws_a_massless_token_once"),
    "draws-always-right": (FINE + DRAWS + "room.drawn = fine\n", "favours_a_token never_draws_the_tail accepts_every_draft"),
    "never-greedy": (DRAWS + "room._greedy = lambda *a: ('', '')\n", "takes_the_best_in_one_row"),
    "order-ignored": (TALLY + "tally._order = lambda *a: None\n", "shares_random_numbers_between_rows walks_by_a_short_counter"),
    "band-ignored": (TALLY + "tally._band = lambda *a: None\n", "draws_every_tie"),
    "second-look-always-right": (
        FINE + DRAWS + "old = room.drawn\nroom.drawn = lambda a, e, again=False: fine() if again else old(a, e)\n",
        "is_unlucky_every_time",
    ),
    "slots-ignored": (
        "from harness.contracts import Judged, op\nimport dataclasses\nkind = type(op('seeded_sample').impl)\nold = kind.reference\n"
        "kind.reference = lambda self, x, s: {n: Judged(lambda ids: None) for n in old(self, x, s)}\n",
        "goes_by_the_slot_in_the_batch",
    ),
    "guard-bytes-ignored": (MEMORY + "memory.Scratch.trespassed = lambda self: ''\n", "writes_past_the_end writes_one_head_too_many"),
    "narrow-guards": (MEMORY + "memory.GUARD = 256\n", "writes_one_head_too_many"),
    "nan-fill-off": (MEMORY + "memory._poison = lambda dtype: 0\n", "writes_what_it_keeps_alone leaves_an_empty_row_unwritten"),
    "input-hash-ignored": (EXECUTE + "execute.prints = lambda x: {}\n", "changes_one_bit_of_its_cache sorts_its_input_in_place"),
    "form-ignored": (FINE + "checks._form = lambda a, e: None\n", "returns_a_wrong_dtype"),
    "names-not-looked-up": ("import harness.machine.classify as c\nc._missing = lambda e, t: ''\n", "calls_none names_nothing"),
    "errors-swallowed": (EXECUTE + "execute.classify = lambda error: ('pass', '')\n", "looks_up_nothing needs_a_power_of_two_heads"),
}


def named(names: str) -> tuple[str, ...]:
    return tuple(f"fault_{name}" for name in names.split())


def tried(faults: tuple[str, ...], plugins: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    plan: dict[str, Any] = {"clean": 0, "mutants": 0, "workers": 1, "ledger": LEDGER, **more}
    return selftest.run(selftest.Plan(machine=machine_platform(), folder=DEFAULT_CASES, faults=faults, plugins=plugins, **plan))


def typed(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", "from harness.cli import main; main()", "selftest", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_without_sabotage_every_one_of_them_is_caught():
    record = tried(tuple(dict.fromkeys(name for _, names in SABOTAGE.values() for name in named(names))), workers=2)
    assert [fault["fault"] for fault in record["faults"] if not fault["caught"]] == []
    assert record["passed"]
    assert record["planted"] == record["caught"] == len(record["faults"])


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_sabotaged_check_fails_the_selftest(tmp_path, name):
    text, faults = SABOTAGE[name]
    plugin = tmp_path / "sabotage.py"
    plugin.write_text(text)
    record = tried(named(faults), (str(plugin),))
    assert not record["passed"]
    assert [fault["fault"] for fault in record["faults"] if not fault["caught"]] == sorted(named(faults), key=list(FAULTS).index)


def test_a_limit_that_is_not_kept_fails_the_selftest(tmp_path):
    """The process is killed in the end, and that is not what the fault must end as."""
    plugin = tmp_path / "patient.py"
    plugin.write_text(
        "import time\nfrom harness.machine.pool import Worker\nfrom harness.selftest import planted\nplanted._PATIENCE = -12.0\n"
        "def wait(self, began):\n    self._connection.poll(None)\n    return ''\nWorker._await = wait\n"
    )
    code, out, err = typed("--plugin", str(plugin), "--fault", "fault_hangs", "--clean", "0", "--mutants", "0")
    assert code == 1, err
    assert "MISSED fault_hangs" in out


def test_a_check_that_is_too_strict_fails_the_selftest(tmp_path):
    plugin = tmp_path / "strict.py"
    plugin.write_text(TOLERANCE + "old = room.tolerance\nroom.tolerance = lambda e, d: old(e, d) / 1000\n")
    record = tried(("fault_forgets_to_merge",), (str(plugin),), clean=60, workers=2, seed=3)
    assert record["caught"] == 1
    assert record["false_alarms"] > 0
    assert not record["passed"]


PLUGIN = '''
from harness.faults import eager, fault

@fault("decode_attention")
def forgets_its_last_lane(x):
    """Whatever finds it."""
    o, lse = eager(x)
    o[..., -1] = 0
    return o, lse

@fault("top_k_renorm", check="support", batch=3, vocab=111, k=10)
def keeps_too_many(x):
    return eager(x.copy_with(top_k=11))

@fault("merge_state", "crash", "ZeroDivisionError")
def divides_by_zero(x):
    return 1 / 0
'''


def test_faults_of_a_plugin_are_tried_too(tmp_path):
    plugin, record = tmp_path / "mine.py", tmp_path / "record.json"
    plugin.write_text(PLUGIN)
    faults = ",".join(named("forgets_its_last_lane keeps_too_many divides_by_zero"))
    code, out, err = typed("--plugin", str(plugin), "--fault", faults, "--clean", "20", "--mutants", "0", "--seed", "1", "--json", str(record))
    assert code == 0, out + err
    found = json.loads(record.read_text())
    assert (found["planted"], found["caught"], found["mutants"], found["killed"], found["false_alarms"]) == (3, 3, 0, 0, 0)
    assert found["clean"] >= 20
    assert found["checks"]["any"] == {"planted": 1, "caught": 1}
    assert {fault["fault"]: fault["got"] for fault in found["faults"]}["fault_divides_by_zero"] == "crash ZeroDivisionError"
    assert "passed: 3 of 3 faults caught" in out


def test_what_is_not_wrong_or_wrong_otherwise_is_missed(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from harness.faults import eager, fault\n\n@fault('merge_state', tokens=2, heads=2, dim=16, dtype='fp32')\ndef is_right(x):\n    return eager(x)\n\n"
        "@fault('merge_state', check='memory', tokens=2, heads=2, dim=16, dtype='fp32')\ndef is_wrong_otherwise(x):\n    return 2 * x.v_a, x.s_a\n"
    )
    code, out, err = typed("--plugin", str(plugin), "--fault", ",".join(named("is_right is_wrong_otherwise")), "--clean", "0", "--mutants", "0", "--json", "-")
    assert code == 1, err
    assert {fault["fault"]: fault["got"] for fault in json.loads(out)["faults"]} == {
        "fault_is_right": "pass",
        "fault_is_wrong_otherwise": "mismatch numerics",
    }
    assert "missed fault_is_right (merge_state): wanted a finding, got pass" in err  # as soon as it is known: an interrupted run has said so
    assert "missed fault_is_wrong_otherwise (merge_state): wanted memory, got mismatch numerics" in err


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (None, (), "is not a file; give a path to a .py file"),
        ("1 / 0", (), "does not load: ZeroDivisionError"),
        ("from harness.faults import fault\nfault('top_k_rnorm')", ("--mutants", "0"), "unknown op 'top_k_rnorm'; nearest: top_k_renorm"),
        ("from harness.faults import fault\nfault('sample', check='luck')", (), "there is no check 'luck'"),
        ("from harness.faults import fault\nfault('sample', batch=1)", (), "axis 'vocab' needs a value"),
        ("from harness.faults import fault\n@fault('sample')\ndef ignores_top_k(x): pass", (), "two faults are called 'ignores_top_k'"),
        ("", ("--fault", "fault_ignores_top_q"), "unknown fault 'fault_ignores_top_q'; nearest: fault_ignores_top_p"),
        ("", ("--check", "luck"), "unknown check 'luck'"),
    ],
)
def test_a_bad_plugin_or_name_is_one_line(tmp_path, text, words, said):
    plugin = tmp_path / "bad.py"
    if text is not None:
        plugin.write_text(text)
    with pytest.raises(UsageError) as caught:
        cli.main(["selftest", "--plugin", str(plugin), "--clean", "0", *words], standalone_mode=False)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@dataclass
class Outcome:
    killed: bool
    equivalent: str = ""
    key: str = "k"
    kernel: str = "module:kernel"
    operator: str = "comparison"
    file: str = "kernel.py"
    line: int = 7
    before: str = "a < b"
    after: str = "a <= b"
    cell: str = ""


@pytest.mark.parametrize(("killed", "passed"), [(19, True), (18, False)])
def test_mutants_count_without_the_equivalent_ones(monkeypatch, killed, passed):
    made = [Outcome(True)] * killed + [Outcome(False)] * (20 - killed) + [Outcome(False, "the index is bounded before")]
    asked: list[dict[str, Any]] = []

    def run(**how: Any) -> list[Outcome]:
        asked.append(how)
        return made

    monkeypatch.setitem(sys.modules, "harness.faults.mutants", types.SimpleNamespace(run=run))
    record = tried(("fault_forgets_to_merge",), mutants=20, seed=5)
    assert asked == [{"count": 20, "seed": 5, "workers": 1}]
    assert (record["mutants"], record["killed"], record["equivalent"], record["passed"]) == (20, killed, 1, passed)
    assert record["kernels"] == {"module:kernel": {"mutants": 20, "killed": killed}}
    assert len(record["survivors"]) == 20 - killed
    assert "a <= b" in report.selftest(record)


def test_the_shelf_names_a_check_for_each_fault_and_has_many_of_each():
    planted = [fault for fault in FAULTS.values() if fault.status != "pass"]
    counted = Counter(fault.check for fault in planted)
    assert len(planted) >= 60
    assert counted.keys() <= set(CHECKS)
    for check in set(CHECKS) - {"determinism"}:
        assert counted[check] >= 2, check
    assert sum(bool(fault.bug) for fault in planted) >= 60


def test_the_bound_is_that_of_scipy():
    for alarms, judged in ((0, 1000), (3, 1000), (1, 7)):
        assert bound_of(alarms, judged) == pytest.approx(bound(alarms, judged))
    assert bound(0, 1000) == pytest.approx(1 - 0.05 ** (1 / 1000))
    assert bound(0, 0) == bound(5, 5) == 1.0


def bound_of(alarms: int, judged: int) -> float:
    return stats.binomtest(alarms, judged, alternative="less").proportion_ci(0.95, "exact").high


def close(value: torch.Tensor) -> Close:
    return Close(value.double(), value.double().abs())


GOLDEN = torch.linspace(0.1, 1.0, 1000)


@pytest.mark.parametrize(
    ("rule", "actual", "passes"),
    [
        (rivals.five_percent, GOLDEN + torch.where(torch.arange(1000) < 49, 9.0, 0.0), True),
        (rivals.five_percent, GOLDEN + torch.where(torch.arange(1000) < 51, 9.0, 0.0), False),
        (rivals.cosine, 1.2 * GOLDEN, True),
        (rivals.cosine, -GOLDEN, False),
        (rivals.cosine, GOLDEN * torch.nan, False),
        (rivals.assert_close, GOLDEN * (1 + 1e-6), True),
        (rivals.assert_close, GOLDEN * (1 + 1e-4), False),
        (rivals.twice_low, GOLDEN + 1.9e-2, True),
        (rivals.twice_low, GOLDEN + 2.1e-2, False),
    ],
)
def test_rules_of_others_for_values(rule, actual, passes):
    assert rule(actual, close(GOLDEN), GOLDEN + 1e-2) is passes


def test_rules_of_others_miss_what_their_weak_points_are():
    rare = torch.full((2, 100_000), 1e-5)
    assert rivals.five_percent(torch.zeros_like(rare), close(rare), None)
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    kept = Filtered(weights.double(), weights > 0.25, weights > 0.25)
    assert rivals.count_kept(torch.tensor([[0.0, 0.6, 0.4, 0.0]]), kept, None)
    assert not rivals.count_kept(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), kept, None)
    drawn = Drawn(weights > 0, weights=weights.double(), required=weights > 0)
    ids = torch.arange(4).repeat_interleave(torch.tensor([580, 120, 200, 100]))[None]
    assert rivals.variation(ids, drawn, None)
    assert not rivals.variation(torch.zeros(1, 1000, dtype=torch.int64), drawn, None)


def test_rules_say_when_they_cannot_judge():
    words = rivals.others({"o": GOLDEN}, {"o": close(GOLDEN)}, {})
    assert words["assert_close defaults"] == words["cosine > 0.99"] == rivals.PASSES
    assert words["twice low precision"] == words["total variation <= 0.2"] == words["count of kept tokens"] == rivals.CANNOT
    assert set(rivals.others({"o": GOLDEN[:-1]}, {"o": close(GOLDEN)}, {}).values()) == {rivals.FAILS}
    assert set(rivals.others({}, {}, {}).values()) == {rivals.CANNOT}
