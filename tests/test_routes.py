"""Routes on SGLang sources: what HIP sends where in 0.5.23, and what changed since 0.5.16."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from surveys import CASES, FACTS, GATE, MODELS, ROOT, ROUTERS, TARGETS, dispatch, one, rows, source, surveyed

from harness.contracts.models import Model
from harness.errors import UsageError
from harness.offline.routes import showing
from harness.offline.routes.dispatch import Outcome
from harness.offline.routes.facts import load_facts
from harness.offline.routes.heads import HeadGate
from harness.offline.routes.judge import Judge, Route, _all_fast
from harness.offline.routes.known import hold
from harness.offline.routes.linking import Undescribed
from harness.offline.routes.survey import compare, survey
from harness.offline.routes.tables import Router, tree_router


@pytest.mark.parametrize("target", ["gfx950", "gfx942"])
@pytest.mark.parametrize(
    ("model", "triton", "aiter"),
    [("kimi-k3", (1, 2, 4, 8, 16), ()), ("kimi-k2", (1, 2, 8, 16), (4,)), ("deepseek-v3", (2, 4, 16), (1, 8))],
)
def test_hip_in_0_5_23(target: str, model: str, triton: tuple[int, ...], aiter: tuple[int, ...]) -> None:
    found = rows(surveyed("0.5.23", "gfx950", "gfx942", "sm_90", "sm_100"), target, model)
    assert {tp: row.backend for tp, row in found.items()} == {**dict.fromkeys(triton, "triton"), **dict.fromkeys(aiter, "aiter")}
    for tp in triton:
        row = found[tp]
        assert row.fast is False
        (gate,) = row.gates
        line = (source("0.5.23").root / gate.file).read_text().splitlines()[gate.line - 1]
        assert gate.condition == GATE
        assert GATE in line
        assert (gate.was, gate.turns) == (False, True)
    assert all(found[tp].fast and not found[tp].gates for tp in aiter)


def test_what_brings_kimi_k3_back() -> None:
    found = rows(surveyed("0.5.23", "gfx950", "gfx942", "sm_90", "sm_100"), "gfx950", "kimi-k3")
    remedies = {part["kind"]: part for part in found[8].remedies}
    assert (remedies["pad"]["heads"], remedies["pad"]["backend"]) == (16, "aiter")
    assert (remedies["flag"]["accepted"], remedies["flag"]["padded"], remedies["flag"]["mode"]) == (True, 16, "zero")
    assert "12 heads padded to 16: aiter (33 % more to compute)" in found[8].remedy
    assert "tp" not in remedies
    refused = {part["kind"]: part for part in found[4].remedies}["flag"]
    assert refused["accepted"] is False
    assert "kv_heads not verified" in found[8].assumed


def test_other_tps_are_named() -> None:
    found = rows(surveyed("0.5.23", "gfx950", "gfx942", "sm_90", "sm_100"), "gfx950", "deepseek-v3")
    assert next(part["tp"] for part in found[4].remedies if part["kind"] == "tp") == [1, 8]


def test_every_model_off_the_fast_path_in_0_5_23() -> None:
    found = surveyed("0.5.23", "gfx950", "gfx942", "sm_90", "sm_100")
    off = {target: {row.model for row in found.off() if row.target == target} for target in TARGETS}
    hip = {"kimi-k3", "kimi-k2", "kimi-linear-48b", "deepseek-v3", "glm-4.7-flash", "longcat-flash", "minimax-m3"}
    assert off == {"gfx950": hip, "gfx942": hip, "sm_90": set(), "sm_100": {"kimi-linear-48b", "glm-4.7-flash"}}
    assert not [row for row in found.routes if row.stopped or not row.served]
    assert not hold(found.routes, FACTS.known, "0.5.23")


@pytest.mark.parametrize("version", ["0.5.10", "0.5.16", "0.5.18"])
def test_older_versions_are_known_throughout(version: str) -> None:
    found = surveyed(version, "gfx950", "sm_90")
    assert not [row.stopped for row in found.routes if row.stopped]
    assert not hold(found.routes, FACTS.known, version)
    assert {place.what for place in found.places} >= {"MLA or not", "default backend", "sampling backend", "AITER head gate"}
    assert not [row for _, row in found.heads if row.text.startswith("unknown")]
    assert not [row for row in found.sampling if row.stopped]


def test_the_loader_of_a_version_names_the_architecture() -> None:
    assert rows(surveyed("0.5.10", "gfx950", "sm_90"), "gfx950", "deepseek-v3.2")[8].backend == "nsa"


def test_what_changed_since_0_5_16() -> None:
    changes = compare(surveyed("0.5.16", "gfx950", "sm_90"), surveyed("0.5.23", "gfx950", "sm_90"))
    found = {(row["what"], row["where"]): (row["was"], row["now"]) for row in changes}
    for tp in (1, 2, 4, 8, 16):
        assert found["route of kimi-k3", f"gfx950 TP {tp}"] == ("not in this version", "triton")
    assert found["aiter decode, bf16 KV", "gfx950 12 heads"] == ("refused at start-up", "padded to 16 with zeros")
    assert found["aiter fp8 prefill", "gfx950 12 heads"] == ("refused at start-up", "padded to 16 by tiling")
    assert found["aiter fp8 prefill", "gfx950 96 heads"] == (
        "as it is; aborts in aiter v0.1.9.post1 0011ff440b, which has no such kernel",
        "padded to 128 by tiling",
    )
    assert found["speculative verify, EAGLE, a chain", "gfx950"] == ("argmax", "samples")
    assert ("speculative verify, EAGLE3, a chain", "gfx950") not in found
    assert not [row for row in changes if row["worse"]]
    back = compare(surveyed("0.5.23", "gfx950", "sm_90"), surveyed("0.5.16", "gfx950", "sm_90"))
    assert {row["what"] for row in back if row["worse"]} == {
        "aiter decode, bf16 KV",
        "aiter decode, fp8 KV",
        "aiter fp8 prefill",
        "speculative verify, EAGLE, a chain",
    }
    assert compare(surveyed("0.5.23", "gfx950", "sm_90"), surveyed("0.5.23", "gfx950", "sm_90")) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 256), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_mla_gate_on_hip_is_16_or_128_heads_a_rank(total: int, tp: int) -> None:
    model = Model("drawn", "mla", total, total, 1000, "drawn", latent=512, rope=64, nope=128)
    entry = FACTS.models["deepseek-v3"]
    served = type(FACTS.served(MODELS["deepseek-v3"]))(model, entry["architecture"], entry["model_type"], "mla", FACTS.absent)
    outcome = dispatch("0.5.23").choose(served, tp)
    assert outcome.backend == ("aiter" if max(1, total // tp) in (16, 128) else "triton")
    assert outcome.arch == "mla"


def test_sampling_and_verify() -> None:
    found = {(row.target, row.question): row for row in surveyed("0.5.23", "gfx950", "sm_90").sampling}
    assert found["gfx950", "sampling backend by default"].answer == "pytorch"
    assert found["sm_90", "sampling backend by default"].answer == "flashinfer"
    verify = {question.split(", ", 1)[1]: row.answer for (target, question), row in found.items() if target == "gfx950" and "verify" in question}
    assert verify == {"EAGLE, a chain": "samples", "EAGLE, a tree": "argmax", "EAGLE, token map": "argmax", "EAGLE3, a chain": "argmax"}
    assert found["gfx950", "speculative verify, EAGLE3, a chain"].condition == "is_hip and (not use_rejection_sampling)"
    assert {row.answer for (target, _), row in found.items() if target == "sm_90"} == {"flashinfer", "samples"}


def test_head_counts_of_the_aiter_constructor() -> None:
    new, old = HeadGate(dispatch("0.5.23")), HeadGate(dispatch("0.5.16"))
    assert [heads for heads in range(1, 129) if not new.decode(heads).accepted] == [heads for heads in range(17, 129) if heads % 16]
    assert [heads for heads in range(1, 129) if old.decode(heads).accepted] == [4, 8, *range(16, 129, 16)]
    assert (new.decode(12).padded, new.decode(12).mode, new.decode(12).persistent) == (16, "zero", True)
    assert (new.decode(8).padded, new.decode(8).mode, new.decode(8).persistent) == (16, "repeat", False)
    assert new.decode(16, fp8=True).persistent
    assert not new.decode(16).persistent
    assert "aiter_backend.py:" in new.decode(24).text
    assert "_valid_heads" in new.decode(24).condition
    assert new.prefill(24, 24, 128).padded == 32  # reached where another back end decodes
    assert old.prefill(24, 24, 128).accepted is False
    assert new.tiled(12, 16) == [*range(12), 0, 1, 2, 3]
    assert HeadGate(dispatch("0.5.23", "gfx942")).prefill(16, 16, 128).accepted is False
    with pytest.raises(Undescribed, match="pad_heads"):
        old.tiled(12, 16)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 128), st.integers(1, 128))
def test_tiled_heads_repeat_in_order(heads: int, padded: int) -> None:
    assert HeadGate(dispatch("0.5.23")).tiled(heads, padded) == [index % heads for index in range(padded)]


def test_dsa_padding_misses_16_where_16_is_no_multiple() -> None:
    gate = HeadGate(dispatch("0.5.23"))
    assert [heads for heads in range(1, 17) if not gate.sparse(heads).accepted] == [heads for heads in range(1, 16) if 16 % heads]
    assert gate.sparse(12).padded == 12
    assert HeadGate(dispatch("0.5.10")).sparse(8).accepted is None


def test_one_models_report_has_its_own_head_counts_alone() -> None:
    found = one(source("0.5.23"), "kimi-k3", 8)
    own, every = (showing.heads(found, counts) for counts in ({row.heads for row in found.routes}, None))
    assert [line.split()[-1] for line in own.splitlines()[2:]] == ["12", "12", "12", "12"]
    assert "padded to 16 with zeros" in own
    assert "24" in every
    assert "24" not in own


def test_changes_name_their_verdict_and_drop_it_where_there_is_none() -> None:
    old, new = one(source("0.5.16"), "kimi-k3", 8), one(source("0.5.23"), "kimi-k3", 8)
    rows = compare(old, new)
    assert "verdict" not in showing.changes(old, new, [row for row in rows if not row["worse"]])
    assert "verdict" in showing.changes(old, new, [{**row, "worse": True} for row in rows])


def test_copied_heads_against_aiter() -> None:
    found = {(drift.aiter, drift.dim): drift for drift in surveyed("0.5.23", "gfx950", "sm_90").drifts}
    assert found["aiter e4048607a5", 128].lacking == [48, 96]
    assert not [drift for (label, _), drift in found.items() if label == "aiter e4048607a5" and drift.foreign]
    assert surveyed("0.5.16", "gfx950", "sm_90").copy == ""


def test_the_router_of_a_tree(tmp_path: Path) -> None:
    file = tmp_path / "csrc" / "kernels" / "mla" / "reduce.cu"
    file.parent.mkdir(parents=True)
    file.write_text(
        "#define MLA_REDUCE_ROUTER(NUM_HEAD, HEAD_DIM) \\\n"
        " MLA_REDUCE_CASE_IF(NUM_HEAD, 12, HEAD_DIM, 128, X) \\\n MLA_REDUCE_CASE_EF(NUM_HEAD, 16, HEAD_DIM, 512, X)\n"
    )
    assert tree_router(tmp_path) == Router(str(tmp_path), {128: frozenset({12}), 512: frozenset({16})})
    file.write_text("// another form\n")
    with pytest.raises(UsageError, match="known form"):
        tree_router(tmp_path)
    with pytest.raises(UsageError, match="not a tree"):
        tree_router(tmp_path / "nowhere")


def test_imported_whole_sglang_answers_the_same() -> None:
    pytest.importorskip("sglang")
    if importlib.metadata.version("sglang") != "0.5.23":
        pytest.skip("another SGLang is installed")
    done = subprocess.run([sys.executable, str(ROOT / "tests" / "imported_routes.py")], capture_output=True, text=True, check=True, cwd=ROOT)
    imported = json.loads(done.stdout.splitlines()[-1])
    found = {f"{row.target} {row.model} {row.tp}": row.backend for row in surveyed("0.5.23", "gfx950", "gfx942", "sm_90", "sm_100").routes}
    assert len(imported) == 288
    assert {key: found[key] for key in imported} == imported


def test_a_known_departure_of_a_model_that_is_not_served_any_more_is_gone() -> None:
    row = dataclasses.replace(rows(surveyed("0.5.23", "gfx950", "sm_90"), "gfx950", "kimi-k3")[8], served=False, fast=None)
    assert [finding.kind for finding in hold([row], FACTS.known, "0.5.23")] == ["gone"]


def test_prefill_and_decode_must_both_be_fast() -> None:
    answers = [_all_fast(Outcome(prefill, decode), ["aiter"]) for prefill in ("aiter", "triton") for decode in ("aiter", "triton")]
    assert answers == [True, False, False, False]


def test_models_that_no_tp_divides_are_named() -> None:
    found = survey(source("0.5.23"), [TARGETS["sm_90"]], [MODELS["glm-4.7-flash"], MODELS["kimi-k2"]], (8,), FACTS, ROUTERS)
    assert [row.model for row in found.routes] == ["kimi-k2"]
    assert "glm-4.7-flash" in found.skipped[0]
    with pytest.raises(UsageError, match="tp 8"):
        survey(source("0.5.23"), [TARGETS["sm_90"]], [MODELS["glm-4.7-flash"]], (8,), FACTS, ROUTERS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("[models.kimi-k3]\n", "[models.kimi-k3]\nheads = 4\n"), "models.kimi-k3"),
        (("[fast.gfx950]\nmla = [\"aiter\"]\n", "[fast.gfx950]\n"), "fast.gfx950"),
        (("[answers]", "[answer]"), "answer"),
        (("versions = \">=0.5.17\"", "versions = \"new\""), "known 1"),
        (("why = \"as kimi-k3\"", "reason = \"as kimi-k3\""), "known 2"),
        (("[models.kimi-k3]", "[models.k3]"), "models.kimi-k3"),
        (("[answers]", "[answer]"), "unknown field 'answer'; nearest: answers"),
        (("torchada = false", "torchada = 0"), "installed.nvidia.torchada is true or false, not 0"),
        (("mla = [\"aiter\"]", "mla = \"aiter\""), "[fast.gfx950]: mla is a list of words"),
        (("tp = [1, 2, 4, 8, 16]", "tp = [\"1\"]"), "known 1: tp is a list of whole numbers"),
    ],
)  # fmt: skip
def test_a_wrong_facts_file_is_one_line(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    text = (CASES / "routes.toml").read_text()
    assert change[0] in text
    file = tmp_path / "routes.toml"
    file.write_text(text.replace(*change))
    with pytest.raises(UsageError, match=re.escape(says)):
        judge(load_facts(file))


def judge(facts: Any) -> Route:
    found = dispatch("0.5.23")
    return Judge(found, facts, HeadGate(found)).route(MODELS["kimi-k3"], 8)
