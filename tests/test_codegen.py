"""Codegen: rules, ledger and ratchet as laws; planted kernels, time-outs and identical binaries by compiling for targets that are not here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.commands.codegen import compile_cells
from harness.errors import HarnessError, UsageError
from harness.machine.builds import children
from harness.offline.codegen import baseline as base
from harness.offline.codegen import metrics, telling
from harness.offline.codegen import sweep as sweeping
from harness.offline.codegen.cells import chosen, find, load_cells
from harness.offline.codegen.keeping import digest_of
from harness.offline.codegen.ledger import judge
from harness.offline.codegen.rows import Kernel, Row, numbered
from harness.offline.codegen.rules import Finding, jumps, of_row
from harness.offline.codegen.searching import Search
from harness.offline.codegen.sweep import Sweep, compiled
from harness.offline.sources import find_source
from harness.offline.targets import load_targets
from harness.plugins import load_plugins
from harness.selection import DEFAULT_CASES
from harness.store.ledger import Entry, Ledger, load_ledger

TARGETS = load_targets(DEFAULT_CASES / "targets.toml")
GFX942 = TARGETS["gfx942"]
PLANTED = str(Path(__file__).with_name("planted_codegen.py"))
CELL = "mla_decode[sglang_triton-b2-h{}-s128-bf16]"
VERSIONS = {"sglang": "0.5.23", "triton": "3.7.1"}

QUIET = settings(deadline=None)  # other work may use the cores
sizes = st.integers(0, 512)
kernels = st.builds(
    Kernel,
    name=st.sampled_from(["_stage1", "_stage2"]),
    place=st.just("k.py:1"),
    registers=sizes,
    vector_spills=sizes,
    scalar_spills=sizes,
    scratch=sizes,
    shared=st.integers(0, 1 << 16),
    code=st.integers(0, 1 << 16),
    dots=st.integers(0, 3),
    matrix=st.dictionaries(st.sampled_from(["v_mfma_", "v_smfmac_"]), st.integers(1, 99)),
    fp8=st.sampled_from([(), ("e4m3fn",)]),
    digest=st.text("0123456789abcdef", min_size=4, max_size=4),
)
rows = st.builds(Row, cell=st.just(CELL.format(12)), target=st.just("gfx942"), status=st.just("compiled"), kernels=st.lists(kernels, max_size=4).map(numbered))


def row(*found: Kernel, heads: int = 12, **facts: str) -> Row:
    return Row(CELL.format(heads), "gfx942", **{"status": "compiled", **facts}, kernels=list(found))


def kernel(**figures: object) -> Kernel:
    return Kernel("_stage1", "k.py:1", **{"registers": 100, "dots": 2, "matrix": {"v_mfma_": 8}, "code": 9000, "shared": 8192, **figures})


def kinds(found: list[Finding]) -> list[str]:
    return [finding.kind for finding in found]


# ---- the list ----


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
    assert len(tried) == len(configurations) or tried[-1] == "clean" or len(tried) >= 8


# ---- ledger ----

ENTRY = Entry("mla_decode", "sglang_triton", "why", status="spill", platforms=("gfx942",), where={"kernel": "_stage1", "triton": "3.7.1"})


def judged(entries: list[Entry], *found: Kernel):
    here = row(*found)
    return judge([(here, find(here.cell))], of_row(here, GFX942), Ledger(entries), VERSIONS, set())


def test_what_the_ledger_lists_is_known_and_what_it_does_not_is_found():
    spilled = kernel(vector_spills=3)
    assert kinds(judged([], spilled).fresh) == ["spill"]
    assert kinds([finding for finding, _ in judged([ENTRY], spilled).known]) == ["spill"]
    second = msgspec.structs.replace(spilled, name="_stage1#2")
    assert len(judged([ENTRY], spilled, second).known) == 2
    assert kinds(judged([ENTRY], spilled, msgspec.structs.replace(spilled, name="_stage2")).fresh) == ["spill"]


def test_what_the_ledger_lists_and_is_no_longer_there_is_gone():
    assert [entry for _, _, entry in judged([ENTRY], kernel()).gone] == [ENTRY]
    assert not judged([replace(ENTRY, happens="sometimes")], kernel()).gone
    refused = row(kernel(), status="refused")
    assert not judge([(refused, find(refused.cell))], [], Ledger([ENTRY]), VERSIONS, set()).gone, "what does not compile says nothing of spills"
    elsewhere = (
        {"platforms": ("gfx950",)},
        {"where": {"triton": "3.6.0"}},
        {"where": {"heads": 16}},
        {"library": "sglang", "versions": "==0.5.16"},
        {"platforms": ()},
    )
    for other in elsewhere:
        entry = replace(ENTRY, **other)
        assert not judged([entry], kernel()).gone
        assert kinds(judged([entry], kernel(vector_spills=3)).fresh) == ["spill"]


def test_the_entries_of_the_ledger_name_targets_and_the_compiler():
    entries = [entry for entry in load_ledger(DEFAULT_CASES / "ledger.toml").entries if set(entry.platforms) & set(TARGETS)]
    assert entries
    for entry in entries:
        assert set(entry.platforms) <= set(TARGETS)
        assert entry.library == "sglang"


# ---- baseline ----


@QUIET
@given(rows)
def test_a_row_equals_its_own_entry(made):
    entry = json.loads(json.dumps(base.entry_of(made)))
    assert base.compare(made, entry) == []


@QUIET
@given(rows, rows)
def test_a_refresh_never_makes_the_baseline_worse_unless_it_is_accepted(old, new):
    kept = base.refreshed(None, [old], triton="3.7.1", library="sglang", accept={}, listed=None)
    again = base.refreshed(kept, [new], triton="3.7.1", library="sglang", accept={}, listed=None)
    assert (
        not any(change.bad for change in base.compare(Row(**{**msgspec.structs.asdict(old), "kernels": new.kernels}), again.rows[old.cell]))
        or again.rows == kept.rows
    )
    forced = base.refreshed(kept, [new], triton="3.7.1", library="sglang", accept={new.cell: "reviewed"}, listed=None)
    assert forced.rows[new.cell] == base.entry_of(new)
    assert bool(forced.accepted) == any(change.bad for change in base.compare(new, kept.rows[old.cell]))


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ({}, {"vector_spills": 1}, "worse"),
        ({"vector_spills": 9}, {}, "better"),
        ({}, {"registers": 120}, "worse"),
        ({}, {"registers": 104}, "changed"),
        ({}, {"scratch": 8}, "worse"),
        ({}, {"code": 12000}, "worse"),
        ({}, {"code": 10100}, "changed"),
        ({}, {"shared": 9300}, "worse"),
        ({}, {"shared": 8900}, "changed"),
        ({"code": 400}, {"code": 900}, "changed"),
        ({"scalar_spills": 40}, {"scalar_spills": 62}, "worse"),
        ({"scalar_spills": 40}, {"scalar_spills": 58}, "changed"),
        ({"matrix": {"wgmma.mma_async": 8, "mma.sync": 4}}, {"matrix": {"mma.sync": 12}}, "worse"),
        ({"shared": 73984, "limit": 65536}, {"shared": 73984}, "better"),
        ({}, {"matrix": {}}, "worse"),
        ({"matrix": {"wgmma.mma_async": 8}}, {"matrix": {"mma.sync": 64}}, "worse"),
        ({}, {"matrix": {"v_mfma_": 4}}, "changed"),
        ({}, {"shared": 73984, "limit": 65536}, "worse"),
        ({}, {"sgpr": 3}, "changed"),
    ],
)
def test_what_counts_as_worse(before, after, verdict):
    changes = base.compare(row(kernel(**after)), base.entry_of(row(kernel(**before))))
    assert [(change.verdict, change.bad) for change in changes] == [(verdict, verdict == "worse")]


def test_a_kernel_that_goes_and_a_cell_that_no_longer_compiles_are_findings():
    old = base.entry_of(row(kernel()))
    assert [(change.verdict, change.bad) for change in base.compare(row(), old)] == [("gone", True)]
    assert [change.verdict for change in base.compare(row(status="refused", detail="no"), old)] == ["worse"]
    assert [change.verdict for change in base.compare(row(kernel()), "refused: no")] == ["better"]


def test_a_baseline_is_read_as_it_was_written_and_a_broken_one_is_one_line(tmp_path):
    made = base.refreshed(None, [row(kernel(fp8=("e4m3fn",)))], triton="3.7.1", library="sglang 0.5.23", accept={}, listed=[CELL.format(12)])
    base.save(tmp_path, made)
    assert base.load(tmp_path, "gfx942", "3.7.1") == made
    path = base.path_of(tmp_path, "gfx942", "3.7.1")
    assert len(path.read_text().splitlines()) == 9  # a line a cell
    path.write_text("{")
    with pytest.raises(UsageError, match="is no codegen baseline"):
        base.load(tmp_path, "gfx942", "3.7.1")
    assert base.load(tmp_path, "gfx950", "3.7.1") is None
    assert base.refreshed(made, [row(kernel(), heads=1)], triton="3.7.1", library="", accept={}, listed=[CELL.format(1)]).rows.keys() == {CELL.format(1)}


def test_a_reason_accepts_its_cell_alone_and_goes_when_the_figures_do():
    def refreshed(old: base.Baseline | None, *found: Row, **accept: str) -> base.Baseline:
        return base.refreshed(
            old, found, triton="3.7.1", library="sglang", accept={CELL.format(accept.pop("heads")): "reviewed"} if accept else {}, listed=None
        )

    good, bad = kernel(), kernel(registers=200)
    old = refreshed(None, row(good), row(good, heads=1))
    assert refreshed(old, row(good), heads=12).accepted == {}, "there is nothing to accept"
    worse = refreshed(old, row(bad), row(bad, heads=1), heads=12)
    assert worse.rows == {CELL.format(12): base.entry_of(row(bad)), CELL.format(1): base.entry_of(row(good))}
    assert worse.accepted == {CELL.format(12): "reviewed"}
    assert refreshed(worse, row(bad)).accepted == worse.accepted
    assert refreshed(worse, row(good)).accepted == {}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"target":"gfx942","triton":"3.7.1"}',
        '{"accepted":{},"library":"","target":"gfx942","triton":"3.7.1","rows":[]}',
        '{"accepted":{},"library":"","target":"gfx942","triton":"3.7.1","rows":{"a":{"_stage1":3}}}',
        '{"accepted":{},"library":"","target":"gfx942","triton":"3.7.1","rows":{"a":{"_stage1":{"registers":"many"}}}}',
        '{"accepted":{},"library":"","target":"gfx950","triton":"3.7.1","rows":{}}',
        '{"accepted":{},"library":"","target":"gfx942","triton":"3.6.0","rows":{}}',
    ],
)
def test_a_baseline_of_another_shape_or_target_is_one_line(tmp_path, text):
    path = base.path_of(tmp_path, "gfx942", "3.7.1")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UsageError, match=f"^{re.escape(str(path))} .*remove it and refresh$"):
        base.load(tmp_path, "gfx942", "3.7.1")


def test_the_baselines_hold_the_list():
    for target in TARGETS:
        made = base.load(DEFAULT_CASES.parent / "baselines", target, "3.7.1")
        listed = load_cells(DEFAULT_CASES / "codegen" / "nightly.txt")
        assert made is not None
        assert made.rows.keys() == {cell.id for cell in listed if not cell.targets or target in cell.targets}


# ---- content ----


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from(["a.py", "b.py", "c/d.json"]), st.binary(max_size=9), min_size=1), st.binary(min_size=1, max_size=4))
def test_a_digest_changes_with_content_and_name(tmp_path_factory, files, more):
    def written(contents: dict[str, bytes]) -> str:
        folder = tmp_path_factory.mktemp("tree")
        for name, data in contents.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        return digest_of(folder)

    first = next(iter(files))
    assert written(files) == written(files)
    assert written(files) != written({**files, first: files[first] + more})
    assert written(files) != written({**files, "e.py": b""})


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
