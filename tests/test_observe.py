"""Traces of live servers: every format is read to the same sums, whatever stands around the events, and a broken file is one line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.selection import DEFAULT_CASES
from harness.served.traces import Launch, Tally, chrome, launches, observe, pieces, tally
from harness.served.traces.tally import REST
from harness.store.families import load_families

FAMILIES = load_families(DEFAULT_CASES / "kernels.toml")
RAN = [
    Launch("_fwd_grouped_kernel_stage1", 120.5, (32, 1, 8)),
    Launch("_fwd_kernel_stage2", 10.25, (32, 12, 1)),
    Launch("_fwd_grouped_kernel_stage1", 119.5, (32, 1, 8)),
    Launch("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64", 900.0, (64, 4, 1)),
    Launch("void at::native::elementwise_kernel<128, F<float> >(int)::{lambda(int)#1}, {lambda()#2}", 2.0, (7, 1, 1)),
]


def kineto(ran=RAN, device="AMD Instinct MI355X", indent=2) -> str:
    events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python", "labels": [{"a": 1}, {"b": [{"c": 2}]}]}}]
    for place, one in enumerate(ran):
        operator = {"External id": place, "Input Dims": [[12, 576], [], 3]}
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::op", "ts": place, "dur": 1, "args": operator})
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": place, "dur": 1.0, "args": {"External id": place}})
        told = {"External id": place, "grid": list(one.grid), "block": [256, 1, 1], "queued": 0}
        events.append({"ph": "X", "cat": "kernel", "name": one.name, "ts": 10.5 * place, "dur": one.us, "args": told})
    whole = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": device}], "traceEvents": events, "traceName": "x", "more": [{"a": 1}, {"b": 2}]}
    return json.dumps(whole, indent=indent)


def rocprof_json(ran=RAN) -> str:
    names = list(dict.fromkeys(one.name for one in ran))
    symbols = [{"kernel_id": number, "formatted_kernel_name": name, "kernel_name": name + ".kd"} for number, name in enumerate(names, 1)]
    dispatches = []
    for place, one in enumerate(ran):
        grid = {axis: 256 * size if axis == "x" else size for axis, size in zip("xyz", one.grid, strict=True)}
        info = {"kernel_id": names.index(one.name) + 1, "agent_id": {"handle": 4}, "grid_size": grid, "workgroup_size": {"x": 256, "y": 1, "z": 1}}
        dispatches.append({"start_timestamp": 10_000_000 * place, "end_timestamp": 10_000_000 * place + round(1000 * one.us), "dispatch_info": info})
    records = {"hip_api": [{"size": 1}, {"size": 2}], "kernel_dispatch": dispatches, "memory_copy": [{"size": 3}]}
    tool = {"metadata": {"pid": 1}, "agents": [{"name": "gfx950"}], "kernel_symbols": [{"kernel_id": 0}, *symbols], "buffer_records": records}
    return json.dumps({"rocprofiler-sdk-tool": [tool]})


def table(header: list[str], rows: list[list[object]], before: str = "") -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_MINIMAL)
    writer.writerows([header, *rows])
    return before + out.getvalue()


def rocprof_csv(ran=RAN) -> str:
    header = [
        "Kind",
        "Agent_Id",
        "Kernel_Name",
        "Start_Timestamp",
        "End_Timestamp",
        *(f"{what}_Size_{axis}" for what in ("Workgroup", "Grid") for axis in "XYZ"),
    ]
    rows = [["KERNEL_DISPATCH", "Agent 4", one.name, 5, 5 + round(1000 * one.us), 256, 1, 1, 256 * one.grid[0], *one.grid[1:]] for one in ran]
    return table(header, rows)


NSYS = ["Start (ns)", "Duration (ns)", "CorrId", "GrdX", "GrdY", "GrdZ", "Device", "Strm", "Name"]


def nsys_csv(ran=RAN) -> str:
    rows = [[7, round(1000 * one.us), 1, *one.grid, "NVIDIA H200 (0)", 7, one.name] for one in ran]
    return table(NSYS, rows, "\nNOTICE: Existing SQLite export found: x.sqlite\n\nProcessing [x.sqlite] with [cuda_gpu_trace.py]...\n")


def nsys_json(ran=RAN) -> str:
    return json.dumps([dict(zip(NSYS, [7, round(1000 * one.us), 1, *one.grid, "NVIDIA H200 (0)", 7, one.name], strict=True)) for one in ran])


FORMATS = {
    "kineto": (kineto(), "rocm"),
    "kineto-dense": (kineto(device="NVIDIA H200", indent=None), "cuda"),
    "rocprof-json": (rocprof_json(), "rocm"),
    "rocprof-csv": (rocprof_csv(), "rocm"),
    "nsys-csv": (nsys_csv(), "cuda"),
    "nsys-json": (nsys_json(), "cuda"),
}


def read(path: Path) -> Tally:
    into = Tally()
    return tally(launches(path, into), into)


# ---- formats ----


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_the_same_sums(tmp_path, form, packed):
    text, platform = FORMATS[form]
    path = tmp_path / ("trace.gz" if packed else "trace")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found, wanted = read(path), tally(RAN)
    assert {name: (pytest.approx(one.us), one.count, one.grids) for name, one in wanted.kernels.items()} == {
        name: (one.us, one.count, one.grids) for name, one in found.kernels.items()
    }
    assert found.platform == platform


def test_input_shapes_come_with_the_kernel(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(kineto())
    assert read(path).kernels["_fwd_kernel_stage2"].shapes == {"12x576": 1}


def test_a_bare_list_of_events_is_a_trace_too(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(json.loads(kineto())["traceEvents"]))
    assert read(path).us == pytest.approx(tally(RAN).us)


# ---- pieces ----

TEXTS = st.text(st.sampled_from('{}[],:" \\ab\n}, {'), max_size=8)
VALUES = st.recursive(st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6)


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=6), st.sampled_from([None, 1]), st.integers(1, 40), st.booleans())
@settings(max_examples=300)
def test_objects_come_out_whole_whatever_is_in_them_and_wherever_the_stream_is_cut(wanted, indent, chunk, ascii_only):
    text = json.dumps({"traceEvents": wanted, "behind": [{"x": 1}, {"y": 2}]}, indent=indent, ensure_ascii=ascii_only).encode()
    stream = io.BytesIO(text)
    one = pieces.Pieces(b"", lambda size: stream.read(chunk))
    assert [json.loads(part) for part in one.objects(chrome.START)] == wanted


@given(st.integers(0, len(kineto()) - 1))
@settings(max_examples=150)
def test_a_trace_that_is_cut_off_is_said_in_one_line(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("cut") / "t.json"
    path.write_text(kineto()[:length])
    if length > kineto().rindex("]", 0, kineto().rindex('"traceName"')):  # all events are there
        assert read(path).us == pytest.approx(tally(RAN).us)
        return
    with pytest.raises(UsageError, match=r"broken or no trace|holds no launch") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["rocprof-json", "rocprof-csv", "nsys-csv", "nsys-json", "kineto"])
@given(share=st.floats(0.0, 0.98), damage=st.binary(min_size=1, max_size=20))
@settings(max_examples=60)
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path_factory, form, share, damage):
    data = FORMATS[form][0].encode()
    at = int(share * len(data))
    path = tmp_path_factory.mktemp("damaged") / "t"
    path.write_bytes(data[:at] + damage + data[at + len(damage) :])
    try:
        read(path)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017  # some damage leaves a trace that reads


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty", b"", "it is empty"),
        ("noise", bytes(range(256)) * 40, "it is no text"),
        ("half.gz", gzip.compress(kineto().encode())[:-40], "broken or no trace"),
        ("bad.gz", b"\x1f\x8b" + b"\0" * 50, "broken or no trace"),
        ("other.json", b'{"a": [1, 2]}', "it holds no list of events"),
        ("none.json", b'{"traceEvents": []}', "holds no launch on a device"),
        ("words.txt", b"hello\nthere\n", "no table of kernels"),
        ("short.csv", b"Name,Duration (ns)\nk\n", "line 2 has 1 fields, the header 2"),
        ("nan.csv", b"Name,Duration (ns)\nk,soon\n", "line 2: ValueError"),
        ("dur.json", b'{"traceEvents": [{"cat": "kernel", "name": "k", "dur": "long"}]}', "event 0 does not read"),
        ("grid.json", b'[{"cat": "kernel", "name": "k", "dur": 1, "args": {"grid": [[1]]}}]', "event 0 does not read"),
        ("huge.csv", b"Name,Duration (ns),GrdX\nk,5,inf\n", "line 2: OverflowError"),
        ("never.csv", b"Name,Duration (ns)\nk,nan\n", "'k' takes nan us"),
        ("before.json", b'[{"cat": "kernel", "name": "k", "dur": -2}]', "'k' takes -2.0 us"),
        ("deep.json", b'[{"cat": "kernel", "name": "k", "args": ' + b"[" * 5000 + b"]" * 5000 + b"}]", "nested deeper"),
        ("bare.json", b'[{"cat": "kernel", "name": "k", "dur": NaN}]', "cut off at byte 44, or an event is no JSON"),
    ],
)
def test_a_foreign_file_is_one_line(tmp_path, name, data, words):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UsageError, match=words) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_and_a_pipe_are_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(b"\xef\xbb\xbf" + kineto().encode()),))
    writer.start()
    assert read(path).us == pytest.approx(sum(launch.us for launch in RAN))
    writer.join()


def test_memory_does_not_grow_with_the_trace(tmp_path):
    peaks = []
    for copies in (2_000, 20_000):
        path = tmp_path / f"{copies}.json"
        path.write_text(kineto(RAN * (copies // 5)))
        tracemalloc.start()
        read(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 64 << 20
    assert peaks[1] < 3 * peaks[0] + (40 << 20)


def test_kernels_past_the_first_names_are_summed_together():
    found = tally(Launch(f"k{number}", 1.0) for number in range(100_010))
    assert found.kernels[REST].count == 10
    assert found.us == 100_010


# ---- what it says ----


def test_generic_work_is_named_where_the_platform_has_a_fast_family():
    summed = tally(RAN, Tally(platform="rocm"))
    told = observe(summed, FAMILIES)
    found = {row.family.name: fast for row, fast in told.generic(FAMILIES)}
    assert "aiter-mla-decode" in found["triton-decode"]
    assert "matmul" not in found
    assert told.classified == 1.0
    assert observe(tally(RAN), FAMILIES).generic(FAMILIES) == []  # nothing says which platform


def test_unknown_names_are_listed_by_time():
    told = observe(tally([Launch("mine<int>(x)", 5.0), Launch("mine<float>(x)", 6.0), Launch("theirs", 20.0), *RAN]), FAMILIES)
    assert [(name, one.us, one.count) for name, one in told.unclassified] == [("theirs", 20.0, 1), ("mine", 11.0, 2)]
    assert told.classified == pytest.approx(1 - 31 / told.us)


def test_the_command_says_it_all_and_ends_with_1(typed, tmp_path):
    now, then = tmp_path / "now.json", tmp_path / "then.csv"
    now.write_text(kineto())
    then.write_text(rocprof_csv([Launch("_ZN5aiter27mla_a16w16_qh16_m16x4_n16x1E", 40.0, (1, 1, 1)), RAN[3]]))
    code, out, err = typed("observe", str(now), "--against", str(then))
    assert (code, err) == (1, "")
    for words in (
        "triton-decode",
        "generic: triton-decode (attention decode) takes 20.8 % of the device time; rocm has",
        "grid 32x1x8 (2)",
        "aiter-mla-decode",
        "gone",
    ):
        assert words in out
    code, out, _ = typed("observe", str(then), "--json")
    told = json.loads(out)
    assert (code, told["platform"], told["classified"], told["generic"]) == (0, "rocm", 1.0, [])
    assert [line["family"] for line in told["families"]] == ["matmul", "aiter-mla-decode"]


def test_generic_work_in_a_trace_that_names_no_platform_is_no_all_clear(typed, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(kineto(RAN[:3], device="somewhere").replace("hipLaunchKernel", "launch").replace("cuda_runtime", "runtime"))
    code, out, err = typed("observe", str(path))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "triton-decode" in out
    assert "names no platform, so " in err
    assert "give --platform cuda or rocm" in err
    assert typed("observe", str(path), "--platform", "rocm")[0] == 1


def test_launches_that_take_no_time_are_counted(typed, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(kineto([launch._replace(us=0.0) for launch in RAN]))
    code, out, err = typed("observe", str(path), "--against", str(path))
    assert (code, err) == (1, "")
    assert "5 launches, 0.000 ms on rocm" in out


@pytest.mark.parametrize(("arguments", "words"), [(["nowhere.json"], "No such file"), (["{}", "--platform", "tpu"], "unknown platform 'tpu'")])
def test_a_mistake_is_one_line(typed, tmp_path, arguments, words):
    path = tmp_path / "t.json"
    path.write_text(kineto())
    code, out, err = typed("observe", *(argument.format(path) for argument in arguments))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err
