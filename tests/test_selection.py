"""Selection: presets, models, shards, single cells, and a row for every provider that cannot run."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace

import pytest

from harness.contracts import op, ops
from harness.errors import UsageError
from harness.providers import providers, providers_of
from harness.regressions import bugs
from harness.selection import DEFAULT_CASES, Selection, left_out, preset_cases, select


def test_nothing_is_dropped_silently():
    cells = select(Selection())
    for op_name in ops():
        named = {cell.provider.name for cell in cells if cell.op == op_name}
        assert named == {provider.name for (op, _), provider in providers().items() if op == op_name}
    assert all(cell.status and cell.why for cell in cells if cell.case is None)


def test_a_cpu_never_runs_a_device_provider_and_the_other_way_round():
    assert {cell.platform for cell in select(Selection()) if cell.case} <= {"interpret", "cpu"}
    assert {cell.platform for cell in select(Selection(machine="cuda")) if cell.case} == {"cuda"}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shards_part_the_cells(count):
    whole = [cell.id for cell in select(Selection())]
    parts = [cell.id for i in range(count) for cell in select(Selection(shard=f"{i + 1}/{count}"))]
    assert sorted(parts) == sorted(whole)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1/", "1/0"])
def test_a_bad_shard_is_refused(shard):
    with pytest.raises(UsageError, match="--shard"):
        select(Selection(shard=shard))


def test_a_cell_is_found_by_its_id():
    cell = next(cell for cell in select(Selection()) if cell.case)
    (found,) = select(Selection(cells=(cell.id,)))
    assert found == cell


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ops": ("top_k_renom",)}, "top_k_renorm"),
        ({"providers": ("flashinfr",)}, "flashinfer"),
        ({"preset": "smok"}, "smoke"),
        ({"model": "kimi-k33"}, "kimi-k3"),
        ({"cells": ("top_k_renorm[nobody-b1-v9-k1]",)}, "unknown provider"),
        ({"cells": ("top_k_renorm[torch_eager-b1-v9]",)}, "gives no k"),
        ({"model": "kimi-k3", "tp": 5}, "does not divide"),
    ],
)
def test_a_wrong_name_gives_the_nearest(wrong, said):
    with pytest.raises(UsageError, match=said):
        select(Selection(**wrong))


def test_a_model_gives_its_own_heads():
    cells = [cell for cell in select(Selection(model="kimi-k3", tp=8)) if cell.case and cell.op == "mla_decode"]
    assert cells
    assert {cell.case.heads for cell in cells} == {12}
    vocabularies = {cell.case.vocab for cell in select(Selection(model="kimi-k3", tp=8)) if cell.case and cell.op == "top_k_renorm"}
    assert vocabularies == {163840}


@pytest.fixture(scope="module")
def extend():
    path = DEFAULT_CASES / "plans" / "extend.py"
    spec = importlib.util.spec_from_file_location("extend", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(path.parent))


def test_presets_hold_every_planned_case_and_no_repeats(extend):
    for (preset, op_name), ids in extend.planned().items():
        listed = [case.id for case in preset_cases(DEFAULT_CASES, preset, op_name)]
        assert set(ids) <= set(listed), f"{preset}/{op_name}: run python cases/plans/extend.py"
        assert len(listed) == len(set(listed))


def test_presets_are_only_extended(extend):
    """Compares the start of each list with the record of it: an id that was removed, changed or moved shows."""
    for name, (count, known) in json.loads((DEFAULT_CASES / "presets" / "frozen.json").read_text()).items():
        ids = (DEFAULT_CASES / "presets" / f"{name}.txt").read_text().split()
        assert extend.fingerprint(ids[:count]) == known, f"{name}.txt: its first {count} ids are not those recorded"


def test_the_nightly_preset_stays_within_its_bound():
    """Counted where every library is installed: what a provider declines is not run. Providers that other tests declare are left out."""
    own = {
        name: [
            provider
            for provider in providers_of(name)
            if provider.source.startswith(("harness.providers.", "harness.served.sampling.")) and not left_out(provider, Selection(preset="nightly"))
        ]
        for name in ops()
    }
    served = [(case, provider) for name, mine in own.items() for case in preset_cases(DEFAULT_CASES, "nightly", name) for provider in mine]
    cells = [case for case, provider in served if "cuda" in provider.platforms and provider.why_not(case) is None]
    public = {case for bug in bugs(DEFAULT_CASES) for kept in bug.cases.values() for case in kept}
    laws, kept = sum("relation" in case.point for case in cells), sum(case in public for case in cells)
    layers = sum(case.op.startswith("served_") and "relation" not in case.point for case in cells)
    assert 10_000 < len(cells) - laws - kept - layers <= 20_000
    assert layers <= 500
    assert 1_000 < laws <= 4_000
    assert kept <= 2_500


def test_the_baseline_preset_is_as_large_as_one_machine_start_has_time_for():
    """Counted where every library is installed, on an H200."""
    taken = Selection(preset="baseline")
    own = [provider for name in ops() for provider in providers_of(name) if provider.source.startswith("harness.providers.")]
    able = [one for one in own if "cuda" in one.platforms and not left_out(one, taken)]
    cells = [one for one in able for case in preset_cases(DEFAULT_CASES, "baseline", one.op) if one.declines(case, "cuda", "sm_90") is None]
    assert 250 <= len(cells) <= 400
    assert {one.library.name for one in cells} == {"sglang", "flashinfer", "sgl_kernel", "torch"}
    assert "torch_eager" not in {one.name for one in cells}
    assert left_out(providers_of("merge_state")[0], replace(taken, providers=("torch_eager",))) == ""


@pytest.mark.parametrize(
    ("declared", "says"),
    [(["b1"], "`presets` of the contract of greedy: "), ("b1-v9", "`presets` of its contract holds a list of case ids a preset, not the text")],
)
def test_a_case_that_the_contract_misspells_is_laid_at_its_door(monkeypatch, declared, says):
    monkeypatch.setattr(type(op("greedy").impl), "presets", {"smoke": declared}, raising=False)
    with pytest.raises(UsageError, match=re.escape(says)):
        preset_cases(DEFAULT_CASES, "smoke", "greedy")


def test_plain_pytorch_runs_once_at_night():
    """The nightly preset is full: a second one would take the place of a new provider."""
    cells = {preset: select(Selection(preset=preset, ops=("decode_attention",))) for preset in ("smoke", "nightly")}
    ran = {preset: {one.provider.name for one in mine if one.case} for preset, mine in cells.items()}
    assert ran["smoke"] - ran["nightly"] == {"torch_sdpa_math"}


def test_nobody_waits_for_plain_pytorch_nor_for_draws_that_a_judge_counts():
    cells = [one for one in select(Selection(preset="pr", ops=("sample",))) if one.case and not one.status]
    asked = {(one.provider.name, one.case.point["draws"] > 16) for one in cells if one.awaited}
    assert ("sglang_torch", False) in asked
    assert not any(many or provider == "torch_eager" for provider, many in asked)
    assert any(one.case.point["draws"] > 16 for one in cells)
    named = [one for one in select(Selection(preset="pr", ops=("sample",), providers=("torch_eager",))) if one.case]
    assert any(one.awaited for one in named)
