"""Cases of the attention family (MHA, GQA, MQA)."""

from tools import line, point, product, threewise

HEADS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128]
RATIOS = [1, 2, 4, 5, 6, 8, 12, 16]
DIMS = [64, 80, 96, 128, 256]
VALUES = ["peaked", "flat", "low"]
FLAGS = [{"soft_cap": 5.0}, {"sinks": "sinks"}, {"scales": "scaled"}, {"soft_cap": 5.0, "sinks": "sinks", "scales": "scaled"}]
# real shapes on one rank: (heads, kv heads, dim)
SHAPES = [(64, 8, 128), (32, 8, 128), (12, 1, 128), (24, 4, 128), (8, 1, 64), (16, 2, 256), (64, 4, 128), (6, 1, 128)]


def widest(heads):
    """kv heads at the largest of the ratios that divides the heads."""
    return heads // max(ratio for ratio in RATIOS if heads % ratio == 0)


def sweep(name, heads=HEADS, **base):
    """Every head count at the largest ratio that divides it."""
    for count in heads:
        yield point(name, heads=count, kv_heads=widest(count), **base)


def ratios(name, **base):
    for ratio in RATIOS:
        yield point(name, heads=2 * ratio, kv_heads=2, **base)


def flagged(name, *, fp8=True, flags=FLAGS, **base):
    """Each flag and each input family on one shape."""
    for chosen in flags:
        yield point(name, **base, **chosen)
    for values in VALUES:
        yield point(name, **base, values=values)
    if fp8:
        for scales in ("unit", "scaled"):
            yield point(name, **base, cache="e4m3fn", scales=scales)


def flagged_by_dtype(name, **base):
    """bf16 with everything; fp16 and fp32 with what a JIT library needs no further kernel for, fp32 with every flag besides."""
    yield from flagged(name, **base, dtype="bf16")
    yield from flagged(name, **base, dtype="fp16", fp8=False, flags=[{"scales": "scaled"}])
    yield from flagged(name, **base, dtype="fp32", fp8=False)


def _smoke_decode():
    name = "decode_attention"
    yield from sweep(name, batch=1, length=20, dim=16, dtype="fp16")
    for heads in (2, 3, 5, 6, 12, 20):
        yield point(name, batch=1, heads=heads, kv_heads=heads, length=20, dim=16, dtype="fp16")
    yield from ratios(name, batch=1, length=20, dim=16, dtype="fp32")
    small = {"batch": 1, "heads": 2, "kv_heads": 1, "length": 40}
    yield from line(name, "dim", DIMS, **small, dtype="fp16")
    yield point(name, **small, dim=192, v_dim=128, dtype="fp16")
    yield from line(name, "length", [1, 31, 32, 33, 63, 64, 65], **{k: v for k, v in small.items() if k != "length"}, dim=16, dtype="fp16")
    yield from line(name, "window", [0, 6], **small, dim=16, dtype="fp16")
    for kv_heads in (1, 2):
        group = {"batch": 3, "heads": 2, "kv_heads": kv_heads, "length": 40, "dim": 16}
        yield from product(name, **group, page=[1, 16], dtype="fp16", lengths=["ragged", "empty"])
        yield from flagged(name, **{**group, "dim": 64}, dtype="fp16", lengths="ragged")
        yield point(name, **group, dtype="fp16", lengths="empty", sinks="sinks")
    yield from flagged(name, **small, dim=16, dtype="fp32", fp8=False)


def _smoke_extend():
    name = "extend_attention"
    yield from sweep(name, batch=1, new=3, prefix=5, dim=16, dtype="fp16")
    yield from ratios(name, batch=1, new=5, dim=16, dtype="fp32")
    small = {"batch": 1, "heads": 2, "kv_heads": 1, "new": 5, "prefix": 9, "dtype": "fp16"}
    yield from line(name, "dim", DIMS, **small)
    yield point(name, **small, dim=192, v_dim=128)
    three = {"batch": 3, "heads": 2, "kv_heads": 1, "new": 6, "prefix": 11, "dim": 16, "dtype": "fp16"}
    yield from product(name, **three, mask=["causal", "full"], lengths=["ragged", "empty", "cut"], window=[-1, 3])
    yield from product(name, **{**three, "prefix": 0}, mask=["causal", "full"], lengths=["uniform", "ragged", "empty"])
    yield from line(name, "page", [4, 16], **three, lengths="ragged")
    yield from flagged(name, **{**three, "dim": 64}, lengths="ragged")
    yield from flagged(name, **{**three, "batch": 1, "dtype": "fp32"}, fp8=False)
    yield point(name, **three, sinks="sinks", window=3, lengths="empty")
    yield from line(name, "new", [63, 64, 65, 130], batch=1, heads=1, kv_heads=1, prefix=70, dim=16, dtype="fp16")


def _smoke_verify():
    """A prefix of 97 to 128 gives each of split-KV verify's four splits something to do."""
    name = "verify_attention"
    yield from sweep(name, [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24], batch=1, nodes=2, prefix=100, dim=16, dtype="fp16")
    two = {"batch": 2, "heads": 2, "kv_heads": 1, "prefix": 100, "dim": 16, "dtype": "fp16"}
    yield from product(name, **two, nodes=[2, 3, 5, 8], shape=["chain", "tree", "star"])
    yield from product(name, **two, nodes=4, shape=["chain", "tree"], lengths=["ragged", "empty"], page=[1, 4])
    yield from line(name, "prefix", [0, 1, 96, 97, 128, 129], **{**two, "batch": 1}, nodes=4)
    for shape in ("chain", "tree"):
        yield from flagged(name, **{**two, "batch": 1, "dim": 64}, nodes=4, shape=shape)


def _smoke_kv():
    yield from product("kv_write", tokens=5, kv_heads=[1, 2, 3, 8], dim=[16, 80], page=[1, 4], dtype=["fp16", "fp32"])
    yield from product("kv_write", tokens=7, kv_heads=2, dim=64, page=16, dtype=["fp16", "bf16"], slots=["scattered", "run"])
    yield point("kv_write", tokens=4, kv_heads=2, dim=192, v_dim=128, dtype="fp16")
    yield from product("kv_write", tokens=5, kv_heads=2, dim=64, page=4, dtype="fp16", cache="e4m3fn", scales=["unit", "scaled"])
    spans = {"lengths": ["uniform", "ragged", "empty"], "start": ["begin", "later"]}
    yield from product("kv_indices", batch=[1, 5], length=[1, 20], **spans)
    yield from line("kv_indices", "length", [511, 512, 513, 1025], batch=2, page=4, lengths="ragged", start="later")
    yield from product("kv_page_table", batch=3, length=[1, 40], page=[1, 16, 64], **spans)
    yield from line("kv_page_table", "length", [4095, 4096, 4097], batch=2, page=64)


def smoke():
    yield from _smoke_decode()
    yield from _smoke_extend()
    yield from _smoke_verify()
    yield from _smoke_kv()


def _pr_decode():
    name = "decode_attention"
    yield from sweep(name, batch=4, length=300, dtype="bf16", lengths="ragged")
    for heads, kv_heads, dim in SHAPES:
        yield point(name, batch=32, heads=heads, kv_heads=kv_heads, length=1024, dim=dim, dtype="bf16", lengths="ragged")
    base = {"batch": 5, "heads": 16, "kv_heads": 4, "length": 300}
    yield from line(name, "dim", DIMS, **base, dtype="bf16", lengths="ragged")
    yield from ratios(name, batch=3, length=200, dtype="bf16", lengths="ragged")
    yield from product(name, **base, page=[1, 16, 64], dtype=["fp16", "bf16"], lengths=["ragged", "empty"])
    yield from product(name, **base, dtype="fp32", lengths=["ragged", "empty"])
    yield point(name, **base, dim=192, v_dim=128, dtype="bf16")
    yield from flagged_by_dtype(name, **base, lengths="ragged")
    yield from flagged(name, **{**base, "kv_heads": 16}, dtype="bf16", lengths="ragged")
    yield point(name, **{**base, "kv_heads": 16}, dtype="fp16", values="low")
    yield from line(name, "window", [0, 15, 127], **base, page=16, dtype="bf16", lengths="ragged")
    gpt_oss = {"batch": 8, "heads": 8, "kv_heads": 1, "length": 500, "dim": 64, "dtype": "bf16", "sinks": "sinks"}
    yield from line(name, "window", [-1, 127], **gpt_oss, lengths="ragged")
    yield from line(name, "length", [1, 31, 32, 33, 255, 256, 257, 8192], batch=1, heads=8, kv_heads=1, dtype="bf16")


def _pr_extend():
    name = "extend_attention"
    yield from sweep(name, batch=3, new=70, prefix=130, dtype="bf16", lengths="ragged")
    for heads, kv_heads, dim in SHAPES:
        yield point(name, batch=2, heads=heads, kv_heads=kv_heads, new=256, prefix=512, dim=dim, dtype="bf16", lengths="ragged")
    base = {"batch": 6, "heads": 8, "kv_heads": 2, "new": 70, "prefix": 130}
    yield from line(name, "dim", DIMS, **base, dtype="bf16", lengths="ragged")
    yield point(name, **base, dim=192, v_dim=128, dtype="bf16", lengths="ragged")
    yield from ratios(name, batch=2, new=40, prefix=60, dtype="bf16", lengths="ragged")
    yield from product(name, **base, dtype=["bf16", "fp16", "fp32"], lengths=["ragged", "empty", "cut"], mask=["causal", "full"])
    yield from product(name, **{**base, "prefix": 0}, dtype=["bf16", "fp16", "fp32"], lengths=["ragged", "empty"], mask=["causal", "full"])
    yield from product(name, **base, dtype="bf16", page=[16, 64], lengths=["ragged", "empty", "cut"])
    yield from product(name, **base, dtype="bf16", window=[0, 15, 127], lengths=["ragged", "empty", "cut"], mask=["causal", "full"])
    yield from flagged_by_dtype(name, **base, lengths="ragged")
    gpt_oss = {"batch": 4, "heads": 8, "kv_heads": 1, "new": 150, "prefix": 200, "dim": 64, "dtype": "bf16", "sinks": "sinks"}
    yield from line(name, "window", [-1, 127], **gpt_oss, lengths="ragged")
    yield from line(name, "new", [1, 63, 64, 65, 127, 128, 129, 1024], batch=1, heads=8, kv_heads=1, prefix=64, dtype="bf16")


def _pr_verify():
    name = "verify_attention"
    yield from sweep(name, batch=4, nodes=4, prefix=200, dtype="bf16", lengths="ragged")
    base = {"batch": 6, "heads": 8, "kv_heads": 2, "prefix": 300}
    yield from product(name, **base, nodes=[2, 3, 4, 8], dtype=["bf16", "fp16"], shape=["chain", "tree", "star"], lengths="ragged")
    yield from product(name, **base, nodes=4, dtype="bf16", shape=["chain", "tree"], page=[1, 16], lengths=["uniform", "empty"])
    yield from line(name, "prefix", [0, 1, 127, 128, 129, 4095, 4096, 8192], **{**base, "batch": 2}, nodes=4, dtype="bf16")
    for shape in ("chain", "tree"):
        yield from flagged(name, **base, nodes=4, shape=shape, dtype="bf16")
        yield point(name, **base, nodes=4, shape=shape, dtype="fp32")


def _pr_kv():
    shapes = [(1, 64), (2, 128), (8, 128), (3, 80), (16, 256)]
    for kv_heads, dim in shapes:
        yield from product("kv_write", tokens=300, kv_heads=kv_heads, dim=dim, page=[1, 16], dtype=["bf16", "fp16", "fp32"])
    yield from product("kv_write", tokens=300, kv_heads=8, dtype="bf16", cache="e4m3fn", scales=["unit", "scaled"], slots=["scattered", "run"])
    yield from line("kv_write", "tokens", [1, 1024, 8192], kv_heads=8, dtype="bf16")
    yield point("kv_write", tokens=64, kv_heads=4, dim=192, v_dim=128, dtype="bf16")
    spans = {"lengths": ["ragged", "empty"], "start": ["begin", "later"]}
    yield from product("kv_indices", batch=[1, 64], length=[1000], **spans)
    yield from line("kv_indices", "length", [511, 512, 513, 8192, 65537], batch=3, lengths="ragged", start="later")
    yield from product("kv_page_table", batch=16, length=1000, page=[1, 16, 64], **spans)
    yield from line("kv_page_table", "length", [4095, 4096, 4097, 65537], batch=3, page=64)


def pr():
    yield from _pr_decode()
    yield from _pr_extend()
    yield from _pr_verify()
    yield from _pr_kv()


def _arrays():
    heads = {"heads": HEADS, "ratio": RATIOS}
    flags = {"soft_cap": [0.0, 30.0], "sinks": ["nosinks", "sinks"], "scales": ["unit", "scaled"], "values": ["random", *VALUES]}
    layout = {"dim": DIMS, "page": [1, 16, 64], "dtype": ["bf16", "fp16", "fp32"], "cache": ["samekv", "e4m3fn"]}
    lengths = ["uniform", "ragged", "empty"]
    windows = {"window": [-1, 0, 63]}
    yield "decode_attention", {**heads, **layout, **flags, **windows, "batch": [1, 4, 33], "length": [1, 65, 700], "lengths": lengths}
    sizes = {"batch": [1, 5], "new": [1, 33, 200], "prefix": [0, 65, 300], "lengths": [*lengths, "cut"], "mask": ["causal", "full"]}
    yield "extend_attention", {**heads, **layout, **flags, **windows, **sizes}
    sizes = {"batch": [1, 5, 17], "nodes": [2, 4, 7, 8], "prefix": [0, 65, 700], "lengths": lengths, "shape": ["chain", "tree", "star"]}
    yield "verify_attention", {**heads, **layout, **flags, **sizes}


def nightly():
    yield from pr()
    for name, axes in _arrays():
        at = {axis: i for i, axis in enumerate(axes)}
        for values in covering(axes):
            chosen = {axis: values[i] for axis, i in at.items() if axis != "ratio"}
            ratio = values[at["ratio"]]
            kv_heads = chosen["heads"] // ratio if chosen["heads"] % ratio == 0 else widest(chosen["heads"])
            yield point(name, **chosen, kv_heads=kv_heads)
    for heads, kv_heads, dim in SHAPES:
        shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "dtype": "bf16"}
        yield from line("decode_attention", "length", [128, 1024, 4096, 16384, 65536], batch=1, **shape)
        yield from line("decode_attention", "batch", [1, 2, 8, 32, 128], length=2048, page=64, **shape)
        yield from line("extend_attention", "new", [128, 512, 2048, 4096], batch=1, prefix=0, **shape)
        yield from line("extend_attention", "prefix", [512, 4096, 16384], batch=1, new=256, **shape)
        yield from line("verify_attention", "nodes", range(2, 9), batch=16, prefix=2048, **shape)
    for dim in (64, 128, 256):
        for dtype in ("bf16", "fp16"):
            yield from line("decode_attention", "heads", HEADS, batch=8, kv_heads=1, length=1024, dim=dim, dtype=dtype)
            yield from line("extend_attention", "heads", HEADS, batch=1, kv_heads=1, new=256, prefix=256, dim=dim, dtype=dtype)
    yield from threewise("kv_write", tokens=[1, 17, 3000], kv_heads=[1, 2, 3, 4, 8, 16], dim=DIMS, page=[1, 16, 64], dtype=["bf16", "fp16", "fp32"])
    yield from product("kv_indices", batch=[1, 7, 256], length=[1, 513, 4097], lengths=["uniform", "ragged", "empty"], start=["begin", "later"])
    yield from product("kv_page_table", batch=[1, 7, 256], length=[1, 513, 4097], page=[16, 64], lengths=["ragged", "empty"], start=["begin", "later"])


def covering(axes):
    """A covering array of strength three over these axes."""
    from allpairspy import AllPairs

    return AllPairs(list(axes.values()), n=3)
