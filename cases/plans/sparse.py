"""Cases of the sparse family. Gates: 16 and 32 heads and powers of two, multiples of 128 indices (FlashMLA), 512 and 2,048 (fast_topk)."""

from tools import line, pairwise, product, threewise

HEADS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128]
HALF, ALL = ["fp16", "bf16"], ["fp32", "fp16", "bf16"]
SELECTIONS = ["full", "ragged", "holes", "empty"]
SCORES = ["random", "ties", "flat", "narrow", "wide"]


def smoke():
    yield from product("sparse_mla_prefill", tokens=1, heads=[h for h in HEADS if h <= 32], k=16, length=30, dtype="fp16")
    yield from product("sparse_mla_prefill", tokens=4, heads=[5], k=20, length=[9, 70], dtype="fp32", selection=SELECTIONS)
    yield from product("sparse_mla_decode", tokens=2, heads=[12], k=16, length=30, dtype="fp16", selection=["full", "ragged"])
    yield from product("sparse_mla_decode", tokens=1, heads=[4], k=64, length=70, dtype="bf16", cache=["samekv", "packed", "e4m3fn"])
    yield from product("indexer_topk", rows=3, length=[100, 2048, 2049, 3000], values=SCORES)
    yield from product("indexer_topk", rows=4, length=700, k=[1, 16, 512], lengths=["ragged", "emptyrows"], starts=["aligned", "offset"])
    yield from product("topk_page_table", rows=3, length=[50, 3000], selection=SELECTIONS)
    yield from product("topk_page_table", rows=3, length=300, k=[16, 512, 2051], selection="ragged")
    yield from product("valid_kv_indices", rows=3, k=[16, 512], selection=SELECTIONS)
    yield from product("valid_kv_indices", rows=2, k=[12, 2051])


def pr():
    for op in ("sparse_mla_prefill", "sparse_mla_decode"):
        yield from product(op, tokens=4, heads=[4, 8, 12, 16, 24, 32, 64, 128], k=128, length=500, dtype="bf16", selection="ragged")
        yield from product(op, tokens=5, heads=12, k=[100, 2048], length=3000, dtype="bf16", selection=SELECTIONS)
        yield from product(op, tokens=5, heads=[12], k=256, length=100, dtype=ALL)
        yield from product(op, tokens=3, heads=[12, 16], k=256, length=700, dtype="bf16", cache=["e4m3fn", "allfp8", "packed", "e4m3fnuz"], selection="ragged")
        yield from product(op, tokens=[133, 300], heads=[8], k=256, length=1000, dtype="bf16")
    yield from product("indexer_topk", rows=[5], length=[1000, 2047, 2048, 2049, 40000], values=["random", "ties"])
    yield from product("indexer_topk", rows=[3], length=[3000, 40000], values=["flat", "narrow", "wide"])
    yield from product("indexer_topk", rows=9, length=[3000], k=[512, 2048], lengths="emptyrows", starts=["aligned", "offset"])
    yield from product("indexer_topk", rows=5, length=3000, k=[1, 1024], lengths="ragged")
    yield from product("topk_page_table", rows=[33], length=5000, k=[512, 2048, 2051], selection=["ragged", "holes"])
    yield from product("valid_kv_indices", rows=[33], k=[64, 100, 2048], selection=["holes", "empty"])


def nightly():
    yield from pr()
    caches, few = ["samekv", "e4m3fn", "allfp8", "packed"], [1, 12, 16, 24, 64, 128]
    for op in ("sparse_mla_prefill", "sparse_mla_decode"):
        yield from threewise(op, tokens=[1, 200], heads=few, k=[64, 512, 2048], length=[100, 3000], dtype=["bf16"], cache=caches, selection=SELECTIONS)
        yield from pairwise(op, tokens=[1, 7, 64], heads=HEADS, k=[16, 100, 1024], length=[50, 2000], dtype=ALL, selection=SELECTIONS)
        for heads in (8, 16):
            yield from line(op, "tokens", [1, 4, 16, 64, 128, 512, 1024], heads=heads, k=2048, length=16384, dtype="bf16")
        yield from line(op, "heads", HEADS, tokens=64, k=2048, length=4096, dtype="bf16")
    yield from threewise(
        "indexer_topk",
        rows=[1, 133],
        length=[2048, 2049, 65537],
        k=[512, 2048],
        lengths=["equal", "ragged", "emptyrows"],
        starts=["aligned", "offset"],
        values=SCORES,
    )
    yield from line("indexer_topk", "length", [2048, 4096, 8192, 16384, 32768, 65536, 131072], rows=64)
    yield from line("indexer_topk", "rows", [1, 4, 16, 64, 256, 1024], length=16384)
    yield from threewise("topk_page_table", rows=[1, 64, 3000], length=[100, 20000], k=[16, 512, 2048, 2051], selection=SELECTIONS)
    yield from threewise("valid_kv_indices", rows=[1, 64, 3000], k=[16, 512, 2048], selection=SELECTIONS)
