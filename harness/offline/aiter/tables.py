"""Gate tables of AITER, made by running its own dispatch conditions over a grid of architectures, dtypes, heads and query lengths."""

from __future__ import annotations

import ast
import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.offline.aiter import cxx, python

ARCHES = ("gfx942", "gfx950")
PAIRS = (("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8"))
HEADS = range(1, 129)
QUERIES = range(1, 9)
MLA = "csrc/py_itfs_cu/asm_mla.cu"
REDUCE = "csrc/kernels/mla/reduce.cu"
METADATA = "csrc/kernels/mla/metadata/v1_2_device.cuh"
_DTYPES = SimpleNamespace(fp8="fp8", bf16="bf16", fp16="fp16", fp32="fp32")
# C++ expressions that stand for a dtype or an argument that may be absent
_CALLS = {
    "Q->dtype()": "Q_dtype",
    "KV->dtype()": "KV_dtype",
    "K->dtype()": "KV_dtype",
    "Q.dtype()": "Q_dtype",
    "KV.dtype()": "KV_dtype",
    "at::ScalarType::BFloat16": '"bf16"',
    "at::ScalarType::Float8_e4m3fnuz": '"fp8"',
    "at::ScalarType::Float8_e4m3fn": '"fp8"',
    "AITER_DTYPE_bf16": '"bf16"',
    "AITER_DTYPE_fp8": '"fp8"',
    "AITER_DTYPE_i8": '"i8"',
    "AITER_DTYPE_u8": '"u8"',
    "g_kv_indptr->data_ptr()": "g_kv_indptr",
    "get_gpu_arch()": "arch_id",
}
_PINNED = frozenset(
    {
        "arch_id",
        "gqa_ratio",
        "max_seqlen_q",
        "persistent",
        "num_kv_heads",
        "num_heads",
        "q_is_fp8",
        "kv_is_fp8",
        "max_seqlen_qo",
        "hk_mtp_experimental",
        "config_map",
    }
)

Row = dict[str, Any]
Outcome = tuple[str, Any]


def grouped(points: Iterable[tuple[Row, int, int, Outcome]]) -> list[Row]:
    """Rows of the grid with one outcome: the fixed part, `heads` and `queries` that share it, and the outcome by its word."""
    by_outcome: dict[tuple[Any, ...], dict[int, set[int]]] = {}
    for fixed, heads, queries, (word, value) in points:
        by_outcome.setdefault((tuple(fixed.items()), word, value), {}).setdefault(heads, set()).add(queries)
    rows: list[Row] = []
    for (fixed_items, word, value), found in by_outcome.items():
        by_queries: dict[tuple[int, ...], list[int]] = {}
        for heads, queries_seen in sorted(found.items()):
            by_queries.setdefault(tuple(sorted(queries_seen)), []).append(heads)
        rows += [{**dict(fixed_items), "heads": ranges(heads), "queries": ranges(queries), word: value} for queries, heads in by_queries.items()]
    return rows


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as runs: `1-15,17`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def kernel_rows(tree: Path, arch: str, folder: str) -> list[dict[str, str]]:
    """The rows of `hsa/ARCH/FOLDER/*.csv` of a tree, in order; none where the tree has no such table."""
    rows = []
    for path in sorted((tree / "hsa" / arch / folder).glob("*.csv")):
        with path.open(newline="") as file:
            rows += [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(file)]
    return rows


def heuristic(source: str, rows: list[dict[str, str]]) -> Callable[..., str]:
    """`get_heuristic_kernel_mla` on the rows of one architecture: the first whose columns equal the arguments that the function
    compares them with. It raises Refused at the function's own check where no row fits."""
    line, parameters, _ = cxx.function(source, "get_heuristic_kernel_mla")
    start = source.index("get_heuristic_kernel_mla")
    body = source[start : cxx.closing(source, source.index("{", source.index(")", start)))]
    compared = re.findall(r"cfg\.(\w+)\s*!=\s*(\w+)", body)
    check = next((at for at, text in enumerate(body.splitlines()) if "AITER_CHECK" in text), 0) + cxx.line_of(source, start)

    def look(*given: Any) -> str:
        values = {"lse": 0, "cprr": 0, **dict(zip(parameters, given, strict=False))}
        for row in rows:
            if all(str(int(values[name]) if isinstance(values[name], bool) else values[name]) == row.get(column, "0") for column, name in compared):
                return row["knl_name"]
        raise cxx.Refused(check or line, "AITER_CHECK")

    return look


def ambiguous(rows: list[dict[str, str]]) -> list[list[str]]:
    """Kernels of one table that the selection cannot tell apart: every column but the names is equal."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in rows:
        found.setdefault(tuple((key, value) for key, value in row.items() if key not in ("knl_name", "co_name")), []).append(row["knl_name"])
    return [names for names in found.values() if len(names) > 1]


def stage1(tree: Path) -> list[Row]:
    """Which kernel the first stage of MLA decode takes, or which check refuses. `ps`: persistent; `lse`: a log-sum-exp is asked for."""
    source = cxx.stripped((tree / MLA).read_text())
    _, parameters, body = cxx.function(source, "mla_decode_stage1_asm_fwd")
    asks = (0, 1) if "lse" in parameters else (0,)
    points = []
    for arch, (q, kv), ps, lse in itertools.product(ARCHES, PAIRS, (0, 1), asks):
        look = heuristic(source, kernel_rows(tree, arch, "mla")) if "get_heuristic_kernel_mla" in source else None
        if lse and not ps:
            continue
        fixed = {"arch": arch, "q": q, "kv": kv, "ps": ps, "lse": lse}
        for heads, queries in itertools.product(HEADS, QUERIES):
            values = {
                "arch_id": arch,
                "Q_dtype": q,
                "KV_dtype": kv,
                "gqa_ratio": heads,
                "num_kv_heads": 1,
                "max_seqlen_q": queries,
                "persistent": bool(ps),
                "config_map": 1,
            }
            values |= {"lse": 1 if lse else None, "g_kv_indptr": None, "causal": 1, "q_scale": 1, "kv_scale": 1}
            machine = cxx.Machine(values, _PINNED, _CALLS, {"get_heuristic_kernel_mla": look} if look else {})
            points.append((fixed, heads, queries, _run(machine, body, MLA)))
    return grouped(points)


def _run(machine: cxx.Machine, body: list[cxx.Statement], file: str) -> Outcome:
    try:
        machine.run(body)
    except cxx.Refused as refused:
        return "refused", f"{file}:{refused.line}"
    return "kernel", machine.values.get("kernelName") or machine.values.get("impl_ptr") or ""


def prefill(tree: Path, name: str) -> list[Row]:
    """Which kernel a prefill entry point takes by heads a KV head, or which check refuses."""
    source = cxx.stripped((tree / MLA).read_text())
    try:
        _, _, body = cxx.function(source, name)
    except LookupError:
        return []
    points = []
    for arch, (q, kv), causal in itertools.product(ARCHES, PAIRS, (0, 1)):
        look = heuristic(source, kernel_rows(tree, arch, "mla")) if "get_heuristic_kernel_mla" in source else None
        for heads in HEADS:
            values = {"arch_id": arch, "Q_dtype": q, "KV_dtype": kv, "gqa_ratio": heads, "num_kv_heads": 1, "is_causal": causal, "config_map": 1}
            machine = cxx.Machine(values, _PINNED, _CALLS, {"get_heuristic_kernel_mla": look} if look else {})
            points.append(({"arch": arch, "q": q, "kv": kv, "causal": causal}, heads, 0, _run(machine, body, MLA)))
    return grouped(points)


def reduce_router(source: str) -> list[list[int]]:
    """[heads, value dimension] that `mla_reduce_v1` is built for, from the router in the text of reduce.cu."""
    text = cxx.stripped(source).replace("\\\n", " ")
    found = re.findall(r"MLA_REDUCE_CASE_[IE]F\(\s*NUM_HEAD\s*,\s*(\d+)\s*,\s*HEAD_DIM\s*,\s*(\d+)", text)
    return [list(pair) for pair in sorted({(int(heads), int(dim)) for heads, dim in found})]


def metadata(tree: Path) -> list[Row]:
    """What `get_mla_metadata_v1` does with the heads: `kept`, `folded` to 16, or refused by its check."""
    source = cxx.stripped((tree / METADATA).read_text())
    name = next(iter(re.findall(r"\bvoid\s+(get_mla_metadata_v1_2_device)\s*\(", source)), "get_mla_metadata_v1_2_device")
    _, _, body = cxx.function(source, name)
    points = []
    for arch, (q, kv) in itertools.product(ARCHES, PAIRS):
        for heads, queries in itertools.product(HEADS, QUERIES):
            values = {"arch_id": arch, "q_is_fp8": q == "fp8", "kv_is_fp8": kv == "fp8", "max_seqlen_qo": queries}
            values |= {"num_heads_k": 1, "num_heads_per_head_k": heads, "hk_mtp_experimental": False}
            machine = cxx.Machine(values, _PINNED - {"num_heads"})
            word, value = _run(machine, body, METADATA)
            outcome: Outcome = (word, value) if word == "refused" else ("plan", "folded" if machine.values.get("qk_batch_ratio") != 1 else "kept")
            points.append(({"arch": arch, "q": q, "kv": kv}, heads, queries, outcome))
    return grouped(points)


def decode_wrapper(tree: Path, persistent: bool) -> list[Row]:
    """What `mla_decode_fwd` does with the heads before any kernel: takes them (`native`), folds them to 16 (`fold`), or refuses."""
    function = python.find_function(ast.parse((tree / "aiter/mla.py").read_text()), "mla_decode_fwd")
    points = []
    for arch, (q, kv) in itertools.product(ARCHES, PAIRS):
        for heads, queries in itertools.product(HEADS, QUERIES):
            values = {"nhead": heads, "ori_nhead": heads, "max_seqlen_q": queries, "persistent_mode": persistent, "dtypes": _DTYPES}
            values |= {"q": SimpleNamespace(dtype=q), "kv_buffer": SimpleNamespace(dtype=kv)}
            values |= {"get_gfx": functools.partial(str, arch), "is_experimental_enabled": bool}
            word, line = python.last_resort(function, values)
            outcome: Outcome = ("refused", f"aiter/mla.py:{line}") if word == "refused" else ("takes", word)
            points.append(({"arch": arch, "q": q, "kv": kv}, heads, queries, outcome))
    return grouped(points)


def metadata_sizes(tree: Path) -> list[Row]:
    """Heads for which `get_mla_metadata_info_v1` states buffer sizes, and the assertion that refuses the others."""
    file = "aiter/ops/attention.py"
    function = python.find_function(ast.parse((tree / file).read_text()), "get_mla_metadata_info_v1")
    points: list[tuple[Row, int, int, Outcome]] = []
    for heads in HEADS:
        line = python.failed_assert(function, {"num_head_qo": heads})
        points.append(({}, heads, 0, ("refused", f"{file}:{line}") if line else ("takes", "sizes")))
    return grouped(points)


_FLAGS: dict[str, Row] = {
    "plain": {},
    "lse": {"return_lse": True},
    "window": {"swa": True, "window_size_left": 16},
    "soft_cap": {"logits_soft_cap": 30.0},
    "sinks": {"sink_ptr": "given"},
    "own_key_window": {"window_size_left": 0},
}


def varlen(tree: Path) -> list[Row]:
    """Which kernel family `flash_attn_varlen_func` takes, by architecture, dtype, head dimensions and one flag at a time, and which of
    the caller's arguments (`sink_ptr`, `logits_soft_cap`, `block_table`) that family is not given."""
    file = "aiter/ops/mha.py"
    function = python.find_function(ast.parse((tree / file).read_text()), "_flash_attn_varlen_forward")
    known = {argument.arg for argument in function.args.args}
    arms = python.routes(function)
    rows: list[Row] = []
    for arch, dtype, dims, (flag, given) in itertools.product(ARCHES, ("bf16", "fp16"), ((64, 64), (128, 128), (192, 128), (256, 256)), _FLAGS.items()):
        if any(name not in known | {"swa"} for name in given):
            continue
        values: Row = {
            "hdim_q": dims[0], "hdim_v": dims[1], "nhead_q": 16, "nhead_k": 16, "batch_size": 2, "alibi_slopes": None, "bias": None, "dropout_p": 0.0,
            "logits_soft_cap": 0.0, "swa": False, "window_size_left": -1, "window_size_right": -1, "sink_size": 0, "sink_ptr": None, "block_table": None,
            "return_lse": False, "return_softmax": False, "q_descale": None, "k_descale": None, "v_descale": None, "cu_seqlens_q_padded": None,
            "cu_seqlens_k_padded": None, "max_seqlen_q": 64, "max_seqlen_k": 64, "k": None, "v": None, "dtypes": _DTYPES, "q": SimpleNamespace(dtype=dtype),
            "get_gfx": functools.partial(str, arch), "_fmha_kv_byte_extent_ge_u32": lambda *_: False, "os": SimpleNamespace(environ={}), **given,
        }  # fmt: skip
        tests = python.nested(function, values)
        _test, callee, handed, line = next(arm for arm in arms if not arm[0] or tests[arm[0]]())
        dropped = sorted(name for name in given if name in known and name not in handed and name != "return_lse")
        rows.append({"arch": arch, "dtype": dtype, "dims": list(dims), "flag": flag, "route": callee, "line": line} | ({"drops": dropped} if dropped else {}))
    return rows
