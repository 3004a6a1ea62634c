"""Tiny cases of the attention, mla, sparse families and the cache that take the branches of kernels: several requests with rows that differ,
head dimensions that are no power of two and not those of values, three kv heads, pages, ragged lengths past a block, NaN where nothing is."""

from collections.abc import Iterator

from tools import Point, point, product

THREE = {"heads": 6, "kv_heads": 3, "dim": 24, "v_dim": 20, "lengths": "ragged"}
ROPE = {"heads": 4, "kv_heads": 2, "dim": 192, "v_dim": 128, "lengths": "ragged"}  # 128 and 64 columns, loaded apart
KIMI = {"batch": 2, "heads": 12, "kv_heads": 12, "dim": 192, "v_dim": 128, "new": 3, "prefix": 70, "dtype": "fp16"}


def smoke() -> Iterator[Point]:
    # seventeen query heads a kv head: more than a tile, and no whole number of tiles
    yield point("decode_attention", batch=1, heads=34, kv_heads=2, length=1, dim=16, dtype="fp32")
    yield point("decode_attention", batch=3, length=40, **THREE, dtype="fp32", values="poisoned")
    yield point("extend_attention", batch=3, new=5, prefix=9, **THREE, dtype="fp32", values="poisoned")
    yield point("verify_attention", batch=2, nodes=3, prefix=100, **{**THREE, "lengths": "uniform"}, shape="tree", dtype="fp32", values="poisoned")
    positioned = {"heads": 4, "kv_heads": 2, "prefix": 9, "dim": 16, "dtype": "fp32", "lengths": "ragged"}
    yield point("positioned_attention", batch=2, new=3, temperature=4, **positioned)
    yield point("positioned_attention", batch=2, new=1, temperature=4, span=5, **positioned)
    yield point("positioned_attention", batch=2, new=3, prefix=9, span=7, **THREE, dtype="fp16")


def pr() -> Iterator[Point]:
    shape = {"batch": 3, "heads": 8, "kv_heads": 2, "prefix": 130, "lengths": "ragged", "dtype": "bf16"}
    yield from product("positioned_attention", new=[1, 70], temperature=[0, 64], span=[0, 100], **shape)


def _decode() -> Iterator[Point]:
    name = "decode_attention"
    yield point(name, batch=4, length=70, page=4, **THREE, dtype="fp16")
    yield point(name, batch=4, length=150, **THREE, dtype="fp32", values="poisoned")
    yield point(name, batch=4, length=40, **{**THREE, "lengths": "empty"}, dtype="fp32", sinks="sinks")
    yield point(name, batch=2, heads=6, kv_heads=2, length=70, dim=288, v_dim=256, page=4, dtype="fp32", lengths="ragged", values="poisoned")
    yield point("mla_decode", batch=2, heads=12, length=70, page=4, dtype="fp32", lengths="ragged")


def _extend() -> Iterator[Point]:
    name = "extend_attention"
    yield point(name, batch=3, new=70, prefix=80, page=4, **THREE, dtype="fp16")
    yield point(name, batch=3, new=70, prefix=80, page=4, **THREE, dtype="fp32", mask="full")
    one_dim = {"batch": 3, "new": 70, **{key: value for key, value in THREE.items() if key != "v_dim"}}
    yield point(name, prefix=80, **one_dim, dtype="fp32", mask="full", window=9)
    yield point(name, prefix=150, **one_dim, dtype="fp32", window=70, values="poisoned")
    yield point(name, **one_dim, dtype="fp32")
    yield point(name, **{**one_dim, "lengths": "empty"}, dtype="fp16", mask="full")
    yield point(name, batch=3, new=5, prefix=70, page=4, **ROPE, dtype="fp32", values="poisoned")
    yield point(name, batch=2, new=5, prefix=130, **ROPE, dtype="fp16", mask="full")
    yield point(name, batch=3, new=5, prefix=9, **THREE, dtype="fp32", soft_cap=5.0, scales="scaled")
    yield point(name, batch=3, new=5, prefix=9, **{**THREE, "lengths": "empty"}, dtype="fp32", sinks="sinks")
    yield point(name, batch=3, new=65, prefix=130, heads=2, kv_heads=1, dim=16, dtype="fp32", lengths="empty", values="peaked")
    yield point(name, batch=3, new=140, prefix=70, heads=2, kv_heads=1, dim=24, dtype="fp16", lengths="ragged")
    yield point(name, **KIMI, lengths="ragged", sinks="sinks")
    yield point(name, **KIMI, mask="full", window=9)
    yield point("mla_prefill", batch=2, heads=3, new=3, prefix=70, chunk=16, dtype="fp32", lengths="ragged")
    yield point("mla_prefill", batch=2, heads=12, new=3, prefix=70, dtype="fp32", lengths="ragged")
    yield point("mla_prefill_absorbed", batch=2, heads=12, new=3, prefix=70, page=4, dtype="fp32", lengths="ragged")


def _verify() -> Iterator[Point]:
    name = "verify_attention"
    yield point(name, batch=3, nodes=3, prefix=70, page=4, **THREE, shape="tree", dtype="fp32")
    wide = {"batch": 3, "heads": 4, "kv_heads": 2}
    yield point(name, **wide, nodes=70, prefix=70, dim=24, shape="tree", lengths="ragged", dtype="fp16", values="poisoned")
    one_dim = {"batch": 3, "nodes": 3, "heads": 6, "kv_heads": 3, "dim": 24}
    yield point(name, **one_dim, prefix=300, dtype="fp32", values="poisoned")
    yield point(name, **one_dim, prefix=140, dtype="fp16", lengths="ragged")
    yield point(name, **wide, nodes=5, prefix=40, dim=80, dtype="fp32", lengths="ragged", scales="scaled", values="peaked")
    yield point(name, **{**wide, "batch": 2}, nodes=1, prefix=600, dim=16, dtype="fp32", lengths="ragged", values="peaked")


def _positioned() -> Iterator[Point]:
    name = "positioned_attention"
    yield point(name, batch=3, new=5, prefix=70, temperature=20, **THREE, dtype="fp32")
    yield point(name, batch=3, new=70, prefix=80, span=40, page=4, **THREE, dtype="fp16")
    yield point(name, batch=4, new=1, prefix=90, temperature=20, span=30, **{**THREE, "v_dim": 0}, dtype="fp32")
    small = {"heads": 6, "kv_heads": 2, "dim": 16, "lengths": "ragged", "soft_cap": 5.0}
    yield point(name, batch=3, new=70, prefix=80, temperature=64, span=90, **small, dtype="fp32")


def _cache() -> Iterator[Point]:
    yield point("kv_write", tokens=7, kv_heads=6, dim=20, page=4, dtype="fp16")
    yield point("kv_write", tokens=7, kv_heads=3, dim=80, page=4, dtype="fp32", slots="run")
    yield point("kv_indices", batch=5, length=600, lengths="ragged", start="later", holes="holes")
    yield point("kv_indices", batch=3, length=1700, lengths="empty", holes="holes")
    yield point("kv_indices", batch=5, length=600, page=4, lengths="ragged", start="later")
    yield point("kv_indices", batch=3, length=40, page=3, lengths="empty")


def _sparse() -> Iterator[Point]:
    yield point("topk_page_table", rows=7, length=50, k=300, selection="holes", group=3)
    yield point("topk_page_table", rows=9, length=50, k=20, selection="empty", group=2)
    yield point("topk_page_table", rows=11, length=50, k=20, selection="ragged", group=7)
    yield from product("sparse_mla_prefill", tokens=3, heads=5, k=200, length=300, dtype="fp32", selection=["holes", "empty"])
    yield point("sparse_mla_prefill", tokens=3, heads=12, k=150, length=300, dtype="fp16", selection="ragged")


def nightly() -> Iterator[Point]:
    yield from pr()
    for part in (_decode, _extend, _verify, _positioned, _cache, _sparse):
        yield from part()
