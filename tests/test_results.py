"""The results log: whole lines, a torn last line passed over, resume, no writable path."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UsageError
from harness.store.files import write_whole
from harness.store.results import Result, ResultLog, decode, encode, plain, read
from harness.store.timing import Timing


def result(cell="op[p-a]", **fields):
    return Result(**{"cell": cell, "op": "op", "provider": "p", "case": "a", "status": "pass", "platform": "cpu", **fields})


@given(st.text(), st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_line_reads_back(detail, seconds):
    original = result(detail=detail, seconds=seconds)
    assert decode(encode(original)) == original
    assert b"\n" not in encode(original)


def test_figures_that_json_cannot_hold_become_words():
    assert [plain(v) for v in (float("inf"), float("nan"), 1.23456789, 3, "at")] == ["inf", "nan", 1.23457, 3, "at"]


@pytest.mark.parametrize("kept", ['{"mine": 1}', "notes", '{"cell2'])
def test_what_is_no_log_is_not_gone_on_from(tmp_path, kept):
    path = tmp_path / "precious.json"
    path.write_text(kept)
    with pytest.raises(UsageError, match="holds no results to go on from"):
        ResultLog(path, resume=True)
    assert path.read_text() == kept


@pytest.mark.parametrize("kept", ["", "{", '{"cell":"op[p'])
def test_a_first_line_that_was_torn_is_begun_anew(tmp_path, kept):
    path = tmp_path / "r.jsonl"
    path.write_text(kept)
    ResultLog(path, resume=True).close()
    assert path.read_text() == ""


@given(cut=st.integers(1, 60))
def test_a_torn_last_line_is_passed_over(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("log") / "r.jsonl"
    whole = [encode(result(f"op[p-{i}]")) + b"\n" for i in range(3)]
    path.write_bytes(b"".join(whole)[:-cut])
    assert [r.cell for r in read(path)] == ["op[p-0]", "op[p-1]"]
    with ResultLog(path, resume=True) as log:
        log.append(result("op[p-9]"))
    assert [r.cell for r in read(path)] == ["op[p-0]", "op[p-1]", "op[p-9]"]


def test_a_fresh_log_starts_empty(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    for _ in range(2):
        with ResultLog(path) as log:
            log.append(result())
    assert len(list(read(path))) == 1


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"{}\n" + encode(result()) + b"\n")
    with pytest.raises(UsageError, match=r"r\.jsonl:1 is not a result line"):
        list(read(path))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema": 99}, "schema 99, and this version reads 1"),
        ({"status": "great"}, "unknown status 'great'"),
        ({"timings": [Timing("graph", -5.0, 1, 1, 20, "converged")]}, "a time that is none: median -5.0"),
        ({"timings": [Timing("eager", 5.0, 1, 1, 20, "converged", control="copy")]}, "a time that is none: control_us 0.0"),
        ({"timings": [Timing("slowly", 5.0, 1, 1, 20, "converged")]}, "timed by 'slowly'"),
    ],
)
def test_a_line_that_no_run_writes_is_named(tmp_path, fields, words):
    path = tmp_path / "r.jsonl"
    path.write_bytes(encode(result()) + b"\n" + encode(result(**fields)) + b"\n")
    with pytest.raises(UsageError, match=f"r.jsonl:2 is not a result line .{words}"):
        list(read(path))


def test_no_writable_path_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--results"):
        ResultLog(tmp_path / "file" / "r.jsonl")
    with pytest.raises(UsageError, match="cannot read"):
        list(read(tmp_path / "none.jsonl"))


def test_a_full_disk_is_the_harness_failing():
    log = ResultLog.__new__(ResultLog)
    log.path = "/dev/full"
    with open("/dev/full", "ab", buffering=0) as log._file, pytest.raises(HarnessError, match="the results so far are kept"):
        log.append(result())


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_whole(path, "new")
    assert path.read_text() == "new"
    with pytest.raises(UsageError, match="cannot write"):
        write_whole(path / "below", "x")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["b.txt"]


def test_a_link_stays_a_link_and_a_full_device_is_one_line(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    with pytest.raises(HarnessError, match="No space left on device; make room"):
        write_whole(Path("/dev/full"), b"x")
    assert Path("/dev/full").is_char_device()
    with pytest.raises(UsageError, match="cannot write"):
        write_whole(tmp_path, b"x")
