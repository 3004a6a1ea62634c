"""The gate, whole, on a described GPU: each rung of the ladder, its outputs, and what it survives."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import gated
import pytest
from gated import CASES, FACTS, OPTIONS, World

from harness.store import baselines

TESTS = Path(__file__).resolve().parent
FA2 = "void pytorch_flash::flash_fwd_kernel<T>(P)"
Q7, Q3, P3 = "merge_state[quick-t7-h12-d16-fp32]", "merge_state[quick-t3-h8-d16-fp32]", "merge_state[plain-t3-h8-d16-fp32]"


@pytest.fixture
def gate(typed, tmp_path, monkeypatch):
    """Types `gate` on a world: (exit code, stdout, stderr, speed verdicts by cell). The baselines are those of an undisturbed world."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    folder = gated.cases(tmp_path)
    gated.accept(tmp_path / "baselines", World())

    def run(*more: str, baselines: str = "baselines", **told):
        with pytest.MonkeyPatch.context() as patch:
            world = World(**told)
            world.install(patch)
            (tmp_path / baselines).mkdir(exist_ok=True)
            code, out, err = typed(*OPTIONS, "--cases", str(folder), "--baselines", str(tmp_path / baselines), "--results", str(tmp_path / "r.jsonl"), *more)
        words = {}
        if "--json" in more:
            lines = [json.loads(line) for line in out.splitlines()]
            words = {line["cell"]: line["speed"] for line in lines if line.get("speed")}
        run.world = world
        return code, out, err, words

    return run


def test_a_night_without_a_change_is_green_and_sees_what_it_does_to_itself(gate):
    code, out, err, _ = gate(night=5)
    assert code == 0, out + err
    assert "power: a slow provider forced, seen as fallback in 3 of 3 (plain, plain, plain)" in out
    assert "power: a delay on the device, seen as slow in 3 of 3" in out
    assert "speed and kernels: 18 same; findings 0" in out
    tasks = [task for _, task in gate.world.asked]
    assert tasks.count("graph") == 18 + 3 * 6  # one run, and the trials


def test_every_rung_at_once(gate):
    t12 = [f"merge_state[quick-t12-h{heads}-d16-fp32]" for heads in (8, 12, 16)]
    told = {
        "factor": {Q7: 1.03, t12[0]: 0.9, t12[1]: 1.05},
        "kernels": {Q3: [gated.TRITON], t12[1]: [FA2], t12[2]: [FA2], "merge_state[quick-t3-h16-d16-fp32]": ["quick_attention"]},
        "wrong": [P3],
    }
    code, out, _, words = gate("--json", night=7, **told)
    assert code == 1
    assert {name: one["word"] for name, one in words.items() if one["word"] != "same"} == {
        Q3: "fallback",
        Q7: "slow",
        t12[0]: "fast",
        t12[1]: "fallback",
        t12[2]: "rerouted",
        "merge_state[quick-t3-h16-d16-fp32]": "unclassified",
    }
    assert P3 not in words
    assert words[Q3]["identity"]["then"] == ["FlashAttnFwdSm90"]
    assert words[Q3]["identity"]["now"] == ["merge_state_kernel"]
    assert words[Q7]["ratio"] == pytest.approx(1.03, abs=2e-3)
    assert 1.0075 <= words[Q7]["bound"] < 1.03
    assert "padheads: right" in words[Q7]["remedy"]
    reruns = [cell for cell, task in gate.world.asked if task == "graph" and cell in (Q7, t12[0], "merge_state[quick-t3-h12-d16-fp32]")]
    assert [reruns.count(cell) for cell in (Q7, t12[0])] == [3, 1]
    line = next(json.loads(line) for line in out.splitlines() if json.loads(line).get("cell") == P3)
    assert (line["status"], line["verdict"], line["speed"]) == ("mismatch", "finding", None)


def test_without_a_baseline_cells_are_new_and_a_step_between_head_counts_is_found(gate):
    code, out, _, _ = gate(baselines="none", factor={Q7: 2.5})
    assert code == 1
    assert "1 cliff, 17 new; findings 1" in out
    assert f"{Q7}: cliff, heads 12 takes 2.50 times what heads 16 takes with the pad (10" in out
    assert "remedy: padheads: right, " in out
    assert "seen as slow in 3 of 3" in out
    assert gate(baselines="none")[0] == 0


def test_a_fallback_at_twelve_heads_is_named_without_a_baseline_with_what_its_neighbour_runs(gate):
    code, _, _, words = gate("--json", baselines="none", factor={Q7: 3.0}, kernels={Q7: [gated.TRITON]})
    assert code == 1
    (found,) = (one for one in words.values() if one["word"] != "new")
    assert (found["cell"], found["word"]) == (Q7, "cliff")
    assert found["why"].endswith(", which runs FlashAttnFwdSm90")
    assert found["identity"]["now"] == ["merge_state_kernel"]
    assert "padheads: right" in found["remedy"]


def test_every_cell_on_a_fast_path_is_seen_when_it_is_forced_off_it(gate):
    code, out, _, _ = gate("--power", "9")
    assert code == 0
    assert "seen as fallback in 9 of 9" in out
    assert "seen as slow in 9 of 9" in out


def test_a_generic_provider_that_is_as_fast_is_not_forced_and_a_cell_of_two_speeds_not_delayed(gate, tmp_path):
    """Neither would be a fallback, or slow, by the gate's own rules."""
    (path,) = (tmp_path / "baselines").rglob("merging.json")
    accepted = json.loads(path.read_text())
    restless = accepted["cells"][Q7]["runs"]
    restless |= {start: [us * (1.1 if place else 1.0) for place, us in enumerate(runs)] for start, runs in restless.items()}
    path.write_text(json.dumps(accepted))
    code, out, _, _ = gate("--power", "9", factor={P3: 0.1})
    assert code == 0, out
    assert "seen as fallback in 8 of 8" in out
    assert re.search(r"seen as slow in (\d) of \1 ", out)
    times = {name: gate.world.asked.count((name, "graph")) for name in (Q7, Q3)}
    assert times == {Q7: 1, Q3: 4}  # the other is delayed in three more runs


def test_when_nothing_is_right_nothing_is_timed_and_nothing_tried(gate):
    code, out, _, _ = gate(wrong=[f"merge_state[{name}-{case}]" for name in gated.LEVELS for case in CASES])
    assert code == 1
    assert "nothing was right and timed" in out
    assert out.count("not tried: no cell here shows it") == 2


def test_on_a_device_with_baselines_the_rest_is_timed_when_asked(gate, tmp_path):
    gated.accept(tmp_path / "some", World(), names=("quick",))
    code, out, _, _ = gate(baselines="some")
    assert code == 0
    assert "9 same; findings 0" in out
    assert "9 cells without a baseline: right, not timed (--time-all)" in out
    code, out, _, _ = gate("--time-all", baselines="some")
    assert code == 0
    assert "9 new, 9 same; findings 0" in out
    assert "not timed" not in out


def test_what_the_baseline_has_is_timed_though_nobody_else_waits_for_it(gate, monkeypatch):
    monkeypatch.setattr("harness.selection.awaited", lambda provider, case, named=False: False)
    code, out, err, _ = gate()
    assert code == 0, out + err
    assert "18 same; findings 0" in out


def test_a_cell_with_a_baseline_is_held_against_that_and_not_against_a_neighbour_that_became_faster(gate):
    faster = {f"merge_state[quick-t7-h{heads}-d16-fp32]": 0.8 for heads in (16,)}
    code, _, _, words = gate("--json", factor=faster)
    assert code == 0
    assert [name for name, one in words.items() if one["word"] == "fast"] == list(faster)


def test_a_device_that_is_slower_as_a_whole_is_no_finding(gate):
    code, out, _, _ = gate(shift=0.02)
    assert code == 0
    assert "the device moved, or its clock: all times, those of the controls too, by +2.00 %" in out


def test_a_cell_that_no_longer_runs_is_gone_and_one_by_plain_calls_is_not_compared(gate):
    code, _, _, words = gate("--json", eager=[Q7])
    assert words[Q7]["word"] == "ambiguous"
    assert "timed by eager now, by graph in the baseline" in words[Q7]["why"]
    assert code == 0
    code, _, _, words = gate("--json", lost=["quick"])
    assert code == 1
    assert {one["word"] for name, one in words.items() if "quick" in name} == {"gone"}
    assert words[Q7]["why"].startswith("unsupported: ")


def test_a_gate_that_does_not_see_its_own_delay_is_red(gate):
    code, out, _, _ = gate(deaf=True)
    assert code == 1
    assert "seen as slow in 0 of 3" in out
    assert out.count("this gate is blind") == 3
    assert "seen as fallback in 3 of 3" in out


def test_the_pages(gate, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    (tmp_path / "step.md").write_text("before\n")
    code, _, _, _ = gate("--summary", "s.md", "--junitxml", "j.xml", factor={Q7: 1.2}, wrong=[P3])
    assert code == 1
    page = (tmp_path / "s.md").read_text()
    assert page.startswith("## kernel-parity gate: red\n")
    assert page.index(P3) < page.index(Q7) < page.index("### Power check")
    row = next(line for line in page.splitlines() if line.startswith(f"| {Q7}"))
    assert row.count("FlashAttnFwdSm90") == 2
    assert "padheads: right" in row
    assert (tmp_path / "step.md").read_text() == "before\n" + page
    suite = ET.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(18 + 6), "2", "0")
    failed = {case.get("name"): case.find("failure").get("type") for case in suite if case.find("failure") is not None}
    assert failed == {Q7: "slow", P3: "mismatch"}


@pytest.mark.parametrize(
    ("more", "page", "words"),
    [
        (("--results", "r", "--summary", "./r"), "", "--results and --summary are both r"),
        (("--results", "r", "--summary", "s", "--junitxml", "s"), "", "--summary and --junitxml are both s"),
        (("--results", "r"), "/nowhere/step.md", "cannot write $GITHUB_STEP_SUMMARY (/nowhere/step.md)"),
        (("--results", "r", "--seed", str(2**70)), "", "Invalid value for '--seed'"),
    ],
)
def test_outputs_that_cannot_be_are_said_before_anything_runs(typed, monkeypatch, more, page, words):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", page)
    Path("r").write_text("what was there\n")
    code, out, err = typed("gate", "--platform", "cpu", "--op", "merge_state", "--provider", "torch_eager", *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert Path("r").read_text() == "what was there\n"


def test_an_expired_entry_of_the_ledger_is_red(gate, tmp_path):
    (tmp_path / "l.toml").write_text('[[entry]]\nop = "greedy"\nprovider = "x"\nstatus = "crash"\nwhy = "known"\nexpires = "2020-01-01"\n')
    code, out, _, _ = gate("--ledger", str(tmp_path / "l.toml"))
    assert code == 1
    assert "expired: " in out


# ---- what it is given ----


def _foreign(text: str) -> str:
    return text.replace('"Described"', '"Another"')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text[: len(text) // 2], "is no baseline"),
        (_foreign, "is of another device"),
        (lambda text: "\x00" * 50, "is no baseline"),
        (lambda text: "", "is no baseline"),
    ],
)
@pytest.mark.parametrize("family", ["merging", "controls"])
def test_a_baseline_that_is_none_is_one_line_before_anything_runs(gate, tmp_path, spoil, words, family):
    path = baselines.place_of(tmp_path / "baselines", FACTS, family)
    path.write_text(spoil(path.read_text()))
    (tmp_path / "r.jsonl").write_text("what was there\n")
    code, out, err, _ = gate()
    assert (code, out, gate.world.asked) == (2, "", [])
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert (tmp_path / "r.jsonl").read_text() == "what was there\n"


def test_an_unreadable_baseline_and_no_folder_are_one_line(gate, tmp_path, typed, monkeypatch):
    path = baselines.place_of(tmp_path / "baselines", FACTS, "merging")
    path.unlink()
    path.mkdir()
    code, _, err, _ = gate()
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "cannot read the baseline" in err
    code, _, err, _ = gate("--baselines", str(tmp_path / "nowhere"))
    assert (code, "is no folder" in err) == (2, True)
    monkeypatch.setenv("KERNEL_PARITY_BASELINES", str(tmp_path / "nowhere"))
    code, _, err = typed("gate", "--platform", "cpu", "--results", str(tmp_path / "x.jsonl"), "--op", "merge_state", "--provider", "torch_eager")
    assert code == 0, err  # a CPU has none
    code, _, err, _ = gate("--baselines", "")
    assert (code, "$KERNEL_PARITY_BASELINES" in err) == (2, True)
    code, _, err, _ = gate("--summary", str(tmp_path / "cases" / "presets" / "smoke" / "merge_state.txt" / "s.md"))
    assert (code, err.startswith("kernel-parity: cannot write ")) == (2, True)


def test_on_a_cpu_parity_and_the_ledger_are_judged(typed):
    code, out, err = typed("gate", "--platform", "cpu", "--op", "merge_state", "--provider", "torch_eager", "--junitxml", "j.xml")
    assert code == 0, err
    assert out.splitlines()[-1] == "no GPU here: parity and the ledger were judged, speed and kernels were not"
    assert ET.parse("j.xml").getroot().get("failures") == "0"


def test_a_full_disk_is_one_line(gate):
    code, out, err, _ = gate("--results", "/dev/full")
    assert (code, out) == (3, "")
    assert err.strip().splitlines()[-1] == "kernel-parity: cannot append to /dev/full: No space left on device; the results so far are kept"
