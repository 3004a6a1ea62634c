"""Baselines read by pytest-benchmark itself."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.store import baselines
from harness.store.baselines import Baseline, Cell, Start

H200 = {"name": "NVIDIA H200", "arch": "sm_90", "memory_mib": "143771"}


def kept(folder: Path, **families: dict[str, Cell]) -> Path:
    starts = {"first": Start("2026-12-01", "580.159", {"sglang": "0.5.16"}), "second": Start("2026-12-02", "580.159", {"sglang": "0.5.17"})}
    for family, cells in families.items():
        used = {name: starts[name] for name in starts if any(name in cell.runs for cell in cells.values())}
        baselines.save(baselines.place_of(folder, H200, family), Baseline(family, baselines.device_key(H200), used, cells))
    return folder


@pytest.fixture
def accepted(tmp_path):
    decode = Cell("graph", {"first": [90.0, 91.0, 92.0], "second": [93.0]}, 91.0, ["_fwd"])
    renorm = Cell("eager", {"second": [40.0, 42.0]}, 41.0, host=True)
    return kept(tmp_path / "accepted", mla={"mla_decode[p-h12]": decode}, sampling={"top_k_renorm[p-b1]": renorm})


def compare(storage: Path, *more: str) -> str:
    command = [str(Path(sys.executable).with_name("pytest-benchmark")), "--storage", f"file://{storage}", *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=storage.parent, check=False)
    assert done.returncode == 0, done.stderr
    assert "Failed to load" not in done.stdout + done.stderr
    return done.stdout


def test_pytest_benchmark_lists_and_compares_what_is_exported(typed, accepted, tmp_path):
    code, out, _ = typed("export", "--pytest-benchmark", "bench", "--baselines", str(accepted))
    assert code == 0
    assert [Path(line).name for line in out.split()] == ["0001_first.json", "0002_second.json"]
    storage = tmp_path / "bench"
    assert [Path(line).parent.name for line in compare(storage, "list").split()] == ["nvidia-h200-sm-90-143771mib"] * 2
    compare(storage, "compare", "--csv", str(tmp_path / "table.csv"), "--group-by", "fullname")
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    decode = next(row for row in rows if float(row["min"]) > 89e-6 and int(row["rounds"]) == 3)
    assert float(decode["median"]) == pytest.approx(91e-6)
    assert float(decode["min"]) == pytest.approx(90e-6)
    assert {row["name"] for row in rows} == {"mla_decode[p-h12]", "top_k_renorm[p-b1]"}
    assert sorted(int(row["rounds"]) for row in rows) == [1, 2, 3]


def test_fields_that_actions_read(typed, accepted, tmp_path):
    typed("export", "--pytest-benchmark", "bench", "--baselines", str(accepted))
    data = json.loads((tmp_path / "bench" / "nvidia-h200-sm-90-143771mib" / "0002_second.json").read_text())
    assert data["machine_info"]["device"] == H200
    assert (data["machine_info"]["driver"], data["machine_info"]["libraries"]) == ("580.159", {"sglang": "0.5.17"})
    decode, renorm = data["benchmarks"]
    assert (decode["group"], decode["fullname"], decode["extra_info"]["kernels"]) == ("mla_decode", "mla_decode[p-h12]", ["_fwd"])
    assert renorm["extra_info"] == {"mode": "eager", "kernels": [], "host_bound": True}
    assert renorm["stats"]["ops"] == pytest.approx(1 / 41e-6)
    assert renorm["stats"]["data"] == pytest.approx([40e-6, 42e-6])
    assert {"mean", "stddev", "rounds", "min", "max", "iterations"} <= renorm["stats"].keys()


def test_a_start_keeps_its_number(typed, accepted, tmp_path):
    typed("export", "--pytest-benchmark", "bench", "--baselines", str(accepted))
    kept(accepted, mla={"mla_decode[p-h12]": Cell("graph", {"second": [93.0]}, 91.0)})
    out = typed("export", "--pytest-benchmark", "bench", "--baselines", str(accepted))[1]
    assert [Path(line).name for line in out.split()] == ["0002_second.json"]


def test_what_cannot_be_exported_is_one_line(typed, accepted, tmp_path):
    code, _, err = typed("export", "--pytest-benchmark", "bench", "--baselines", "nowhere")
    assert (code, err.count("\n")) == (2, 1)
    assert "nowhere has no baselines of times" in err
    moved = accepted / "other-device"
    (accepted / baselines.folder_of(H200)).rename(moved)
    code, _, err = typed("export", "--pytest-benchmark", "bench", "--baselines", str(accepted))
    assert (code, err.count("\n")) == (2, 1)
    assert "is of another device (NVIDIA H200, sm_90, 143771) than its folder" in err
    (moved / "mla.json").write_text("{")
    assert "mla.json is no baseline" in typed("export", "--pytest-benchmark", "bench", "--baselines", str(accepted))[2]
    assert not (tmp_path / "bench").exists()
    (tmp_path / "file").write_text("")
    moved.joinpath("mla.json").unlink()
    assert (
        typed("export", "--pytest-benchmark", "file", "--baselines", str(kept(tmp_path / "more", mla={"c[p-a]": Cell("graph", {"first": [1.0]}, 1.0)})))[0] == 2
    )
    assert typed("export")[0] == 2
