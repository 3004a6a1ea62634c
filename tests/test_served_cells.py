"""SGLang's torch_native and triton back ends behind their layer, for real, on this CPU; and layers with a fault that must be caught."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.store.results import read

pytest.importorskip("sglang")

PLANTED = Path(__file__).parent / "served_faults.py"
DECODE, EXTEND, VERIFY = "b2-h4-kv2-s33-pg4-fp16-ragged", "b2-h4-kv2-q6-p10-pg4-fp16-ragged", "b2-h4-kv2-n4-p10-fp16-tree"
RIGHT = [
    *(f"decode_attention[served_{name}-{DECODE}]" for name in ("torch_native", "triton")),
    *(f"extend_attention[served_{name}-{EXTEND}]" for name in ("torch_native", "triton")),
    *(f"extend_attention[served_{name}-b2-h4-kv2-q6-fp16]" for name in ("torch_native", "triton")),
    "extend_attention[served_triton-b2-h4-kv2-q6-p20-fp16-w5-sinks]",
    f"verify_attention[served_triton-{VERIFY}]",
    "verify_attention[served_triton-b2-h4-kv2-n4-p10-fp16]",
    *(f"mla_decode[served_{name}-b2-h12-s9-fp16-ragged]" for name in ("torch_native", "triton")),
    "mla_decode[served_triton-b2-q4-h12-s9-fp16]",
    "mla_prefill[served_triton-b2-h12-n4-fp16-ragged]",
    *(f"mla_prefill_absorbed[served_{name}-b2-h12-n3-pre4-fp16-ragged]" for name in ("torch_native", "triton")),
]
KNOWN = {
    "decode_attention[served_triton-b2-h4-kv4-s33-fp16-w7]": "numerics",  # a key less than its window
    "decode_attention[served_torch_native-b2-h4-kv2-s33-fp16-cap30-uncapped]": "ignored-flag",
}
CAUGHT = {
    f"decode_attention[planted_unscaled-{DECODE}]": "numerics",
    f"decode_attention[planted_other_page-{DECODE}]": "numerics",
    "extend_attention[planted_swapped_heads-b2-h4-kv2-q6-fp16]": "numerics",
    f"decode_attention[planted_unwritten-{DECODE}]": "numerics",
    "mla_decode[planted_short-b2-h12-s9-fp16]": "numerics",
    "decode_attention[planted_unsunk-b2-h4-kv2-s9-fp16-sinks-unsunk]": "ignored-flag",
    f"verify_attention[planted_uncausal-{VERIFY}]": "numerics",
}
STRICT = "decode_attention[planted_undescribed-b2-h4-kv2-s9-fp16]"


def _run(folder, cells, *options):
    log = folder / "results.jsonl"
    asked = [word for cell in cells for word in ("--cell", cell)]
    command = [sys.executable, "-W", "ignore", "-m", "harness", "run", *options, *asked, "--results", str(log), "--workers", "1", "--platform", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}, timeout=300)
    return {result.cell: result for result in read(log)}, done


@pytest.mark.timeout(300)
def test_the_back_ends_are_right_behind_their_layer_and_say_what_they_chose(tmp_path):
    found, done = _run(tmp_path, [*RIGHT, *KNOWN])
    assert {name: found[name].status for name in RIGHT} == dict.fromkeys(RIGHT, "pass"), done.stdout
    assert {name: (found[name].status, found[name].reason) for name in KNOWN} == {name: ("mismatch", reason) for name, reason in KNOWN.items()}
    assert done.returncode == 0, done.stdout  # what is wrong is in the ledger
    chosen = found[RIGHT[1]].chosen
    assert (chosen["backend"], chosen["class"]) == ("triton", "TritonAttnBackend")
    assert "_fwd_grouped_kernel_stage1" in chosen["kernels"]
    assert chosen["kv splits"] == "8 of at most 8"
    assert found[RIGHT[0]].chosen["class"] == "TorchNativeAttnBackend"
    assert found[RIGHT[0]].evidence == "executed"
    assert found[RIGHT[1]].evidence == "interpreted"


@pytest.mark.timeout(300)
def test_faults_between_the_runner_and_the_kernel_are_caught(tmp_path):
    found, done = _run(tmp_path, [*CAUGHT, STRICT], "--ledger", "none", "--plugin", str(PLANTED))
    assert {name: (found[name].status, found[name].reason) for name in CAUGHT} == {name: ("mismatch", reason) for name, reason in CAUGHT.items()}, done.stderr
    assert done.returncode == 1
    strict = found[STRICT]
    assert (strict.status, strict.reason) == ("crash", "Undescribed")
    assert strict.detail.splitlines()[0].endswith(
        "SGLang reads model_runner.a_name_of_next_year, which is not described; add it in harness/served/attention/configuring.py"
    )


@pytest.mark.timeout(300)
def test_the_command_runs_what_a_rank_of_kimi_k3_serves_and_says_what_was_chosen(tmp_path):
    command = [sys.executable, "-m", "harness", "served", "--model", "kimi-k3", "--tp", "8", "--mode", "decode", "--context", "16", "--platform", "cpu"]
    done = subprocess.run([*command, "--target", "gfx950", "--json", "--results", str(tmp_path / "r.jsonl")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(route["target"], route["backend"], route["heads"]) for route in found["routes"]] == [("gfx950", "triton", 12)]
    cells = {line["backend"]: line for line in found["cells"]}
    assert {name: line["status"] for name, line in cells.items() if line["here"]} == {"torch_native": "pass", "triton": "pass"}
    assert cells["triton"]["chosen"]["kernels"] == "_fwd_grouped_kernel_stage1, _fwd_kernel_stage2"
    assert cells["triton"]["us"] == 0
    assert "nothing is timed" in found["note"]
    assert sorted(result.provider for result in read(tmp_path / "r.jsonl") if result.case and result.status == "pass") == [
        "served_torch_native",
        "served_triton",
    ]
