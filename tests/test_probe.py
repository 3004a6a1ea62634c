"""Support maps: probed in processes of their own, kept as a baseline, compared, and refreshed as a ratchet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import cli
from harness.commands import probe
from harness.errors import UsageError
from harness.report import mapped
from harness.selection import Cell
from harness.store import support
from harness.store.results import Result

STATUSES = ["pass", "refused: gate", "crash: signal SIGABRT", "mismatch: numerics", "unsupported: declined"]
PLUGIN = """
import os
from harness.providers import implements


@implements("merge_state", library="torch", name="dies_by_threes", platforms={"cpu"}, gate=lambda case, arch: "no threes" if case.heads % 3 == 0 else None,
            kernels=lambda case, arch: ("merge_kernel",))
def dies(x):
    import torch

    if x.case.heads % 3 == 0:
        os.abort()
    if x.case.heads % 2 == 0:
        raise ValueError("no even head count")
    lse = torch.logaddexp(x.s_a, x.s_b)
    weights = [torch.exp(s - lse)[..., None] for s in (x.s_a, x.s_b)]
    return (weights[0] * x.v_a.float() + weights[1] * x.v_b.float()).to(x.v_a.dtype), lse
"""


class FakeSession:
    """Ends cells as `endings` says by head count, without a worker."""

    endings: dict[int, tuple[str, str]] = {}

    def __init__(self, machine: str, **_: Any) -> None:
        pass

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def hello(self) -> tuple[dict[str, str], dict[str, str]]:
        return {"name": "AMD Instinct MI300X", "arch": "gfx942"}, {"torch": "2"}

    def run_alone(self, cell: Cell, slot: int) -> Result:
        assert cell.case is not None
        status, reason = self.endings.get(cell.case.heads, ("pass", ""))
        return Result(cell.id, cell.op, cell.provider.name, cell.case.id, status, cell.platform, reason=reason, detail=f"{status} here")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeSession]:
    monkeypatch.setattr(probe, "Session", FakeSession)
    FakeSession.endings = {}
    return FakeSession


def ask(folder: Path, *more: str) -> Any:
    return CliRunner().invoke(cli, ["probe", "torch_eager.merge_state", "--axis", "heads=1..6", "--platform", "cpu", "--baselines", str(folder), *more])


def test_a_map_is_a_baseline_and_a_ratchet(fake: type[FakeSession], tmp_path: Path) -> None:
    fake.endings = {3: ("crash", "signal SIGABRT"), 4: ("refused", "ValueError")}
    first = ask(tmp_path)
    assert first.exit_code == 0
    assert "1..2, 5..6" in first.output
    assert "no baseline yet" in first.output
    assert not list(tmp_path.rglob("*.json"))
    assert ask(tmp_path, "--accept").exit_code == 0
    path = tmp_path / "amd-instinct-mi300x" / "support" / "torch_eager.merge_state.heads.json"
    kept = json.loads(path.read_text())
    assert kept["statuses"]["3"] == "crash: signal SIGABRT"
    assert ask(tmp_path).exit_code == 0

    fake.endings = {4: ("refused", "ValueError"), 5: ("crash", "signal SIGABRT")}  # 3 is better, 5 is worse
    changed = ask(tmp_path)
    assert changed.exit_code == 1
    assert "changed: 5: pass -> crash: signal SIGABRT" in changed.output
    assert json.loads(path.read_text()) == kept  # a comparison writes nothing
    refreshed = ask(tmp_path, "--refresh")
    assert refreshed.exit_code == 1
    after = json.loads(path.read_text())["statuses"]
    assert (after["3"], after["5"]) == ("pass", "pass")  # the gain is kept, the loss is not accepted
    assert ask(tmp_path).exit_code == 1
    assert ask(tmp_path, "--accept").exit_code == 0
    assert ask(tmp_path).exit_code == 0


def test_a_baseline_that_cannot_be_read_is_replaced_as_its_message_says(fake: type[FakeSession], tmp_path: Path) -> None:
    ask(tmp_path, "--accept")
    (path,) = tmp_path.rglob("*.json")
    whole = path.read_text()
    path.write_text(whole[:40])
    assert "--accept to replace it" in str(ask(tmp_path).exception)
    assert "--accept to replace it" in str(ask(tmp_path, "--refresh").exception)
    assert ask(tmp_path, "--accept").exit_code == 0
    assert path.read_text() == whole


def test_json_says_everything(fake: type[FakeSession], tmp_path: Path) -> None:
    fake.endings = {2: ("refused", "ValueError")}
    (report,) = json.loads(ask(tmp_path, "--json").stdout)
    assert [row["value"] for row in report["values"]] == list("123456")
    assert report["values"][1]["said"] == "refused: ValueError"
    assert report["device"]["arch"] == "gfx942"


def test_runs_of_values() -> None:
    assert mapped.runs(["1", "2", "3", "7"]) == "1..3, 7"
    assert mapped.runs(["bf16", "fp16"]) == "bf16, fp16"
    assert mapped.runs(["1,64", "2,64", "2,128", "4,128"]) == "1..2 at 64; 2, 4 at 128"


def test_a_library_stands_for_all_its_providers(fake: type[FakeSession], tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["probe", "aiter.mla_prefill", "--axis", "heads=8,12", "--platform", "cpu", "--baselines", str(tmp_path), "--json"])
    assert {report["provider"] for report in json.loads(done.stdout)} == {"aiter_varlen", "aiter_varlen_lse", "aiter_ps", "aiter_ps_repeat"}
    assert all(report["status"] == "unsupported" for report in json.loads(done.stdout))


def test_a_probe_in_which_no_value_ran_is_no_success(fake: type[FakeSession], tmp_path: Path) -> None:
    words = ["probe", "aiter.mla_decode", "--axis", "heads=8", "--platform", "cpu", "--baselines", str(tmp_path), "--accept"]
    absent = CliRunner().invoke(cli, words)
    assert absent.exit_code == 3
    assert absent.output.count("\n") == 1
    assert "no value of aiter.mla_decode ran (unsupported: " in absent.output
    fake.endings = dict.fromkeys(range(1, 7), ("unsupported", "declined"))
    declined = ask(tmp_path, "--accept")
    assert declined.exit_code == 3
    assert "nothing to keep as a baseline" in declined.output
    assert not list(tmp_path.rglob("*.json"))


def test_values_share_a_line_only_where_the_reason_is_the_same() -> None:
    said = {12: "12 heads cannot be repeated", 16: "16 heads need no remedy", 64: "64 heads need no remedy"}
    rows = [{"value": str(n), "status": "unsupported", "said": "unsupported: declined", "detail": text} for n, text in said.items()]
    report = {"provider": "p", "op": "o", "status": "probed", "axes": ["heads"], "values": rows, "device": {}, "platform": "cpu", "case": "c"}
    lines = mapped.in_words({**report, "changed": [], "written": "", "baseline": ""}).splitlines()
    assert [line.split("  ")[0] for line in lines if "unsupported" in line] == ["12", "16, 64"]
    assert any("12 heads cannot be repeated" in line for line in lines)
    assert any("these heads need no remedy" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["torch_eager", "--axis", "heads=1"], "PROVIDER.OP"),
        (["torch_eager.merge_stat", "--axis", "heads=1"], "merge_state"),
        (["torch_eagr.merge_state", "--axis", "heads=1"], "torch_eager"),
        (["torch_eager.merge_state", "--axis", "head=1"], "its axes are"),
        (["torch_eager.merge_state", "--axis", "heads=9..1"], "ranges"),
        (["torch_eager.merge_state", "--axis", "heads=1..100000"], "at most"),
        (["torch_eager.merge_state", "--axis", "heads=many"], "ranges"),
        (["torch_eager.merge_state", "--axis", "heads=1,2", "--axis", "heads=3"], "twice"),
        (["torch_eager.merge_state", "--axis", "heads=1..4096", "--axis", "tokens=1..4096", "--axis", "dim=1..4096"], "fewer values"),
        (["torch_eager.merge_state", "--axis", "dtype=fp7"], "bf16"),
        (["torch_eager.merge_state", "--axis", "heads=1", "--case", "t3"], "gives no"),
    ],
)
def test_a_mistake_is_one_line(fake: type[FakeSession], arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=r"\w") as caught:
        CliRunner().invoke(cli, ["probe", *arguments, "--platform", "cpu"], catch_exceptions=False, standalone_mode=False)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_value_has_its_own_process(tmp_path: Path) -> None:
    """With real workers: a value that aborts, one that refuses, those that pass; the gate does not keep it from being tried."""
    plugin = tmp_path / "plugin_dies.py"
    plugin.write_text(PLUGIN)
    done = CliRunner().invoke(
        cli,
        ["probe", "dies_by_threes.merge_state", "--axis", "heads=1..6", "--platform", "cpu", "--plugin", str(plugin), "--baselines", str(tmp_path), "--json"],
    )
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    assert "dies_by_threes.merge_state: 6 values" in done.stderr
    assert [row["said"] for row in report["values"]] == [
        "pass", "refused: ValueError", "crash: signal SIGABRT", "refused: ValueError", "pass", "crash: signal SIGABRT"
    ]  # fmt: skip
    assert [row["value"] for row in report["values"] if "gate" in row] == ["3", "6"]
    assert report["values"][0]["must_run"] == ["merge_kernel"]


def make(statuses: dict[str, str]) -> support.SupportMap:
    return support.SupportMap("merge_state", "torch_eager", ["heads"], "t3-h4", statuses, {"arch": "gfx942"})


maps = st.dictionaries(st.sampled_from("1234"), st.sampled_from(STATUSES))


@given(maps, maps)
def test_a_refresh_never_makes_a_value_worse(before: dict[str, str], now: dict[str, str]) -> None:
    old, new = make(before), make(now)
    found = support.changes(old, new)
    after = support.refreshed(old, new, found).statuses
    assert not any(change.worse for change in support.changes(old, make(after)))
    assert set(after) == set(before) | set(now)
    assert {change.value for change in found} <= set(before) & set(now)
    assert support.refreshed(make(after), make(after), []).statuses == after


@given(maps)
def test_a_map_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, statuses: dict[str, str]) -> None:
    folder = tmp_path_factory.mktemp("maps")
    path = support.place_of(folder, make(statuses))
    support.save(path, make(statuses))
    assert support.load(path) == make(statuses)


def test_a_file_that_is_no_map_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert support.load(path) is None
    path.write_text("{")
    with pytest.raises(UsageError, match="--accept"):
        support.load(path)
