"""The stand-in's MLA on the paged latent cache: decode at once or along a plan, and the absorbed prefill."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from standin.planning import _look, _machine, _seal, mla_reduce_v1, works
from standin.shapes import FP8, WORDS, attention, bounds, causal, integers, need


def _scaled(given: dict[str, Any], native: str) -> float:
    """What queries and cache count times; fp8 queries without scales are refused."""
    from standin.kernels import refuse

    q, kv = given["q"], given["kv_buffer"]
    scales = [given["q_scale"], given["kv_scale"]]
    if q.dtype in FP8 and None in scales:
        refuse(native, "fp8 queries need q_scale and kv_scale")
    need(all(s is None or (s.dtype == torch.float32 and s.shape == (1,)) for s in scales), "scales fp32 [1]")
    if kv.dtype in FP8:
        need(
            kv.dtype == {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}[_machine().arch],
            f"an fp8 flavour that this architecture does not read: {kv.dtype}",
        )
    q_scale, kv_scale = (1.0 if s is None else float(s) for s in scales)
    need(q.dtype in FP8 or q_scale == 1.0, "q_scale without fp8 queries")
    return q_scale, kv_scale


def _latent(given: dict[str, Any], native: str) -> tuple[list[int], list[torch.Tensor]]:
    """(qo starts, slots of each request's keys), after the checks that every MLA entry point makes."""
    from standin.kernels import refuse

    q, kv, o = given["q"], given["kv_buffer"], given["o"]
    need(kv.dim() == 4 and q.dim() == 3 and o.dim() == 3, f"q {tuple(q.shape)}, kv_buffer {tuple(kv.shape)}, o {tuple(o.shape)}")
    if not q.is_contiguous():
        refuse(native, "Q is not contiguous")
    if kv.shape[2] != 1 or given.get("nhead_kv", 1) != 1:
        refuse(native, "one KV head")
    if q.shape[2] != kv.shape[3]:
        refuse(native, f"head sizes {q.shape[2]} and {kv.shape[3]}")
    need(o.shape == (*q.shape[:2], 512) and o.dtype == torch.bfloat16 and o.is_contiguous(), f"o {tuple(o.shape)} {o.dtype}")
    names = ("qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_lens")
    integers(**{name: given[name] for name in names})
    starts = bounds(given["qo_indptr"], q.shape[0], "qo_indptr")
    pages = bounds(given["kv_indptr"], given["kv_indices"].shape[0], "kv_indptr")
    page = given.get("page_size", kv.shape[1])
    last = given["kv_last_page_lens"].tolist()
    need(len(starts) == len(pages) == len(last) + 1 and all(0 <= n <= page for n in last), "lengths a request")
    need(all(n > 0 for n, a, b in zip(last, pages, pages[1:], strict=False) if b > a), "kv_last_page_lens of a request with keys")
    need(isinstance(given["max_seqlen_q"], int) and max(b - a for a, b in itertools.pairwise(starts)) == given["max_seqlen_q"], "max_seqlen_q")
    slots = []
    for request, tail in enumerate(last):
        ids = given["kv_indices"][pages[request] : pages[request + 1]].long()
        need(bool(((ids >= 0) & (ids < kv.shape[0])).all()), "page ids")
        token = torch.arange(page)
        whole = (ids[:, None] * kv.shape[1] + token).view(-1)
        slots.append(whole[: max(0, (len(ids) - 1) * page + tail)] if len(ids) else whole)
    return starts, slots


def _attend(given: dict[str, Any], rows: slice, keys: torch.Tensor, seen: torch.Tensor, scales: tuple[float, float]) -> tuple[Any, Any]:
    flat = given["kv_buffer"].reshape(-1, 1, given["kv_buffer"].shape[3])
    need(bool((keys < flat.shape[0]).all()), "key slots")
    kv = flat[keys].double().expand(-1, given["q"].shape[1], -1) * scales[1]
    scale = given["sm_scale"] if given["sm_scale"] is not None else given["kv_buffer"].shape[3] ** -0.5
    return attention(given["q"][rows].double() * scales[0], kv, kv[..., :512], float(scale), seen)


def mla_decode_fwd(given: dict[str, Any]) -> tuple[Any, Any]:
    """Without metadata at once; with it along the plan and through the reduction."""
    from standin.kernels import refuse

    if given["logit_cap"] > 0:
        raise AssertionError("logit_cap")
    native = "mla_decode_stage1_asm_fwd"
    planned = given["work_meta_data"] is not None
    q, o, heads, queries = given["q"], given["o"], given["q"].shape[1], given["max_seqlen_q"]
    fixed = {"arch": _machine().arch, "q": WORDS[q.dtype], "kv": WORDS[given["kv_buffer"].dtype]}
    kernel_heads = heads
    if planned:
        arm = _look("mla_decode_fwd_persistent", heads, queries, **fixed)
        if "refused" in arm:
            raise AssertionError(f"{heads} heads and {queries} queries ({arm['refused']})")
        kernel_heads = 16 if arm["takes"] == "fold" else heads
    elif WORDS[q.dtype] == "fp8" and str(heads * queries) not in _machine().facts["constants"]["get_block_n_fp8"]["value"]:
        raise KeyError(heads * queries)
    asked = int(given["return_lse"] and planned and bool(_look("mla_decode_stage1", 16, 1, ps=1, lse=1)))
    row = _look("mla_decode_stage1", kernel_heads, queries, **fixed, ps=int(planned), lse=asked)
    if "refused" in row:
        refuse(native, f"{row['refused']}: {kernel_heads} heads, {queries} queries, {fixed}")
    starts, slots = _latent(given, native)
    scales = _scaled(given, native)
    lse = torch.full((q.shape[0], heads), torch.nan) if given["return_lse"] else None
    if planned:
        _along_the_plan(given, starts, slots, scales, lse)
    else:
        for request, keys in enumerate(slots):
            rows = slice(starts[request], starts[request + 1])
            out, part = _attend(given, rows, keys, causal(rows.stop - rows.start, len(keys)), scales)
            o[rows] = out.to(o.dtype)
            # before page_size became an argument the merge kernel wrote no log-sum-exp; since, one split of fp8 queries leaves it out
            if lse is not None and "page_size" in given and not _one_split(given):
                lse[rows] = part.float()
    return o, lse


def _one_split(given: dict[str, Any]) -> bool:
    """Whether fp8 queries get one split: as many as whole blocks fit a request's share of the page ids, which are taken for tokens."""
    q, requests, keys = given["q"], given["qo_indptr"].shape[0] - 1, given["kv_indices"].shape[0]
    if q.dtype not in FP8:
        return False
    block = _machine().facts["constants"]["get_block_n_fp8"]["value"][str(q.shape[1] * given["max_seqlen_q"])]
    return keys <= requests * block or abs(keys / requests - given["max_seqlen_q"]) < block


def _along_the_plan(given: dict[str, Any], starts: list[int], slots: list[torch.Tensor], scales: tuple[float, float], lse: Any) -> None:
    """Each work item's keys are whole pages of its request; split ones land in partial rows that the reduction merges."""
    q, o = given["q"], given["o"]
    heads, queries, page = q.shape[1], given["max_seqlen_q"], given.get("page_size", given["kv_buffer"].shape[1])
    integers(**{name: given[name] for name in ("work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map", "reduce_partial_map")})
    places = given["work_meta_data"].view(torch.int64).tolist()
    need(places == [given["work_indptr"].data_ptr(), given["work_info_set"].data_ptr()], "work_meta_data points elsewhere")
    rows_of = given["reduce_partial_map"].shape[0] * queries
    partial, partial_lse = torch.full((rows_of, 1, heads, 512), torch.nan), torch.full((rows_of, 1, heads, 1), torch.nan)
    seal = _seal(heads, queries, given.get("page_size", 0), q.dtype, given["kv_buffer"].dtype)
    kv = given["kv_indptr"].tolist()
    for request, row, low, high, a, b, _, _ in works(given["work_indptr"], given["work_info_set"], seal):
        need(starts[request] <= low <= high <= starts[request + 1], "queries of a work item")
        first = (a - kv[request]) * page
        keys = slots[request][first : (b - kv[request]) * page]
        seen = causal(high - low, len(slots[request]))[:, first : first + len(keys)]
        out, part = _attend(given, slice(low, high), keys, seen, scales)
        if row < 0:
            o[low:high] = out.to(o.dtype)
            if lse is not None:
                lse[low:high] = part.float()
        else:
            at = slice(row, row + high - low)
            partial[at, 0], partial_lse[at, 0, :, 0] = out.float(), part.float()
    maps = {name: given[name] for name in ("reduce_indptr", "reduce_final_map", "reduce_partial_map")}
    # a fold to 16 heads is undone before the reduction here: 16 is what the router is asked for
    folded = (
        _look("mla_decode_fwd_persistent", heads, queries, arch=_machine().arch, q=WORDS[q.dtype], kv=WORDS[given["kv_buffer"].dtype]).get("takes") == "fold"
    )
    for head in range(0, heads, 16) if folded else (0,):
        own = slice(head, head + 16 if folded else heads)
        out, total = o[:, own].contiguous(), None if lse is None else lse[:, own].contiguous()
        states = {"partial_output": partial[:, :, own].contiguous(), "partial_lse": partial_lse[:, :, own].contiguous()}
        mla_reduce_v1({**states, **maps, "max_seqlen_q": queries, "num_kv_splits": 0, "final_output": out, "final_lse": total})
        o[:, own] = out
        if lse is not None:
            lse[:, own] = total


def mla_prefill_fwd(given: dict[str, Any]) -> tuple[Any, Any]:
    """The absorbed prefill in bf16."""
    from standin.kernels import refuse

    q, kv, o, native = given["q"], given["kv_buffer"], given["o"], "mla_prefill_asm_fwd"
    row = _look("mla_prefill", q.shape[1], 0, arch=_machine().arch, q=WORDS[q.dtype], kv=WORDS[kv.dtype], causal=0)
    if "refused" in row:
        refuse(native, f"{row['refused']}: {q.shape[1]} heads of {WORDS[q.dtype]}/{WORDS[kv.dtype]}")
    starts, slots = _latent(given, native)
    lse = torch.full((q.shape[0], 1, q.shape[1], 1), torch.nan)
    for request, keys in enumerate(slots):
        rows = slice(starts[request], starts[request + 1])
        out, part = _attend(given, rows, keys, causal(rows.stop - rows.start, len(keys)), (1.0, 1.0))
        o[rows], lse[rows, 0, :, 0] = out.to(o.dtype), part.float()
    return o, lse


ENTRIES = {"mla_decode_fwd": mla_decode_fwd, "mla_prefill_fwd": mla_prefill_fwd}
