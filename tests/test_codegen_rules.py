"""Codegen: what the list, the targets, the rules and the figures of a binary say."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import msgspec
import pytest
from codegen_rows import CELL, GFX942, QUIET, TARGETS, kernel, kernels, kinds, row
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UsageError
from harness.offline.codegen import metrics, telling
from harness.offline.codegen.cells import chosen, find, load_cells
from harness.offline.codegen.rows import Kernel, Row, numbered
from harness.offline.codegen.rules import Finding, jumps, of_row
from harness.offline.codegen.searching import Search
from harness.offline.targets import load_targets
from harness.selection import DEFAULT_CASES


def test_the_list_holds_55_cells_a_target_and_ci_takes_a_part_of_it():
    listed = load_cells(DEFAULT_CASES / "codegen" / "nightly.txt")
    for target in TARGETS:
        assert sum(not cell.targets or target in cell.targets for cell in listed) >= 55
    assert {cell.id for cell in load_cells(DEFAULT_CASES / "codegen" / "pr.txt")} <= {cell.id for cell in listed}
    for op in ("mla_decode", "mla_prefill", "mla_prefill_absorbed", "decode_attention"):
        assert {1, 2, 12, 16, 64, 128} <= {cell.case.heads for cell in listed if cell.op == op}
    assert all(target in TARGETS for cell in listed for target in cell.targets)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mla_decode[torch_eager-b2-h1-s128-bf16]", "no Triton provider"),
        ("mla_decode[sglang_triton-b2-h1-bf16]", "gives no"),
        ("mla_decode", "is no cell"),
        ("merge_state[sglang_triton-t8-h12-bf16] gfx999", "unknown target 'gfx999'"),
        ("merge_state[sglang_triton-t8-h12-bf16]\nmerge_state[sglang_triton-t8-h12-bf16] gfx942", "twice"),
    ],
)
def test_a_broken_list_is_one_line(tmp_path, text, said):
    (tmp_path / "list.txt").write_text(f"# a list\n{text}\n")
    with pytest.raises(UsageError, match=said):
        load_cells(tmp_path / "list.txt", TARGETS)


def test_a_case_that_the_provider_documents_away_is_declined():
    assert "no cache" in find("extend_attention[sglang_triton_context-b2-h8-kv1-q64-p64-bf16]").declined
    assert not any(cell.declined for cell in load_cells(DEFAULT_CASES / "codegen" / "nightly.txt"))


def test_a_selection_of_nothing_is_refused():
    with pytest.raises(UsageError, match="no cell of greedy"):
        chosen([find("merge_state[sglang_triton-t8-h12-bf16]")], ("greedy",), ())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("capability = [9, 5]", "capability = [9]", "two numbers"),
        ('matrix = ["v_mfma_", "v_smfmac_"]', "matrix = [1]", "matrix"),
        ("units = 256", "units = 0", "less than 1"),
        ('fp8 = "e4m3fn"', 'fp8 = "e4m3"', "known: e4m3fn"),
        ('arch = "gfx950"', 'arch = "gfx942"', "called by what it is compiled for"),
        ('gcn = "gfx950:sramecc+:xnack-"', 'gcn = "gfx942"', "begins with gfx950"),
        ('vendor = "amd"', 'vendor = "nvidia"', "toolkit hip"),
        ('arch = "90"', 'arch = "ninety"', "called by what it is compiled for"),
    ],
)
def test_a_target_that_cannot_be_is_one_line(tmp_path, before, after, said):
    text = (DEFAULT_CASES / "targets.toml").read_text()
    assert before in text
    (tmp_path / "targets.toml").write_text(text.replace(before, after, 1))
    with pytest.raises(UsageError, match=said):
        load_targets(tmp_path / "targets.toml")


# ---- rules ----


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        ({}, []),
        ({"scalar_spills": 90}, []),
        ({"vector_spills": 1, "scratch": 4}, ["spill"]),
        ({"scratch": 4}, ["scratch"]),
        ({"matrix": {}}, ["no-matrix"]),
        ({"matrix": {}, "dots": 0}, []),
        ({"shared": 73984, "limit": 65536}, ["over-limit"]),
        ({"fp8": ("e4m3fn",)}, ["foreign-fp8"]),
        ({"fp8": ("e4m3fnuz", "e5m2")}, []),
    ],
)
def test_each_rule_fires_on_its_figure_alone(figures, kind):
    assert kinds(of_row(row(kernel(**figures)), GFX942)) == kind


@pytest.mark.parametrize("status", ["refused", "build-failed", "timeout", "crash"])
def test_a_cell_that_does_not_compile_is_a_finding(status):
    assert kinds(of_row(row(status=status, detail="why"), GFX942)) == [status]
    assert of_row(row(status="unsupported", detail="why"), GFX942) == []
    over, fits = kernel(shared=73984, limit=65536), msgspec.structs.replace(kernel(), name="_stage1#2")
    assert kinds(of_row(row(over, status=status, detail="why"), GFX942)) == ["over-limit"], "the refusal that the library passed on"
    assert kinds(of_row(row(over, fits, status=status, detail="why"), GFX942)) == [status]


HEADS = (1, 2, 12, 16, 64, 128)


def judged_jumps(figures: dict[int, dict]) -> list[Finding]:
    return jumps((row(kernel(**facts), heads=heads), find(CELL.format(heads)).case) for heads, facts in figures.items())[0]


@QUIET
@given(st.sampled_from(HEADS), st.sampled_from(["registers", "shared", "code"]), st.floats(1.3, 4.0))
def test_one_head_count_that_stands_out_is_found_and_no_other(odd, name, factor):
    usual = {"registers": 100, "shared": 16384, "code": 20000}
    figures = {heads: {**usual} for heads in HEADS}
    assert judged_jumps(figures) == []
    figures[odd][name] = int(usual[name] * factor)
    assert [finding.cell for finding in judged_jumps(figures)] == [CELL.format(odd)]


@pytest.mark.parametrize(
    ("usual", "odd", "found"),
    [((100, 16384, 20000), (118, 19000, 24000), 0), ((20, 4096, 4096), (35, 8000, 8000), 0), ((20, 4096, 4096), (36, 8192, 8192), 1)],
)
def test_a_jump_is_a_quarter_and_a_least_step_among_three_head_counts(usual, odd, found):
    figures = [dict(zip(("registers", "shared", "code"), values, strict=True)) for values in (usual, usual, odd)]
    assert len(judged_jumps(dict(zip((1, 2, 12), figures, strict=True)))) == found


def test_only_head_counts_of_one_target_with_all_else_equal_are_compared():
    group = [row(kernel(), heads=heads) for heads in HEADS[:2]]
    third = row(kernel(registers=300), heads=12)
    longer = Row(CELL.format(12).replace("s128", "s256"), "gfx942", "compiled", kernels=third.kernels)
    for other in (longer, Row(third.cell, "gfx950", "compiled", kernels=third.kernels)):
        assert jumps((one, find(one.cell).case) for one in [*group, other]) == ([], set())
    assert len(jumps((one, find(one.cell).case) for one in [*group, third])[0]) == 1


def test_another_kernel_at_one_head_count_is_a_jump():
    group = [row(kernel(), heads=heads) for heads in HEADS]
    group[0].kernels = [msgspec.structs.replace(kernel(), name="_other")]
    found, judged = jumps((row, find(row.cell).case) for row in group)
    assert [finding.text for finding in found] == ["at 1 head _other instead of _stage1"]
    assert len(judged) == len(HEADS)
    assert jumps((row, find(row.cell).case) for row in group[:2]) == ([], set())


@QUIET
@given(st.lists(kernels))
def test_a_name_stands_for_one_binary_of_a_cell(found):
    named = numbered(found)
    errors = numbered([Kernel("_stage1", "k.py:1", error=error) for error in ("a", "b", "a")])
    assert [kernel.name for kernel in errors] == ["_stage1", "_stage1#2"]
    assert len({kernel.name for kernel in named}) == len(named) == len({(kernel.name, kernel.digest) for kernel in found})


# ---- figures ----

ASSEMBLY = """
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
; a comment of v_mfma_f32_32x32x8_bf16
\tv_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], 0
\tv_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], 0 ; v_mfma_ once more
\tv_smfmac_f32_16x16x32_bf16 a[0:3], v[0:1], v[2:5], v6
\ts_endpgm
; codeLenInByte = 1234
  - .agpr_count:     8
    .group_segment_fixed_size: 77
    .private_segment_fixed_size: 16
    .sgpr_count:     40
    .sgpr_spill_count: 5
    .vgpr_count:     96
    .vgpr_spill_count: 3
    .wavefront_size: 64
"""


def test_each_figure_of_amds_assembly_is_its_own():
    figures = {"registers": 96, "agpr": 8, "sgpr": 40, "vector_spills": 3, "scalar_spills": 5, "scratch": 16, "code": 1234}
    assert metrics._amd(ASSEMBLY) == {"arch": "gfx942", **figures}
    assert metrics._count(ASSEMBLY, GFX942.matrix) == {"v_mfma_": 2, "v_smfmac_": 1}
    with pytest.raises(HarnessError, match="does not say scratch"):
        metrics._amd(ASSEMBLY.replace(".private_segment_fixed_size", ".other"))


def test_registers_and_stack_of_nvidia_are_not_mixed_up(monkeypatch):
    said = subprocess.CompletedProcess([], 0, " Function k:\n  REG:255 STACK:32 SHARED:0 LOCAL:0\n", "")
    monkeypatch.setattr(metrics, "subprocess", SimpleNamespace(run=lambda *args, **options: said))
    ptx = ".target sm_90a\n\t@%p1 mma.sync.aligned.m16n8k16.row.col\n\tmma.sync.aligned.m16n8k16\n\tadd.f32 mma.sync;\n"
    found = metrics._nvidia({"cubin": bytes(64), "ptx": ptx})
    assert found == {"arch": "sm_90", "registers": 255, "scratch": 32, "code": 0}
    assert metrics._count(ptx, TARGETS["sm_90"].matrix) == {"mma.sync": 2}


def test_the_column_of_notes_is_there_where_a_kernel_has_one():
    fine, broken = (Row("c", "gfx942", "compiled", kernels=[Kernel(name="k", place="k.py:1", error=error)]) for error in ("", "no such type"))
    assert telling._kernels([fine], ()).split("\n")[0].split()[-1] == "matrix"
    assert telling._kernels([fine, broken], ()).split("\n")[0].split()[-1] == "notes"


# ---- an autotuner's search ----


@QUIET
@given(st.lists(st.sampled_from(["clean", "spilling", "refused"]), min_size=1, max_size=30))
def test_a_search_takes_the_first_clean_configuration_else_the_first_that_fits(configurations):
    search, nargs, compiled_ones = Search(), object(), []

    def time_of(at: int) -> float:
        search._begin(nargs)
        if search._over():
            return float("inf")
        compiled_ones.append(at)
        search.clean = configurations[at] == "clean"
        return search._judge([float("inf") if configurations[at] == "refused" else 0.1])[0]

    times = [time_of(at) for at in range(len(configurations))]
    tried = configurations[: len(compiled_ones)]
    wanted = tried.index("clean") if "clean" in tried else tried.index("spilling") if "spilling" in tried else 0
    assert times.index(min(times)) == wanted
    assert compiled_ones == list(range(len(tried)))
    assert "clean" not in tried[:-1]
