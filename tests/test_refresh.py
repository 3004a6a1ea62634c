"""`kernel-parity refresh` from logs: what becomes a baseline, what needs a reason, and what is refused."""

from __future__ import annotations

import json

import msgspec
import pytest
from timed_logs import CELLS, H12, H16, MERGE, MERGE16, MI300, TOP, TOP20, log, result

from harness.providers import providers, registry
from harness.store import baselines
from harness.store.results import ResultLog


@pytest.fixture
def files(tmp_path):
    def read():
        return {path.name: path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file() and path.name != ".refresh.lock"}

    return read


def test_a_first_log_is_a_baseline_of_each_family_and_of_the_controls(refresh, kept, files, tmp_path):
    one = log(tmp_path / "x.jsonl")
    code, out, err = refresh("--results", one, "--dry-run")
    assert (code, err, kept()) == (0, "", {})
    assert "would write" in out
    code, out, _ = refresh("--results", one)
    found = kept()
    assert (code, list(found)) == (0, ["controls", "merging", "mla", "sampling"])
    assert found["mla"].cells[H12].runs == {"x": [95.0, 95.095, 94.9525]}
    assert found["mla"].cells[H12].kernels == ["_fwd_grouped_kernel_stage1"]
    assert found["mla"].starts["x"] == baselines.Start("2026-12-01", "580.159", {"sglang": "0.5.16", "torch": "2.11.0"})
    assert found["controls"].cells == {"control-copy": baselines.Cell("graph", {"x": [67.0, 67.067, 66.9665]}, 67.0)}
    assert "7 cells: 7 added" in out
    before = files()
    code, out, _ = refresh("--results", one)
    assert (code, files()) == (0, before)
    assert "nothing to write" in out


def test_a_throttled_run_is_left_out_and_the_others_are_taken(refresh, kept, tmp_path):
    row = result(H12, 95.0)
    row.timings[0].stop, row.timings[0].median = "throttled", 150.0
    code, out, _ = refresh("--results", log(tmp_path / "x.jsonl", row))
    assert code == 0, out
    assert kept()["mla"].cells[H12].runs == {"x": [95.095, 94.9525]}


def test_further_starts_are_pooled_oldest_first_and_only_when_asked(refresh, kept, tmp_path):
    logs = {start: log(tmp_path / f"{start}.jsonl", start=start, scale=scale) for start, scale in (("x", 1.0), ("y", 1.003), ("z", 0.998))}
    assert refresh("--results", logs["x"])[0] == 0
    code, out, _ = refresh("--results", logs["y"])
    assert (code, list(kept()["mla"].starts)) == (0, ["x"])
    assert "7 cells: 7 kept" in out
    code, out, _ = refresh("--append", "--results", logs["z"], "--results", logs["y"])
    assert code == 0
    assert out.index("machine start y") < out.index("machine start z")
    assert list(kept()["mla"].cells[H12].runs) == ["x", "y", "z"]
    assert list(kept()["controls"].cells["control-copy"].runs) == ["x", "y", "z"]
    code, _, _ = refresh("--append", *(word for one in logs.values() for word in ("--results", one)))
    assert (code, list(kept()["mla"].starts)) == (0, ["x", "y", "z"])


def test_what_is_slower_waits_for_a_reason_and_holds_nothing_else_up(refresh, kept, tmp_path):
    refresh("--results", log(tmp_path / "x.jsonl"))
    slower = log(tmp_path / "y.jsonl", result(H12, 130.0, start="y"), result(TOP, 300.0, start="y"), start="y")
    code, out, _ = refresh("--append", "--results", slower)
    assert code == 1
    line = next(line for line in out.splitlines() if line.startswith(H12))
    for word in ("refused", "95 us graph", "130 us graph", "+36.84 %", "slower"):
        assert word in line
    assert f"--accept '{H12}=REASON'   # slower" in out
    assert "-25.00 %" in next(line for line in out.splitlines() if line.startswith(TOP))
    assert list(kept()["mla"].cells[H12].runs) == ["x"]
    assert list(kept()["mla"].cells[H16].runs) == ["x", "y"]
    assert kept()["sampling"].cells[TOP].accepted == 300.0
    code, out, _ = refresh("--append", "--results", slower, "--accept", f"{H12}=SGLang 0.5.17 splits K = see its notes")
    assert code == 0
    assert kept()["mla"].cells[H12].runs == {"y": [130.0, 130.13, 129.935]}
    (record,) = kept()["mla"].accepted
    assert (record.what, record.reason, record.at) == ("slower", "SGLang 0.5.17 splits K = see its notes", "2026-12-02")
    assert list(kept()["mla"].cells[H16].runs) == ["x", "y"], "the same runs are not pooled twice"


def test_one_reason_may_speak_of_many_cells(refresh, kept, tmp_path):
    refresh("--results", log(tmp_path / "x.jsonl"))
    renamed = log(tmp_path / "y.jsonl", *(result(cell, CELLS[cell], start="y", kernel="_fwd_kernel_stage1") for cell in (H12, H16, TOP)), start="y")
    code, out, _ = refresh("--results", renamed, "--accept", "mla_decode[*=the kernel was rewritten")
    assert (code, out.count("# renamed")) == (1, 1)
    assert [record.cell for record in kept()["mla"].accepted] == [H12, H16]
    assert kept()["mla"].cells[H12].kernels == ["_fwd_kernel_stage1"]
    assert kept()["sampling"].cells[TOP].kernels == ["_fwd_grouped_kernel_stage1"]


def test_a_kernel_that_no_family_has_is_a_finding(refresh, kept, tmp_path):
    strange = log(tmp_path / "x.jsonl", result(H12, 95.0, kernel="void mystery::launch<float>(int)"))
    code, out, _ = refresh("--results", strange)
    assert code == 1
    assert f"--accept '{H12}=REASON'   # unclassified" in out
    assert "95 us graph (launch)" in out
    assert list(kept()["mla"].cells) == [H16]
    assert refresh("--results", strange, "--accept", f"{H12}=a library of our own")[0] == 0
    assert kept()["mla"].cells[H12].kernels == ["launch"]
    assert refresh("--results", strange)[0] == 0, "what was accepted is not asked again"


def test_what_ran_no_more_is_gone_with_a_reason_alone(refresh, kept, tmp_path):
    refresh("--results", log(tmp_path / "x.jsonl"))
    absent = result("top_k_renorm[sglang_triton]", status="absent", evidence="none")
    refused = result(MERGE, status="refused", reason="ValueError")
    with ResultLog(tmp_path / "y.jsonl") as file:
        for row in (absent, refused, result(H12, 95.0, start="y"), result(MERGE16, 25.0, start="y")):
            file.append(row)
    code, out, _ = refresh("--results", str(tmp_path / "y.jsonl"))
    assert code == 1
    gone = {line.split("'")[1].removesuffix("=REASON") for line in out.splitlines() if line.endswith("# gone")}
    assert gone == {MERGE, TOP, TOP20}, "a cell without a row was not to run"
    assert refresh("--results", str(tmp_path / "y.jsonl"), "--accept", "*=SGLang is no more")[0] == 0
    assert kept()["sampling"].cells == {}
    assert list(kept()["merging"].cells) == [MERGE16]
    assert list(kept()["mla"].cells) == [H12, H16]


def test_what_a_preset_leaves_out_is_not_gone_and_what_broke_off_is_no_time(refresh, kept, tmp_path):
    refresh("--results", log(tmp_path / "x.jsonl"))
    left_out = result("top_k_renorm[sglang_triton]", status="unsupported", evidence="none")
    stopped = result(MERGE, 10.0, start="y", runs=1, kernel="", status="refused", reason="ValueError")
    with ResultLog(tmp_path / "y.jsonl") as file:
        for row in (left_out, stopped, result(MERGE16, 25.0, start="y")):
            file.append(row)
    code, out, _ = refresh("--append", "--results", str(tmp_path / "y.jsonl"))
    assert (code, out.count("# gone")) == (1, 1)
    assert f"--accept '{MERGE}=REASON'   # gone" in out
    assert list(kept()["sampling"].cells) == [TOP20, TOP]


@pytest.mark.parametrize(
    ("only", "families", "count"),
    [
        ("mla", ["mla"], 2),
        ("mla_decode,merge_state", ["merging", "mla"], 4),
        (H12, ["mla"], 1),
        ("control-copy", ["controls"], 1),
        ("mla,controls", ["controls", "mla"], 3),
    ],
)
def test_only_what_is_named_is_refreshed(refresh, kept, tmp_path, only, families, count):
    wrong = result("sample[sglang_torch-b64-v163840]", status="mismatch", reason="support")
    code, _, _ = refresh("--results", log(tmp_path / "x.jsonl", wrong), "--only", only)
    assert (code, list(kept())) == (0, families)
    assert sum(len(one.cells) for one in kept().values()) == count


def _timings(row, **fields):
    for timing in row.timings:
        for name, value in fields.items():
            setattr(timing, name, value)
    return row


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (result(H12, status="mismatch", reason="numerics"), f"{H12} ended with mismatch; a baseline needs what is right"),
        (_timings(result(H12, 95.0), stop="throttled"), f"{H12} was timed on a throttled device"),
        (result(H12), f"{H12} passed and was not timed: the run was broken off"),
    ],
)
def test_nothing_is_refreshed_from_what_is_not_right_or_not_whole(refresh, tmp_path, row, says):
    code, out, _ = refresh("--results", log(tmp_path / "x.jsonl", row))
    assert code == 1
    assert out.startswith("nothing is refreshed:\n")
    assert says in out
    assert not (tmp_path / "kept").exists()


def test_nothing_is_refreshed_on_a_noisy_device_or_with_a_ledger_that_is_not_settled(typed, refresh, tmp_path):
    loud = log(tmp_path / "x.jsonl", *(result(cell, us, control=67.0 * (1 + place / 20)) for place, (cell, us) in enumerate(CELLS.items())))
    code, out, _ = refresh("--results", loud)
    assert (code, "the control copy varied by" in out) == (1, True)
    (tmp_path / "ledger.toml").write_text('[[entry]]\nop = "mla_decode"\nprovider = "sglang_triton"\nstatus = "crash"\nwhy = "a bug"\n')
    quiet = log(tmp_path / "y.jsonl")
    code, out, _ = typed("refresh", "--ledger", "ledger.toml", "--baselines", "kept", "--results", quiet)
    assert (code, "settle the ledger first" in out) == (1, True)


def test_a_run_of_two_devices_counts_each_as_a_start(refresh, kept, tmp_path):
    """A list that was shared among the devices of a host: some cells ran here, some there, some on both."""
    both = result(H12, 95.0)
    both.timings[2].start, both.timings[2].at = "y", "2026-12-02T00:00:00+00:00"
    code, _, _ = refresh("--append", "--results", log(tmp_path / "x.jsonl", both, result(H16, 90.0, start="y")))
    assert code == 0
    assert {cell: list(one.runs) for cell, one in kept()["mla"].cells.items()} == {H12: ["x", "y"], H16: ["y"]}


def test_runs_of_two_modes_count_in_the_last(refresh, kept, tmp_path):
    mixed = result(H12, 95.0)
    mixed.timings[0].mode = "graph"
    mixed.timings[1].mode = mixed.timings[2].mode = "eager"
    assert refresh("--results", log(tmp_path / "x.jsonl", mixed))[0] == 0
    assert kept()["mla"].cells[H12].mode == "eager"
    assert kept()["mla"].cells[H12].runs == {"x": [95.095, 94.9525]}


def test_every_cell_is_told_to_programs(refresh, tmp_path):
    refresh("--results", log(tmp_path / "x.jsonl"))
    code, out, _ = refresh("--append", "--json", "--results", log(tmp_path / "y.jsonl", result(H12, 130.0, start="y"), start="y"))
    told = json.loads(out)
    (start,) = told["starts"]
    changes = {change["cell"]: (change["what"], change["why"]) for change in start["changes"]}
    assert (code, start["start"], changes.pop(H12)) == (1, "y", ("refused", "slower"))
    assert set(changes.values()) == {("appended", "")}
    assert sorted(name.rpartition("/")[2] for name in told["files"]) == ["controls.json", "merging.json", "mla.json", "sampling.json"]


def _unsaid(row):
    return _timings(row, start="")


def test_a_log_that_does_not_say_its_start_is_told_it(refresh, kept, tmp_path):
    with ResultLog(tmp_path / "old.jsonl") as file:
        for cell, us in CELLS.items():
            file.append(_unsaid(result(cell, us)))
    code, _, err = refresh("--results", str(tmp_path / "old.jsonl"))
    assert (code, "name it with --start" in err, len(err.splitlines())) == (2, True, 1)
    assert refresh("--results", str(tmp_path / "old.jsonl"), "--start", "lease-1")[0] == 0
    assert list(kept()["mla"].starts) == ["lease-1"]


MINE = "mla_decode[mine-b32-h12-s4096-pg64-bf16]"


def test_rows_of_an_unknown_provider_are_taken_with_its_plugin_or_left_out(refresh, kept, tmp_path, monkeypatch):
    mine = log(tmp_path / "mine.jsonl", result(MINE, 95.0))
    assert refresh("--results", mine, "--only", "merging,controls")[0] == 0
    assert list(kept()) == ["controls", "merging"]
    monkeypatch.setattr(registry, "_providers", dict(providers()))
    (tmp_path / "mine.py").write_text(
        "from harness.providers import implements\n@implements('mla_decode', library='torch', name='mine', platforms={'cuda'})\ndef mine(x):\n    return None\n"
    )
    code, _, err = refresh("--results", mine, "--plugin", "mine.py")
    assert (code, err) == (0, "")
    assert MINE in kept()["mla"].cells


def test_rows_of_served_back_ends_need_no_plugin(refresh, kept, tmp_path):
    served = "decode_attention[served_triton-b8-h4-kv1-s4096-bf16]"
    assert refresh("--results", log(tmp_path / "x.jsonl", result(served, 95.0)))[0] == 0
    assert served in kept()["attention"].cells


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--results", "nowhere.jsonl"), "cannot read results nowhere.jsonl"),
        (("--results", "x.jsonl", "--only", "mlo"), "--only mlo: no family, op or cell; nearest: mla"),
        (("--results", "x.jsonl", "--only", "mla_decode[nobody-b1]"), "unknown provider"),
        (("--results", "x.jsonl", "--accept", H12), "give CELL=REASON"),
        (("--results", "x.jsonl", "--accept", f"{H12}= "), "give CELL=REASON"),
        (("--results", "x.jsonl", "--accept", f"{H12}=why not"), f"--accept {H12}: nothing of that name is slower, renamed, gone or unclassified here"),
        (("--results", "x.jsonl", "--results", "again.jsonl"), "two of the logs are of one machine start"),
        (("--results", "x.jsonl", "--only", "sparse"), "the logs have nothing of --only sparse"),
        (("--results", "x.jsonl", "--results", "y.jsonl", "--start", "a"), "--start names the machine start of one log"),
        (("--results", "x.jsonl", "--start", "a"), "was taken on the machine start x; leave --start out"),
        (("--results", "untimed.jsonl"), "untimed.jsonl has no times; write it with kernel-parity run --timing"),
        (("--results", "x.jsonl", "--results", "other.jsonl"), "the logs are of several devices"),
        (("--results", "both.jsonl"), "both.jsonl has times of two devices"),
        (("--results", "versions.jsonl"), "machine start x with two drivers or versions"),
        (("--results", "mine.jsonl"), "mine.jsonl has rows of the provider 'mine' of mla_decode, which nobody declares here: give --plugin"),
        (("--results", "mine.jsonl", "--only", "mla"), "has rows of the provider 'mine' of mla_decode"),
        (("--results", "own.jsonl"), "own.jsonl has rows of the op 'own_op', which nobody declares here: give --plugin"),
        (("--platform", "cpu"), "--timing needs a GPU"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(refresh, tmp_path, arguments, says):
    log(tmp_path / "x.jsonl")
    log(tmp_path / "again.jsonl")
    log(tmp_path / "y.jsonl", start="y")
    log(tmp_path / "both.jsonl", result(H12, 95.0, device=MI300))
    log(tmp_path / "versions.jsonl", result(H12, 95.0, versions={"sglang": "0.5.17"}))
    log(tmp_path / "mine.jsonl", result(MINE, 95.0))
    own = msgspec.structs.replace(result(H12, 95.0), cell="own_op[mine-b1]", op="own_op", provider="mine")
    for name, row in (("untimed.jsonl", result(H12)), ("other.jsonl", result(H12, 95.0, start="m", device=MI300)), ("own.jsonl", own)):
        with ResultLog(tmp_path / name) as file:
            file.append(row)
    code, out, err = refresh(*arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err
    assert not any((tmp_path / "kept").rglob("*.json"))
