"""The stand-in's plans: metadata that names who attends to what, first stages that follow it, and the reduction.

A plan is real here: the first stage reads the work list and writes partial states where it says, and the reduction merges by the maps.
A plan that was never made, or made for other heads, dtypes or pages, leads to a wild read.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from standin.shapes import FP8, WORDS, attention, bounds, causal, integers, need

UNITS = 8  # compute units of the device that is played
_FP8 = torch.float8_e4m3fn
_asked: dict[str, tuple[object, ...]] = {}  # what buffer sizes were asked for: a plan for anything else does not fit them


def _machine() -> Any:
    from standin.kernels import Machine

    return Machine


def _look(table: str, heads: int, queries: int, **fixed: Any) -> dict[str, Any]:
    from harness.providers.aiter.known import span

    for row in _machine().facts["tables"][table]:
        same = all(row.get(name) == value for name, value in fixed.items())
        if same and heads in span(row["heads"]) and (not queries or queries in span(row["queries"])):
            return row
    return {}


def get_mla_metadata_info_v1(given: dict[str, Any]) -> tuple[Any, ...]:
    """(size, dtype) of the six buffers; heads that the assertion refuses raise."""
    heads = given["num_head_qo"]
    if place := _look("mla_metadata_sizes", heads, 0).get("refused"):
        raise AssertionError(place)
    need(given["q_dtype"] in WORDS and given["kv_dtype"] in WORDS and given["is_sparse"] is False, "dtypes and sparsity")
    _asked["mla"] = (given["batch_size"], given["max_seqlen_qo"], heads, given["q_dtype"], given["kv_dtype"])
    tiles, work = given["batch_size"], 2 * given["batch_size"]
    return (
        ((2), torch.uint64),
        ((UNITS + 1), torch.int32),
        ((work, 8), torch.int32),
        ((tiles + 1), torch.int32),
        ((tiles, 2), torch.int32),
        (work + 1, torch.int32),
    )


def _seal(heads: int, queries: int, page: int, q: torch.dtype | None, kv: torch.dtype | None) -> int:
    """A number for what a plan was made for, kept in the work list's spare column."""
    return hash((heads, queries, page, q in FP8, kv in FP8)) & 0x3FFFFFFF


def get_mla_metadata_v1(given: dict[str, Any]) -> None:
    """Fills the six buffers: each request's keys in two works where there are two pages and more, in one else."""
    from standin.kernels import refuse

    heads, queries = given["num_heads_per_head_k"], given["max_seqlen_qo"]
    dtypes = [given.get(f"dtype_{side}") or given.get(f"dtype_{side}_nope") or torch.bfloat16 for side in ("q", "kv")]
    fixed = {"arch": _machine().arch, "q": WORDS[dtypes[0]], "kv": WORDS[dtypes[1]]}
    if place := _look("mla_metadata", heads, queries, **fixed).get("refused"):
        refuse("get_mla_metadata_v1_2_device", f"{place}: {heads} heads")
    qo, kv = given["seqlens_qo_indptr"], given["seqlens_kv_indptr"]
    buffers = {name: given[name] for name in ("work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map", "reduce_partial_map")}
    integers(seqlens_qo_indptr=qo, seqlens_kv_indptr=kv, **buffers)
    batch = qo.shape[0] - 1
    last = given.get("kv_last_page_lens")
    if "kv_last_page_lens" in given:
        integers(kv_last_page_lens=last)
        need(last.shape[0] == batch and bool((last <= given["page_size"]).all()), "kv_last_page_lens a request")
    need(given["num_heads_k"] == 1 and kv.shape == qo.shape and given["uni_seqlen_qo"] in (queries, -1), "heads and lengths")
    granularity = given["kv_granularity"]
    need(granularity >= 16 and granularity & (granularity - 1) == 0 and granularity % given.get("page_size", 1) == 0, "kv_granularity")
    shapes = (buffers["work_info_set"].shape[1:], buffers["reduce_final_map"].shape[1:], buffers["reduce_indptr"].shape, buffers["work_indptr"].shape)
    need(shapes == ((8,), (2,), (batch + 1,), (UNITS + 1,)) and given["work_metadata_ptrs"].shape == (2,), f"buffers of shapes {shapes}")
    need(_asked.get("mla") == (batch, queries, heads, *dtypes), f"sizes asked for {_asked.get('mla')}")
    seal = _seal(heads, queries, given.get("page_size", 0), dtypes[0], dtypes[1])
    _fill(given["work_metadata_ptrs"], buffers, qo.tolist(), kv.tolist(), queries, seal, parts=2)


def _fill(pointers: torch.Tensor, buffers: dict[str, torch.Tensor], qo: list[int], kv: list[int], tile: int, seal: int, parts: int) -> None:
    """The plan: work [request, partial row or -1, first and last query, first and last page, pages after them, seal]."""
    works, groups, finals, partials = [], [0], [], []
    for request in range(len(qo) - 1):
        first, last = kv[request], kv[request + 1]
        pages, count = last - first, parts if last - first >= parts else 1
        for start in range(0, max(1, qo[request + 1] - qo[request]), tile):
            low, high = qo[request] + start, min(qo[request] + start + tile, qo[request + 1])
            for part in range(count):
                a, b = first + pages * part // count, first + pages * (part + 1) // count
                row = len(partials) * tile if count > 1 else -1
                works.append([request, row, low, high, a, b, last - b, seal])
                partials += [row] if count > 1 else []
            groups.append(len(partials))
            finals.append([low, high])
    info = torch.tensor(works, dtype=torch.int32)
    buffers["work_info_set"][: len(works)] = info
    shares = [len(works) * unit // UNITS for unit in range(UNITS + 1)]
    buffers["work_indptr"].copy_(torch.tensor(shares, dtype=torch.int32))
    tiles = buffers["reduce_indptr"].shape[0] - 1
    buffers["reduce_indptr"].copy_(torch.tensor(groups + [groups[-1]] * (tiles + 1 - len(groups)), dtype=torch.int32))
    buffers["reduce_final_map"][: len(finals)] = torch.tensor(finals, dtype=torch.int32)
    buffers["reduce_partial_map"][: len(partials)] = torch.tensor(partials, dtype=torch.int32)
    places = [buffers["work_indptr"].data_ptr(), buffers["work_info_set"].data_ptr()]
    pointers.view(torch.int64).copy_(torch.tensor(places))


def works(work_indptr: torch.Tensor, work_info: torch.Tensor, seal: int) -> list[list[int]]:
    """The work list, unit by unit; one that no plan filled, or one for another call, is a wild read."""
    shares = work_indptr.tolist()
    need(shares[0] == 0 and shares == sorted(shares) and shares[-1] <= work_info.shape[0], f"work_indptr = {shares}")
    rows = work_info[: shares[-1]].tolist()
    need(all(row[7] == seal for row in rows), "a plan made for other heads, queries, pages or dtypes")
    return rows


def mla_reduce_v1(given: dict[str, Any]) -> None:
    """Merges the partial states of each group into the rows that the final map names."""
    from standin.kernels import refuse

    partial, lse, o, final = given["partial_output"], given["partial_lse"], given["final_output"], given["final_lse"]
    heads, dim = partial.shape[-2], partial.shape[-1]
    if [heads, dim] not in _machine().facts["tables"]["mla_reduce"]:
        refuse("mla_reduce_v1", f"{heads} heads, value dimension {dim}")
    if o.dtype not in (torch.bfloat16, torch.float16):
        refuse("mla_reduce_v1", f"output {o.dtype}")
    need(partial.dtype == torch.float32 and lse.dtype == torch.float32 and partial.is_contiguous() and lse.is_contiguous(), "fp32 partials")
    need(o.shape[1:] == (heads, dim) and lse.numel() * dim == partial.numel(), "partial and final shapes")
    groups, finals, rows = given["reduce_indptr"], given["reduce_final_map"], given["reduce_partial_map"]
    integers(reduce_indptr=groups, reduce_final_map=finals, reduce_partial_map=rows)
    need(finals.dim() == 2 and finals.shape == (groups.shape[0] - 1, 2) and given.get("num_kv_splits", 0) >= 0, "maps")
    if final is not None:
        need(final.dtype == torch.float32 and final.shape == o.shape[:2], "final_lse fp32 [rows, heads]")
    flat, flat_lse = partial.view(-1, heads, dim).double(), lse.view(-1, heads).double()
    starts = bounds(groups, rows.shape[0], "reduce_indptr")
    for tile, (low, high) in enumerate(itertools.pairwise(starts)):
        if low == high:
            continue
        first, last = finals[tile].tolist()
        need(0 <= first <= last <= o.shape[0] and last - first <= given["max_seqlen_q"], f"final rows {first} to {last}")
        for row in range(first, last):
            at = rows[low:high].long() + row - first
            need(bool(((at >= 0) & (at < flat.shape[0])).all()), "partial rows")
            total = torch.logsumexp(flat_lse[at], 0)
            weights = torch.exp(flat_lse[at] - total)[..., None]
            o[row] = (weights * flat[at]).sum(0).to(o.dtype)
            if final is not None:
                final[row] = torch.where(total.isinf(), math.inf, total).float()


def get_ps_metadata_info_v1(given: dict[str, Any]) -> tuple[Any, ...]:
    """(size, dtype) of the six buffers of the fp8 prefill."""
    _asked["ps"] = tuple(given[name] for name in ("batch_size", "num_head_k", "max_qlen", "qlen_granularity"))
    tiles = given["batch_size"] * -(-given["max_qlen"] // given["qlen_granularity"])
    work = 2 * tiles
    return (2, torch.uint64), (UNITS + 1, torch.int32), ((work, 8), torch.int32), (tiles + 1, torch.int32), ((tiles, 2), torch.int32), (work + 1, torch.int32)


def get_ps_metadata_v1(given: dict[str, Any]) -> None:
    """Fills them. Lengths and pages are read on the host."""
    qo, kv, lengths = given["seqlens_qo_indptr"], given["pages_kv_indptr"], given["context_lens"]
    integers(seqlens_qo_indptr=qo, pages_kv_indptr=kv, context_lens=lengths)
    need(qo.shape == kv.shape and lengths.shape[0] == qo.shape[0] - 1, "one length a request")
    need((kv.diff() == lengths).all().item() and given["block_size"] == 1, "context_lens against pages of one token")
    longest = int(qo.diff().max())
    need(_asked.get("ps") == (qo.shape[0] - 1, given["num_heads_k"], longest, given["qlen_granularity"]), f"sizes asked for {_asked.get('ps')}")
    # the kernel's tile of keys is 128, its tile of queries 256
    need(given["qhead_granularity"] == given["gqa_ratio"] and given["kvlen_granularity"] == 128 and given["qlen_granularity"] == 256, "granularities")
    names = {"work_info_set": "work_info"}
    buffers = {n: given[names.get(n, n)] for n in ("work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map", "reduce_partial_map")}
    integers(**buffers)
    need(
        buffers["work_info_set"].shape[1:] == (8,) and buffers["reduce_final_map"].shape[1:] == (2,) and buffers["work_indptr"].shape == (UNITS + 1,), "buffers"
    )
    seal = _seal(given["num_heads_k"] * given["gqa_ratio"], int(given["is_causal"]), given["num_heads_k"], _FP8, _FP8)
    _fill(given["work_metadata_ptrs"], buffers, qo.tolist(), kv.tolist(), given["qlen_granularity"], seal, parts=2)


def mla_prefill_ps_asm_fwd(given: dict[str, Any]) -> None:
    """The fp8 prefill of 192/128 along its plan; unsplit tiles go to the output, split ones to the partial states."""
    from standin.kernels import refuse

    q, k, v, o = given["Q"], given["K"], given["V"], given["output"]
    if q.dtype != _FP8 or k.dtype != _FP8 or v.dtype != _FP8:
        refuse("mla_prefill_ps_asm_fwd", f"dtypes {q.dtype}, {k.dtype}")
    heads, causal_ = q.shape[1], int(given["is_causal"])
    group = heads // k.shape[1]
    if place := _look("mla_prefill_ps", group, 0, arch=_machine().arch, q="fp8", kv="fp8", causal=causal_).get("refused"):
        refuse("mla_prefill_ps_asm_fwd", f"{place}: {group} query heads a KV head")
    need(q.shape[2] == 192 and k.shape[2] == 192 and v.shape[1:] == (heads, 128) and o.shape == (q.shape[0], heads, 128), "192/128")
    need(o.dtype == torch.bfloat16 and all(t.is_contiguous() for t in (q, k, v, o)), "layouts")
    qo, kv, pages = given["qo_indptr"], given["kv_indptr"], given["kv_page_indices"]
    integers(qo_indptr=qo, kv_indptr=kv, kv_page_indices=pages, work_indptr=given["work_indptr"], work_info_set=given["work_info_set"])
    scales = [given[name] for name in ("q_scale", "k_scale", "v_scale")]
    need(all(isinstance(s, torch.Tensor) and s.dtype == torch.float32 for s in scales), "scales fp32")
    partial, partial_lse = given["splitData"], given["splitLse"]
    need(partial.dtype == partial_lse.dtype == torch.float32 and partial.shape[1:] == (heads, 128) and partial_lse.shape == partial.shape[:2], "partials")
    starts, lengths = bounds(qo, q.shape[0], "qo_indptr"), bounds(kv, pages.shape[0], "kv_indptr")
    need(max(b - a for a, b in itertools.pairwise(starts)) == given["max_seqlen_q"], "max_seqlen_q")
    scale = float(given["softmax_scale"]) * float(scales[0]) * float(scales[1])
    for request, row, low, high, a, b, _, _ in works(given["work_indptr"], given["work_info_set"], _seal(heads, causal_, heads, _FP8, _FP8)):
        ids = pages[a:b].long()
        mask = causal(starts[request + 1] - starts[request], lengths[request + 1] - lengths[request]) if causal_ else None
        rows = slice(low - starts[request], high - starts[request])
        seen = torch.ones(high - low, b - a, dtype=torch.bool) if mask is None else mask[rows, a - lengths[request] : b - lengths[request]]
        out, lse = attention(q[low:high], k[ids], v[ids], scale, seen)
        out = out * float(scales[2])
        if row < 0:
            o[low:high] = out.to(o.dtype)
        else:
            partial[row : row + high - low], partial_lse[row : row + high - low] = out.float(), lse.float()


ENTRIES = {
    name: globals()[name]
    for name in (
        "get_mla_metadata_info_v1",
        "get_mla_metadata_v1",
        "get_ps_metadata_info_v1",
        "get_ps_metadata_v1",
        "mla_prefill_ps_asm_fwd",
        "mla_reduce_v1",
    )
}
