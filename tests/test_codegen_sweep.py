"""Codegen: planted kernels, time-outs and identical binaries, compiled for targets that are not here; the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from codegen_rows import CELL, GFX942, PLANTED, TARGETS, kinds

from harness.commands.codegen import compile_cells
from harness.errors import HarnessError, UsageError
from harness.machine.builds import children
from harness.offline.codegen import baseline as base
from harness.offline.codegen import sweep as sweeping
from harness.offline.codegen.cells import find, load_cells
from harness.offline.codegen.rows import Row
from harness.offline.codegen.rules import of_row
from harness.offline.codegen.sweep import Sweep, compiled
from harness.offline.sources import find_source
from harness.plugins import load_plugins
from harness.selection import DEFAULT_CASES

# ---- compiled ----


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> str:
    """A library without kernels, which is quick to import: the planted ones need none."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "sglang").mkdir()
    (folder / "sglang" / "__init__.py").write_text("")
    return str(folder)


def planted(library: str, *names: str, **facts) -> Sweep:
    load_plugins([PLANTED])
    cells = [find(f"merge_state[planted_{name}-t1-h1-bf16]") for name in names]
    return Sweep(find_source(library), [GFX942], cells, plugins=(PLANTED,), workers=1, **facts)


def swept(library: str, *names: str, **facts) -> dict[str, Row]:
    found = compiled(planted(library, *names, keep=False, **facts))
    return {row.cell.partition("planted_")[2].partition("-")[0]: row for row in found}


def test_planted_kernels_are_caught(empty):
    made = swept(empty, "spill", "no_matrix", "over_limit", "fallback", "tuned", "broken", "refused")
    assert {name: kinds(of_row(row, GFX942)) for name, row in made.items()} == {
        "spill": ["spill"],
        "no_matrix": ["no-matrix"],
        "over_limit": ["over-limit"],
        "fallback": ["over-limit"],
        "tuned": [],
        "broken": ["build-failed"],
        "refused": ["refused"],
    }
    assert [kernel.shared for kernel in made["fallback"].kernels] == [131072, 16384], "the library's own fallback runs"
    assert made["tuned"].kernels[0].tried == 3, "the search ends at the first configuration that fits"
    assert all(kernel.arch == "gfx942" for row in made.values() for kernel in row.kernels if not kernel.error)
    assert all(row.evidence == "compiled" for row in made.values())


def test_a_cell_that_does_not_return_or_dies_leaves_the_others_alone(empty):
    made = swept(empty, "endless", "deadly", limit=6.0)
    assert {name: row.status for name, row in made.items()} == {"endless": "timeout", "deadly": "crash"}


def test_whoever_stops_reading_leaves_no_process(empty):
    made = compiled(planted(empty, "refused", "endless", keep=False))
    assert next(made).status == "refused"
    before = children(os.getpid())
    made.close()
    assert len(before - children(os.getpid())) == 1


def test_binaries_are_the_same_in_other_processes_and_another_target_is_another_binary(monkeypatch):
    pytest.importorskip("sglang")
    cells = [find(name) for name in ("merge_state[sglang_triton-t8-h12-bf16]", "decode_attention[sglang_triton-b2-h12-kv1-s128-bf16]")]
    digests = []
    for seed, targets in (("1", [GFX942, TARGETS["sm_90"]]), ("2", [GFX942])):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        made = compiled(Sweep(find_source("sglang"), targets, cells, keep=False, workers=len(targets)))
        digests.append({(row.target, row.cell, kernel.name, kernel.arch): kernel.digest for row in made for kernel in row.kernels})
    assert digests[1].items() < digests[0].items()
    assert len(set(digests[0].values())) == len(digests[0]) == 6
    assert all(target == arch for target, _, _, arch in digests[0])


def test_a_kept_row_needs_no_process(empty, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path))
    made = planted(empty, "no_matrix")
    first = list(compiled(made))
    monkeypatch.setattr(sweeping.subprocess, "Popen", None)
    assert list(compiled(made)) == first
    with pytest.raises(TypeError):
        list(compiled(replace(made, keep=False)))


def test_a_kept_row_of_another_cell_is_not_taken(empty, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path))
    made = planted(empty, "no_matrix", "refused")
    first = list(compiled(made))
    one, other = (tmp_path / "codegen" / "rows").rglob("*.json")
    one.write_bytes(other.read_bytes())
    assert sorted(compiled(made), key=str)[0].cell == sorted(first, key=str)[0].cell
    assert {row.cell for row in compiled(made)} == {row.cell for row in first}


def test_settings_of_the_compiler_in_the_environment_change_nothing(empty, monkeypatch):
    before = swept(empty, "no_matrix")["no_matrix"].kernels[0].digest
    for name in ("DISABLE_LLVM_OPT", "AMDGCN_SCALARIZE_PACKED_FOPS", "TRITON_DEFAULT_FP_FUSION"):
        monkeypatch.setenv(name, "1" if name != "TRITON_DEFAULT_FP_FUSION" else "0")
    assert swept(empty, "no_matrix")["no_matrix"].kernels[0].digest == before


def test_a_library_in_the_folder_one_stands_in_is_not_taken_for_the_one_asked_for(empty, monkeypatch, tmp_path):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise ImportError('another one')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # and it may be found before the one that is named
    assert swept(empty, "refused")["refused"].status == "refused"


def test_a_disk_that_is_full_is_not_the_compilers_fault(empty, monkeypatch, tmp_path):
    monkeypatch.setattr(sweeping, "triton_cache", lambda: Path("/proc/none"))
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path))
    with pytest.raises(HarnessError, match="KERNEL_PARITY_CACHE"):
        list(compiled(planted(empty, "no_matrix")))


def test_a_cache_that_takes_nothing_is_one_line(empty, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="give another folder in KERNEL_PARITY_CACHE, or keep nothing with --fresh"):
        list(compiled(planted(empty, "no_matrix")))


def test_the_worker_goes_with_a_killed_sweep(empty):
    cell = "merge_state[planted_endless-t1-h1-bf16]"
    options = ["--target", "gfx942", "--sglang", empty, "--plugin", PLANTED, "--cell", cell, "--baselines", "none", "--fresh"]
    with subprocess.Popen([sys.executable, "-m", "harness", "codegen", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not (workers := children(process.pid)) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.0)  # past its first instructions
        process.send_signal(signal.SIGKILL)
    assert workers
    while any(_runs(pid) for pid in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in workers)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


# ---- the command ----

OPTIONS: dict = {
    "targets": ("gfx942",),
    "sglang": "sglang",
    "preset": "nightly",
    "ops": (),
    "cells": (),
    "kernels": (),
    "rows": False,
    "cases_dir": None,
    "ledger": "none",
    "baselines": "none",
    "refresh": False,
    "accept": (),
    "timeout": 60.0,
    "workers": 1,
    "fresh": False,
    "plugins": (),
    "as_json": False,
}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"targets": ("gfx90a",)}, "unknown target"),
        ({"accept": ("mla_decode[x]=why",)}, "goes with --refresh"),
        ({"accept": ("mla_decode[x]",), "refresh": True}, "CELL=REASON"),
        ({"cells": ("mla_decode[nobody-b2]",)}, "gives no|no Triton provider"),
        ({"ops": ("nothing",)}, "unknown op"),
        ({"sglang": "no_such_package"}, "neither installed here nor a path"),
        ({"sglang": "click"}, "is click: give sglang"),
        ({"cells": (CELL.format(12),), "ops": ("mla_decode",)}, "give one of the two"),
        ({"cells": (CELL.format(12),), "refresh": True, "accept": ("x[y]=why",), "baselines": "b"}, "no such cell"),
        ({"cells": (CELL.format(12),), "refresh": True}, "give their folder, not none"),
        ({"timeout": float("nan")}, "no number of seconds"),
    ],
)
def test_usage_errors_are_one_line(options, said, monkeypatch):
    monkeypatch.setattr(sweeping.subprocess, "Popen", None)  # nothing is compiled first
    with pytest.raises(UsageError, match=said):
        compile_cells(**{**OPTIONS, **options})


def test_the_ratchet_from_the_command_line(empty, monkeypatch, tmp_path, capsys):
    """A planted kernel is written into the first baseline; the baseline then improved by hand is not made worse again, except with a reason."""
    monkeypatch.setenv("KERNEL_PARITY_CACHE", str(tmp_path / "cache"))
    cell = "merge_state[planted_no_matrix-t1-h1-bf16]"
    options = {**OPTIONS, "sglang": empty, "cells": (cell,), "plugins": (PLANTED,), "baselines": str(tmp_path), "as_json": True}
    assert compile_cells(**{**options, "refresh": True}) == 1, "the finding itself is in no ledger"
    told = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in told["findings"]] == ["no-matrix"]
    assert told["rows"][0]["evidence"] == "compiled"
    assert told["changes"] == []
    path = base.path_of(tmp_path, "gfx942", "3.7.1")
    better = path.read_text().replace('"code":', '"matrix":{"v_mfma_":4},"code":')
    path.write_text(better)
    for accept, verdicts in (((), ["worse"]), ((f"{cell}=a reason",), [])):
        compile_cells(**{**options, "refresh": True, "accept": accept})
        assert [change["verdict"] for change in json.loads(capsys.readouterr().out)["changes"]] == verdicts
    assert json.loads(path.read_text())["accepted"] == {cell: "a reason"}


def test_a_target_that_triton_does_not_know_is_one_line(empty):
    made_up = replace(TARGETS["gfx950"], id="gfx951", arch="gfx951", gcn="gfx951:sramecc+")
    with pytest.raises(UsageError, match=r"triton .* does not know gfx951"):
        list(compiled(Sweep(find_source(empty), [made_up], load_cells(DEFAULT_CASES / "codegen" / "pr.txt", TARGETS)[:1], keep=False)))


def test_a_library_that_does_not_import_is_one_line(tmp_path):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("import a_package_that_is_not_there\n")
    done = subprocess.run(["kernel-parity", "codegen", "--target", "gfx942", "--op", "merge_state", "--sglang", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "a_package_that_is_not_there" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
