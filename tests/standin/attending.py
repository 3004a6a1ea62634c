"""The stand-in's attention: paged decode in its three layouts, batch prefill and variable lengths."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from standin.planning import _machine
from standin.shapes import WORDS, attention, bounds, integers, need


def _banded(queries: int, keys: int, is_causal: bool, window: tuple[int, ...]) -> torch.Tensor:
    position = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)[None]
    left, right = window[0], 0 if is_causal else window[1]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if right >= 0:
        seen &= key <= position + right
    if left >= 0:
        seen &= key >= position - left
    return seen


def _grouped(t: torch.Tensor, heads: int) -> torch.Tensor:
    need(heads % t.shape[1] == 0, "query heads a KV head")
    return t.repeat_interleave(heads // t.shape[1], 1)


def _ragged(given: dict[str, Any], keys: list[torch.Tensor], values: list[torch.Tensor], sinks: Any, window: tuple[int, ...]) -> tuple[Any, Any]:
    q = given["q"]
    need(q.dtype in (torch.float16, torch.bfloat16) and q.dim() == 3 and q.is_contiguous(), f"q {q.dtype}")
    integers(cu_seqlens_q=given["cu_seqlens_q"])
    starts = bounds(given["cu_seqlens_q"], q.shape[0], "cu_seqlens_q")
    need(len(starts) == len(keys) + 1, "requests")
    longest = max(b - a for a, b in itertools.pairwise(starts))
    need(given["max_seqlen_q"] == longest and given["max_seqlen_k"] == max(1, *map(len, keys)), "longest lengths")
    need(given["alibi_slopes"] is None and given["dropout_p"] == 0.0 and isinstance(given["causal"], bool), "argument types")
    scale = given["softmax_scale"] if given["softmax_scale"] is not None else q.shape[-1] ** -0.5
    o = torch.full((*q.shape[:2], values[0].shape[-1]), torch.nan, dtype=q.dtype)
    lse = torch.full((q.shape[1], q.shape[0]), torch.nan)
    for request, (k, v) in enumerate(zip(keys, values, strict=True)):
        rows = slice(starts[request], starts[request + 1])
        seen = _banded(rows.stop - rows.start, len(k), given["causal"], window)
        k, v = _grouped(k, q.shape[1]), _grouped(v, q.shape[1])
        out, part = attention(q[rows], k, v, float(scale), seen, float(given["logits_soft_cap"]), sinks)
        o[rows], lse[:, rows] = out.to(q.dtype), part.T.float()
    return o, lse


def _given(given: dict[str, Any], o: torch.Tensor, lse: torch.Tensor) -> Any:
    if given["out"] is not None:
        need(given["out"].shape == o.shape and given["out"].dtype == o.dtype, "out")
        o = given["out"].copy_(o)
    return (o, lse) if given["return_lse"] else o


def flash_attn_varlen_func(given: dict[str, Any]) -> Any:
    """The route of the facts decides which of the caller's arguments reach a kernel: some routes are not handed the sinks."""
    q, k, v = given["q"], given["k"], given["v"]
    need(k.dtype == v.dtype == q.dtype and k.shape[0] == v.shape[0] and q.shape[2] == k.shape[2], "q, k, v")
    integers(cu_seqlens_k=given["cu_seqlens_k"])
    bound = bounds(given["cu_seqlens_k"], k.shape[0], "cu_seqlens_k")
    window, sinks = tuple(given["window_size"]), given.get("sink_ptr")
    need(sinks is None or (sinks.dtype == torch.float32 and sinks.shape == (q.shape[1],)), "sinks fp32 [heads]")
    flag = "sinks" if sinks is not None else "own_key_window" if window[0] == 0 else "lse" if given["return_lse"] else "plain"
    for row in _machine().facts["tables"]["varlen"]:
        if (row["arch"], row["dtype"], row["dims"], row["flag"]) == (_machine().arch, WORDS[q.dtype], [q.shape[2], v.shape[2]], flag):
            sinks = None if "sink_ptr" in row.get("drops", ()) else sinks
    parts = [slice(a, b) for a, b in itertools.pairwise(bound)]
    return _given(given, *_ragged(given, [k[p] for p in parts], [v[p] for p in parts], sinks, window))


def mha_batch_prefill_func(given: dict[str, Any]) -> Any:
    """Keys and values [pages, page, kv_heads, dim] (the linear layout), page ids a request."""
    q, k, v = given["q"], given["k"], given["v"]
    if k.dim() != 4 or v.dim() != 4 or k.shape[-1] != q.shape[-1] or k.shape[1:3] != v.shape[1:3]:
        raise ValueError("the linear layout is [pages, page, kv_heads, dim]")
    pages, ids = given["kv_indptr"], given["kv_page_indices"]
    integers(kv_indptr=pages, kv_page_indices=ids)
    bound, page = bounds(pages, ids.shape[0], "kv_indptr"), k.shape[1]
    last = given.get("kv_last_page_lens")
    need(page == 1 or last is not None, "kv_last_page_lens of pages of several tokens")
    if last is not None:
        integers(kv_last_page_lens=last)
    sinks = given.get("sink_ptr")
    need(sinks is None or (sinks.dtype == torch.float32 and sinks.shape == (q.shape[1],)), "sinks fp32 [heads]")
    keys, values = [], []
    for request, (a, b) in enumerate(itertools.pairwise(bound)):
        length = b - a if page == 1 else max(0, (b - a - 1) * page + int(last[request])) if b > a else 0
        rows = (ids[a:b].long()[:, None] * page + torch.arange(page)).view(-1)[:length]
        keys.append(k.reshape(-1, *k.shape[2:])[rows])
        values.append(v.reshape(-1, *v.shape[2:])[rows])
    return _given(given, *_ragged(given, keys, values, sinks, tuple(given["window_size"])))


def _decode(q: torch.Tensor, out: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor], scale: float, cap: float = 0.0) -> None:
    need(q.dtype in (torch.float16, torch.bfloat16) and out.dtype == q.dtype and out.shape == q.shape and len(keys) == q.shape[0], "q and out")
    for row, (k, v) in enumerate(zip(keys, values, strict=True)):
        k, v = _grouped(k, q.shape[1]), _grouped(v, q.shape[1])
        o, _ = attention(q[row : row + 1], k, v, scale, torch.ones(1, len(k), dtype=torch.bool), cap)
        out[row : row + 1] = o.to(out.dtype)


def paged_attention_ragged(given: dict[str, Any]) -> torch.Tensor:
    """Keys and values as "NHD" [pages, page, kv_heads, dim]; a workspace for every partition of 256 tokens."""
    q, k, v, page = given["query"], given["key_cache"], given["value_cache"], given["block_size"]
    need(k.shape == v.shape and k.dim() == 4 and given["kv_cache_layout"] == "NHD" and k.shape[1] == page and k.shape[3] == q.shape[2], "layout")
    need(isinstance(given["scale"], float) and isinstance(given["logits_soft_cap"], float) and isinstance(given["max_num_partitions"], int), "argument types")
    if given["kv_cache_dtype"] != "auto":
        raise ValueError(f"Unsupported kv_cache_dtype: {given['kv_cache_dtype']}")
    need(all(given[n].dtype == torch.float32 and float(given[n]) == 1.0 for n in ("k_scale", "v_scale")) and given["alibi_slopes"] is None, "scales")
    integers(kv_indptr=given["kv_indptr"], kv_page_indices=given["kv_page_indices"], kv_last_page_lens=given["kv_last_page_lens"])
    bound = bounds(given["kv_indptr"], given["kv_page_indices"].shape[0], "kv_indptr")
    last, keys, values = given["kv_last_page_lens"].tolist(), [], []
    for request, (a, b) in enumerate(itertools.pairwise(bound)):
        length = (b - a - 1) * page + last[request] if b > a else 0
        rows = (given["kv_page_indices"][a:b].long()[:, None] * page + torch.arange(page)).view(-1)[: max(0, length)]
        keys.append(k.reshape(-1, *k.shape[2:])[rows])
        values.append(v.reshape(-1, *v.shape[2:])[rows])
    longest, partitions = max(1, *map(len, keys)), given["max_num_partitions"]
    partial = q.shape[0] * q.shape[1] * partitions
    need(longest <= partitions * given["partition_size"] and given["fp8_out_scale"] is None, "partitions")
    need(
        given["workspace_buffer"].dtype == torch.uint8 and given["workspace_buffer"].numel() >= partial * q.shape[2] * q.element_size() + 8 * partial,
        "workspace",
    )
    _decode(q, given["out"], keys, values, given["scale"], given["logits_soft_cap"])
    return given["out"]


def _vectors(k: torch.Tensor) -> torch.Tensor:
    """Keys [pages, kv_heads, dim / x, page, x] as [pages, page, kv_heads, dim]."""
    need(k.dim() == 5 and k.shape[4] * k.element_size() == 16, f"keys {tuple(k.shape)}")
    return k.permute(0, 3, 1, 2, 4).reshape(k.shape[0], k.shape[3], k.shape[1], -1)


def _by_table(table: torch.Tensor, lengths: torch.Tensor, flat: torch.Tensor, page: int) -> list[torch.Tensor]:
    integers(block_tables=table, context_lens=lengths)
    need(table.shape[0] == lengths.shape[0] and bool((lengths <= table.shape[1] * page).all()) and bool((table < len(flat) // page).all()), "block table")
    return [flat[(row.long()[:, None] * page + torch.arange(page)).view(-1)[: int(n)]] for row, n in zip(table, lengths, strict=True)]


def paged_attention_rocm(given: dict[str, Any]) -> torch.Tensor:
    """Keys in vectors of 16 bytes, values [pages, kv_heads, dim, page]."""
    q, k, v, page = given["query"], _vectors(given["key_cache"]), given["value_cache"], given["block_size"]
    need(v.dim() == 4 and v.shape == (k.shape[0], k.shape[2], k.shape[3], page) and k.shape[1] == page and given["num_kv_heads"] == k.shape[2], "layout")
    partitions = -(-given["max_context_len"] // given["partition_size"])
    shape = (q.shape[0], q.shape[1], partitions)
    for name, wanted, dtype in (("exp_sums", shape, torch.float32), ("max_logits", shape, torch.float32), ("tmp_out", (*shape, q.shape[2]), q.dtype)):
        if given[name].shape != wanted or given[name].dtype != dtype:
            raise ValueError(f"{name} has shape {tuple(given[name].shape)}, not {wanted}")
    need(
        isinstance(given["scale"], float) and given["alibi_slopes"] is None and given["fp8_out_scale"] is None and given["kv_cache_dtype"] == "auto",
        "argument types",
    )
    need(all(given[n].dtype == torch.float32 and float(given[n]) == 1.0 for n in ("k_scale", "v_scale")), "scales")
    values = v.permute(0, 3, 1, 2).reshape(-1, *k.shape[2:])
    lengths = given["context_lens"]
    need(int(lengths.max()) <= given["max_context_len"], "max_context_len")
    table = given["block_tables"]
    _decode(q, given["out"], _by_table(table, lengths, k.reshape(-1, *k.shape[2:]), page), _by_table(table, lengths, values, page), given["scale"])
    return given["out"]


def pa_fwd_asm(given: dict[str, Any]) -> torch.Tensor:
    """Keys and values in vectors of 16 bytes; the scale is that of 128."""
    from standin.kernels import refuse

    q, k, v = given["Q"], _vectors(given["K"]), given["V"]
    if q.shape[2] != 128:
        refuse("pa_fwd", "head_size 128")
    group, heads = q.shape[1] // k.shape[2], {q.shape[1] // k.shape[2], -(-(q.shape[1] // k.shape[2]) // 8) * 8}
    kinds = (_machine().arch, WORDS[q.dtype], WORDS[k.dtype])
    if k.shape[1] != 16 or not any((r["arch"], r["q"], r["kv"]) == kinds and r["group"] in heads for r in _machine().facts["tables"]["pa"]):
        refuse("pa_fwd", f"no kernel for {group} query heads a KV head, pages of {k.shape[1]}")
    need(v.shape == (k.shape[0], k.shape[2], 2, 128, 8) and given["max_qlen"] == 1 and given["qo_indptr"] is None, f"values {tuple(v.shape)}")
    need(given["block_tables_stride0"] == given["block_tables"].stride(0) and given["K_QScale"] is None and given["V_QScale"] is None, "stride of the table")
    values = v.permute(0, 2, 4, 1, 3).reshape(-1, k.shape[2], 128)
    out = given["out_"] if given["out_"] is not None else torch.empty_like(q)
    keys = _by_table(given["block_tables"], given["context_lens"], k.reshape(-1, *k.shape[2:]), 16)
    _decode(q, out, keys, _by_table(given["block_tables"], given["context_lens"], values, 16), 128**-0.5)
    return out


ENTRIES = {
    name: globals()[name]
    for name in (
        "flash_attn_varlen_func",
        "mha_batch_prefill_func",
        "paged_attention_ragged",
        "paged_attention_rocm",
        "pa_fwd_asm",
    )
}
