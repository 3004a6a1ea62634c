"""AITER's adapters on the stand-in: every one in an ordinary worker against its contract, aborts included, and every break of one caught."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.contracts import op
from harness.providers import Provider, providers
from harness.providers.aiter import gates
from harness.providers.aiter.known import all_facts
from harness.providers.aiter.sampling import kept
from harness.selection import Cell
from harness.session import Session
from harness.store.results import Result
from tests.standin.build import build

ROOT = Path(__file__).resolve().parent.parent
STANDIN = ROOT / "tests" / "standin"
PLUGIN = str(STANDIN / "plugin.py")
MODULES = json.loads((STANDIN / "cases.json").read_text())
CASES = {name: cases for part in MODULES.values() for name, cases in part.items()}
WORLDS = [("new", "gfx950"), ("new", "gfx942"), ("old", "gfx942")]
# rows of the suite that do not pass and are not refused by gate: (world, provider) -> (status, part of the detail)
ENDINGS = {
    (("new", "gfx950"), "aiter_split_fp8_lse"): ("mismatch", "Output 'lse'"),  # one split of fp8 queries writes none
    (("new", "gfx942"), "aiter_split_fp8_lse"): ("mismatch", "Output 'lse'"),
    (("old", "gfx942"), "aiter_split_fp8_lse"): ("mismatch", "Output 'lse'"),
    (("old", "gfx942"), "aiter_split_lse"): ("mismatch", "Output 'lse'"),  # return_lse was taken and not done
    (("old", "gfx942"), "aiter_ps"): ("missing", "get_ps_metadata_info_v1"),
    (("old", "gfx942"), "aiter_ps_repeat"): ("missing", "get_ps_metadata_info_v1"),
    (("old", "gfx942"), "aiter_batch"): ("unsupported", "has no"),
    (("old", "gfx942"), "aiter_varlen"): ("unsupported", "has no sink_ptr"),
}
# providers that no case of the suite can pass on: everything of theirs is refused or as above
IDLE = {
    ("new", "gfx950"): set(),
    ("new", "gfx942"): {"aiter_persistent_lse", "aiter_persistent_fp8_lse", "aiter_ps", "aiter_ps_repeat"},
    ("old", "gfx942"): {"aiter_split_lse", "aiter_split_fp8_lse", "aiter_ps", "aiter_ps_repeat"},
}


def aiter_providers() -> list[Provider]:
    return [provider for provider in providers().values() if provider.library.name == "aiter"]


def cell(provider: Provider, case_id: str) -> Cell:
    return Cell(provider.op, provider, op(provider.op).axes.parse(case_id), "cpu")


def named(op_name: str, name: str, case_id: str) -> Cell:
    return cell(providers()[op_name, name], case_id)


@pytest.fixture(scope="module", params=WORLDS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, str], Session]]:
    """A session whose workers have the stand-in of one commit and architecture."""
    version, arch = request.param
    folder = build(tmp_path_factory.mktemp("aiter"), version, arch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
        with Session("cpu", plugins=(PLUGIN,)) as session:
            yield (version, arch), session


def test_every_adapter_in_the_worker(world: tuple[tuple[str, str], Session]) -> None:
    """Each case of the suite passes, is refused by a gate that names its place, or ends as ENDINGS says; nobody dies."""
    which, session = world
    passed: set[str] = set()
    for provider in aiter_providers():
        for case_id in CASES[provider.op]:
            asked = cell(provider, case_id)
            if provider.why_not(asked.case):
                continue
            result = session.run(asked)
            if result.status == "pass":
                passed.add(provider.name)
                assert any("stand-in" in note for note in result.notes)
            elif result.reason == "gate":
                assert result.evidence == "none"
                assert "AITER" in result.detail
            else:
                status, words = ENDINGS.get((which, provider.name), ("", ""))
                assert (result.status, words in result.detail) == (status, True), f"{result.cell}: {result.status} {result.detail}"
    assert {provider.name for provider in aiter_providers()} - passed == IDLE[which]


@pytest.mark.parametrize(
    ("op_name", "name", "case_id", "words"),
    [
        ("mla_prefill_absorbed", "aiter_asm", "b3-h12-n5-pre4-bf16-ragged", "mla_prefill_asm_fwd"),
        ("mla_decode", "aiter_split", "b3-h12-s9-bf16-ragged", "mla_decode_stage1_asm_fwd"),
        ("merge_states", "aiter_reduce", "n3-t4-h12-bf16", "mla_reduce_v1"),
        ("decode_attention", "aiter_asm", "b2-h24-kv1-s40-pg16-bf16", "pa_fwd"),
    ],
)
def test_where_aiter_aborts_the_cell_is_a_crash(world, op_name: str, name: str, case_id: str, words: str) -> None:  # type: ignore[no-untyped-def]
    """With the gates open: an abort of the new commit is a crash that says where it was, the old commit raises, the next cell is unharmed."""
    (version, _), session = world
    asked = named(op_name, name, case_id)
    result: Result = session.run_alone(asked)
    assert (result.status, result.reason) == (("crash", "signal SIGABRT") if version == "new" else ("refused", "RuntimeError"))
    assert words in result.detail
    gated = session.run(asked)
    assert (gated.status, gated.reason) == ("refused", "gate")
    assert ("aborts" in gated.detail) == (version == "new")
    assert session.run(named("mla_prefill_absorbed", "aiter_asm", "b3-h16-n5-pre4-pg4-bf16-ragged")).status == "pass"


def test_findings_of_the_library_are_seen(world: tuple[tuple[str, str], Session]) -> None:
    """What the sources say of AITER itself shows as a wrong result, not as a fault of the adapter."""
    (version, _), session = world
    zero = session.run(named("top_k_renorm", "aiter", "b2-v128-k0"))  # a scalar of 0 counts as 50
    assert (zero.status, zero.reason) == ("mismatch", "support")
    assert session.run(named("top_k_renorm", "aiter_row_by_row", "b3-v128-k7-mixed")).status == "pass"
    empty = session.run(named("greedy", "aiter", "b2-v64-allmasked"))  # a row of -inf gives the vocabulary's size
    assert empty.status == "mismatch"
    if version == "new":
        sinks = session.run(named("extend_attention", "aiter_varlen", "b2-h8-kv2-q5-p6-bf16-ragged-sinks"))  # 128/128: the v3 route drops them
        assert sinks.status == "mismatch"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What became of every break of every adapter, by module."""
    folder = build(tmp_path_factory.mktemp("aiter"), "new", "gfx950")
    given = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "AITER_STANDIN_ABORT": "raise", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(STANDIN / "mutants.py")]
    done = subprocess.run(command, env={**os.environ, **given}, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", list(MODULES))
def test_every_break_of_an_adapter_is_caught(broken: dict[str, dict[str, object]], name: str) -> None:
    """A wrong name, order or layout, an argument or a metadata call left out: the stand-in or the contract's check sees it."""
    report = broken[name]
    listed = tomllib.loads((STANDIN / "equivalent.toml").read_text()).get(name, {})
    found = {str(said).split(": ", 1)[1] for said in report["survivors"]}  # type: ignore[attr-defined]
    assert found == set(listed), report["survivors"]
    assert report["caught"] >= {"sampling": 25, "decode": 80, "latent": 15, "explicit": 100, "paged": 130, "merging": 25}[name]  # type: ignore[operator]


@pytest.mark.parametrize("facts", all_facts(), ids=lambda facts: facts.label)
def test_the_stand_in_has_exactly_the_signatures_of_the_facts(facts, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    version = "old" if facts.label.startswith("v0") else "new"
    folder = build(tmp_path, version, "gfx942")
    script = (
        "import importlib, inspect, json, sys; out = {}\n"
        "for place in json.load(sys.stdin):\n"
        "    module, name = place.split(':'); signature = inspect.signature(getattr(importlib.import_module(module), name))\n"
        "    out[place] = [[p.name, p.default is not inspect.Parameter.empty] for p in signature.parameters.values()]\n"
        "json.dump(out, sys.stdout)"
    )
    env = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], input=json.dumps(list(facts.data["functions"])), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for place, found in json.loads(done.stdout).items():
        assert found == [[row["name"], "default" in row or "default_text" in row] for row in facts.parameters(place)]


def test_gates_answer_without_a_device_and_without_aiter() -> None:
    """In the parent no architecture is known: a gate refuses only what every architecture refuses."""
    provider = providers()["mla_decode", "aiter_split"]
    axes = op("mla_decode").axes
    assert provider.gated(axes.parse("b1-h12-s9-bf16")) is not None
    assert provider.gated(axes.parse("b1-h64-s9-bf16"), "gfx942") is not None  # the table of gfx942 lost one query of 64 heads
    assert provider.gated(axes.parse("b1-h64-s9-bf16")) is None
    assert provider.gated(axes.parse("b1-h12-s9-bf16"), "gfx90a") is None
    assert "_ps" in provider_kernels("aiter_persistent", "b1-h16-s9-bf16", "gfx942")


def test_remedies_and_the_heads_that_need_none() -> None:
    heads = [1, 6, 12, 16, 17, 40, 48, 128]
    assert [gates.to_sixteens(count) for count in heads] == [16, 16, 16, 16, 32, 48, 48, 128]
    assert [gates.padded(count) for count in heads] == [16, 16, 16, 16, 128, 128, 128, 128]
    assert [gates.repeated(count) for count in (1, 2, 3, 4, 6, 8, 12, 16, 32)] == [16, 16, 3, 16, 6, 16, 12, 16, 32]
    for name in ("aiter_split_pad", "aiter_split_repeat", "aiter_persistent_pad", "aiter_persistent_repeat"):
        provider = providers()["mla_decode", name]
        taken = [count for count in (4, 16, 32) if provider.why_not(op("mla_decode").axes.parse(f"b1-h{count}-s9-bf16")) is None]
        assert taken == [4]


def test_a_remedy_that_reaches_no_count_says_so() -> None:
    decode, prefill = op("mla_decode").axes, op("mla_prefill").axes
    repeat = providers()["mla_decode", "aiter_persistent_repeat"]
    assert repeat.why_not(decode.parse("b1-h12-s9-bf16")) == "12 heads cannot be repeated to a count that the kernel takes"
    assert repeat.why_not(decode.parse("b1-h16-s9-bf16")) == "16 heads need no remedy"
    split = providers()["mla_decode", "aiter_split_repeat"]
    assert split.why_not(decode.parse("b1-h64-s9-bf16")) == "64 heads cannot be repeated to a count that the kernel takes on gfx942"
    explicit = providers()["mla_prefill", "aiter_ps_repeat"]
    assert explicit.why_not(prefill.parse("b1-h16-n9-bf16")) == "16 heads need no remedy"
    assert explicit.why_not(prefill.parse("b1-h200-n9-bf16")) == "200 heads cannot be repeated to a count that the kernel takes"


def test_a_top_k_that_keeps_all_is_the_vocabulary() -> None:
    rows, scalar = kept(torch.tensor([-1, 0, 1, 7, 8, 9]), 8)
    assert (rows.tolist(), scalar) == ([8, 8, 1, 7, 8, 8], 0)
    assert [kept(k, 8) for k in (-1, 0, 1, 8, 9)] == [(None, 8), (None, 8), (None, 1), (None, 8), (None, 8)]


def test_the_kernels_of_paged_attention_are_those_of_the_group() -> None:
    provider, axes = providers()["decode_attention", "aiter_asm"], op("decode_attention").axes
    case = axes.parse(next(case for case in CASES["decode_attention"] if provider.why_not(axes.parse(case)) is None))
    groups = {
        heads: "|".join(provider.expected_kernels(axes.case(**{**case.point, "heads": heads, "kv_heads": 1, "dtype": "bf16"}), "gfx950")).split("|")
        for heads in (8, 12, 16, 64)
    }
    assert groups[8] != [""]
    assert all("_gqa8_" in kernel and "pa_bf16_noquant" in kernel for kernel in groups[8])
    assert groups[12] == groups[16]
    assert all("_gqa16_" in kernel for kernel in groups[16])
    assert groups[64] == [""]


def provider_kernels(name: str, case_id: str, arch: str) -> str:
    provider = providers()["mla_decode", name]
    return " ".join(provider.expected_kernels(op("mla_decode").axes.parse(case_id), arch))


def test_adapters_run_nowhere_but_on_rocm() -> None:
    assert {provider.platforms for provider in aiter_providers()} == {frozenset({"rocm"})}
