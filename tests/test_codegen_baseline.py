"""Codegen: the ledger and the ratchet of the baselines, as laws."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import msgspec
import pytest
from codegen_rows import CELL, GFX942, QUIET, TARGETS, VERSIONS, kernel, kinds, row, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.offline.codegen import baseline as base
from harness.offline.codegen.cells import find, load_cells
from harness.offline.codegen.keeping import digest_of
from harness.offline.codegen.ledger import judge
from harness.offline.codegen.rows import Kernel, Row
from harness.offline.codegen.rules import of_row
from harness.selection import DEFAULT_CASES
from harness.store.ledger import Entry, Ledger, load_ledger

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


def test_an_entry_of_a_kernel_that_nobody_compiles_is_gone():
    renamed = replace(ENTRY, where={**ENTRY.where, "kernel": "_stage0"})
    assert [entry for _, _, entry in judged([ENTRY, renamed], kernel(vector_spills=3)).gone] == [renamed]
    either = replace(ENTRY, where={**ENTRY.where, "kernel": ["_stage0", "_stage1"]})
    assert not judged([either], kernel(vector_spills=3)).gone
    assert not judged([replace(renamed, happens="sometimes")], kernel()).gone
    assert not judged([replace(renamed, where={**renamed.where, "heads": 16})], kernel()).gone, "of other cells"


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
