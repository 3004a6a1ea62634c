"""Tiny cases of the attention, mla, sparse families and the cache that take the branches of kernels: several requests with rows that differ,
head dimensions that are no power of two and not those of values, pages, ragged lengths past a block, NaN where nothing is."""

from collections.abc import Iterator

from tools import Point, point, product

FOUR = {"heads": 4, "kv_heads": 2, "dim": 24, "v_dim": 20, "lengths": "ragged"}
ROPE = {"heads": 4, "kv_heads": 2, "dim": 192, "v_dim": 128, "lengths": "ragged"}  # 128 and 64 columns, loaded apart
KIMI = {"batch": 2, "heads": 12, "kv_heads": 12, "dim": 192, "v_dim": 128, "new": 3, "prefix": 70, "dtype": "fp16"}


def smoke() -> Iterator[Point]:
    # seventeen query heads a kv head: more than a tile, and no whole number of tiles
    yield point("decode_attention", batch=1, heads=34, kv_heads=2, length=1, dim=16, dtype="fp32")
    yield point("decode_attention", batch=3, length=40, **FOUR, dtype="fp32", values="poisoned")
    yield point("extend_attention", batch=3, new=5, prefix=9, **FOUR, dtype="fp32", values="poisoned")
    yield point("verify_attention", batch=2, nodes=3, prefix=100, **{**FOUR, "lengths": "uniform"}, shape="tree", dtype="fp32", values="poisoned")
    positioned = {"heads": 4, "kv_heads": 2, "prefix": 9, "dim": 16, "dtype": "fp32", "lengths": "ragged"}
    yield point("positioned_attention", batch=2, new=3, temperature=4, **positioned)
    yield point("positioned_attention", batch=2, new=1, temperature=4, span=5, **positioned)
    yield point("positioned_attention", batch=2, new=3, prefix=9, span=7, **FOUR, dtype="fp16")


def pr() -> Iterator[Point]:
    shape = {"batch": 3, "heads": 8, "kv_heads": 2, "prefix": 130, "lengths": "ragged", "dtype": "bf16"}
    yield from product("positioned_attention", new=[1, 70], temperature=[0, 64], span=[0, 100], **shape)


def _decode() -> Iterator[Point]:
    name = "decode_attention"
    yield point(name, batch=2, length=70, page=4, **FOUR, dtype="fp16")
    yield point(name, batch=2, length=100, **FOUR, dtype="fp32", values="poisoned")
    yield point(name, batch=2, length=100, **FOUR, dtype="fp32", values="far")
    yield point(name, batch=3, length=40, **{**FOUR, "lengths": "empty"}, dtype="fp32", sinks="sinks")
    yield point(name, batch=2, length=40, **FOUR, dtype="fp32", soft_cap=1.0, scales="scaled")
    yield point(name, batch=2, heads=4, kv_heads=2, length=40, dim=288, v_dim=256, page=4, dtype="fp32", lengths="ragged", values="poisoned")
    yield point(name, batch=1, heads=20, kv_heads=1, length=5, dim=24, dtype="fp32")
    yield point("mla_decode", batch=2, heads=12, length=70, page=4, dtype="fp32", lengths="ragged")


def _extend() -> Iterator[Point]:
    name = "extend_attention"
    yield point(name, batch=2, new=70, prefix=80, page=4, **FOUR, dtype="fp16")
    yield point(name, batch=2, new=70, prefix=80, page=4, **FOUR, dtype="fp32", mask="full")
    one_dim = {"batch": 2, "new": 70, **{key: value for key, value in FOUR.items() if key != "v_dim"}}
    yield point(name, prefix=80, **one_dim, dtype="fp32", mask="full", window=9)
    yield point(name, prefix=80, **one_dim, dtype="fp32", mask="full", window=1)
    yield point(name, prefix=150, **one_dim, dtype="fp32", window=70, values="poisoned")
    yield point(name, **one_dim, dtype="fp32", values="far")
    yield point(name, **{**one_dim, "batch": 3, "lengths": "empty"}, dtype="fp16", mask="full")
    yield point(name, batch=2, new=5, prefix=70, page=4, **ROPE, dtype="fp32", values="poisoned")
    yield point(name, batch=2, new=5, prefix=70, **ROPE, dtype="fp16", mask="full")
    yield point(name, batch=2, new=5, prefix=9, **FOUR, dtype="fp32", soft_cap=1.0, scales="scaled")
    yield point(name, batch=3, new=5, prefix=9, **{**FOUR, "lengths": "empty"}, dtype="fp32", sinks="sinks")
    few = {"heads": 2, "kv_heads": 1, "lengths": "ragged"}
    yield point(name, batch=2, new=5, prefix=130, **few, dim=24, dtype="fp32", values="far")
    yield point(name, batch=3, new=140, prefix=70, **few, dim=24, dtype="fp16")
    yield point(name, **KIMI, lengths="ragged", sinks="sinks")
    yield point(name, **KIMI, mask="full", window=9)
    yield point("mla_prefill", batch=2, heads=3, new=3, prefix=70, chunk=16, dtype="fp32", lengths="ragged")
    yield point("mla_prefill_absorbed", batch=2, heads=12, new=3, prefix=70, page=4, dtype="fp32", lengths="ragged")


def _verify() -> Iterator[Point]:
    name = "verify_attention"
    two = {"batch": 2, "heads": 4, "kv_heads": 2}
    yield point(name, **two, nodes=3, prefix=70, dim=24, v_dim=20, page=4, shape="tree", dtype="fp32", lengths="ragged")
    yield point(name, **two, nodes=70, prefix=70, dim=24, shape="tree", lengths="ragged", dtype="fp16", values="poisoned")
    yield point(name, **two, nodes=3, prefix=300, dim=24, dtype="fp32", values="poisoned")
    yield point(name, **two, nodes=3, prefix=140, dim=24, dtype="fp16", lengths="ragged")
    yield point(name, **two, nodes=5, prefix=40, dim=80, dtype="fp32", lengths="ragged", scales="scaled", values="peaked")
    yield point(name, **two, nodes=3, prefix=600, dim=16, dtype="fp32", values="far")


def _positioned() -> Iterator[Point]:
    name = "positioned_attention"
    yield point(name, batch=2, new=5, prefix=70, temperature=20, **FOUR, dtype="fp32")
    yield point(name, batch=2, new=70, prefix=80, span=40, page=4, **FOUR, dtype="fp16")
    yield point(name, batch=2, new=1, prefix=90, temperature=20, span=30, **{**FOUR, "v_dim": 0}, dtype="fp32")
    yield point(name, batch=1, new=1, prefix=90, temperature=91, heads=4, kv_heads=2, dim=16, dtype="fp32")
    yield point(name, batch=2, new=70, prefix=80, temperature=64, span=90, heads=4, kv_heads=2, dim=16, lengths="ragged", soft_cap=1.0, dtype="fp32")


def _cache() -> Iterator[Point]:
    yield point("kv_write", tokens=7, kv_heads=6, dim=20, page=4, dtype="fp16")
    yield point("kv_write", tokens=7, kv_heads=3, dim=80, page=4, dtype="fp32", slots="run")
    yield point("kv_indices", batch=5, length=600, lengths="ragged", start="later", holes="holes")
    yield point("kv_indices", batch=3, length=1700, lengths="empty", holes="holes")
    yield point("kv_indices", batch=5, length=600, page=4, lengths="ragged", start="later")
    yield point("kv_indices", batch=3, length=40, page=2, lengths="empty")


def _sparse() -> Iterator[Point]:
    yield point("topk_page_table", rows=7, length=50, k=300, selection="holes", group=3)
    yield point("topk_page_table", rows=9, length=50, k=20, selection="empty", group=2)
    yield point("topk_page_table", rows=11, length=50, k=20, selection="ragged", group=7)
    yield from product("sparse_mla_prefill", tokens=3, heads=5, k=200, length=300, dtype="fp32", selection=["holes", "empty"])
    yield point("sparse_mla_prefill", tokens=3, heads=12, k=150, length=300, dtype="fp16", selection="ragged")
    yield point("sparse_mla_prefill", tokens=3, heads=3, k=150, length=300, dtype="fp32", values="far")
    yield point("suffix_merge", tokens=5, heads=6, group=6, suffix=8, dim=80, dtype="fp32", values="far")


def nightly() -> Iterator[Point]:
    yield from pr()
    for part in (_decode, _extend, _verify, _positioned, _cache, _sparse):
        yield from part()
