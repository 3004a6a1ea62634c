"""Cases of the attention family (MHA, GQA, MQA)."""

from tools import covering, line, point, product, threewise

HEADS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128]
RATIOS = [1, 2, 4, 5, 6, 8, 12, 16]
DIMS = [64, 80, 96, 128, 256]
VALUES = ["peaked", "flat", "low"]
FP8 = ["e4m3fn", "e4m3fnuz"]  # a device has one of them
FLAGS = [{"soft_cap": 5.0}, {"sinks": "sinks"}, {"scales": "scaled"}, {"soft_cap": 5.0, "sinks": "sinks", "scales": "scaled"}]
# real shapes on one rank: (heads, kv heads, dim)
SHAPES = [(64, 8, 128), (32, 8, 128), (12, 1, 128), (24, 4, 128), (8, 1, 64), (64, 4, 128), (6, 1, 128)]
WIDE = (16, 2, 256)


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


def flagged_once(name, *, keys, **base):
    """What a JIT library builds a kernel for, once and alike for every op (head dimension 128, bf16); fp32 with the same flags, which
    those libraries do not take; input families. `keys` names their axis: sinks want few keys, or they have no weight."""
    few = {**base, keys: 24}
    for dtype in ("bf16", "fp32"):
        yield point(name, **base, dtype=dtype, soft_cap=5.0)
        yield point(name, **few, dtype=dtype, sinks="sinks")
        yield point(name, **base, dtype=dtype, scales="scaled")
    yield from product(name, **base, dtype="bf16", cache=FP8, scales="scaled")
    yield from product(name, **base, values=VALUES, dtype="bf16")


def flagged_fully(name, *, keys, **base):
    """Every flag by itself and all together, in bf16, fp16 and fp32."""
    for dtype in ("bf16", "fp16", "fp32"):
        for flags in FLAGS:
            yield point(name, **{**base, keys: 24} if "sinks" in flags else base, dtype=dtype, **flags)
    yield from product(name, **base, dtype="bf16", cache=FP8)
    yield from line(name, "values", VALUES, **base, dtype="fp16")


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
    yield from line(name, "length", [1, 15, 16, 17, 33], batch=1, heads=2, kv_heads=1, dim=16, page=16, dtype="fp16")
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
    yield from line(name, "prefix", [10, 11, 12], batch=1, heads=2, kv_heads=1, new=5, dim=16, page=16, dtype="fp16")
    yield from line(name, "new", [63, 64, 65, 130], batch=1, heads=1, kv_heads=1, prefix=70, dim=16, dtype="fp16")


def _smoke_verify():
    """A prefix of 97 to 128 gives each of split-KV verify's four splits something to do."""
    name = "verify_attention"
    yield from sweep(name, [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24], batch=1, nodes=2, prefix=100, dim=16, dtype="fp16")
    two = {"batch": 2, "heads": 2, "kv_heads": 1, "prefix": 100, "dim": 16, "dtype": "fp16"}
    yield from product(name, **two, nodes=[2, 3, 5, 8], shape=["chain", "tree", "star"])
    yield from product(name, **two, nodes=4, shape=["chain", "tree"], lengths=["ragged", "empty"], page=[1, 4])
    yield from line(name, "prefix", [0, 1, 96, 97, 128, 129], **{**two, "batch": 1}, nodes=4)
    yield from line(name, "prefix", [11, 12, 13], **{**two, "batch": 1}, nodes=4, page=16)
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
    # several key blocks in each of two splits
    yield from product("decode_attention", batch=1, heads=[2, 4], kv_heads=2, length=150, dim=16, dtype="fp32")
    yield from product("decode_attention", batch=1, heads=8, kv_heads=8, length=150, dim=16, dtype="fp32")
    # one query and key more than whole blocks, at a width that is no power of two
    yield point("extend_attention", batch=1, heads=1, kv_heads=1, new=129, dim=80, dtype="fp16")
    yield point("verify_attention", batch=2, heads=2, kv_heads=1, nodes=2, prefix=100, dim=80, dtype="fp16")


DECODE = {"batch": 5, "heads": 16, "kv_heads": 4, "length": 300}
EXTEND = {"batch": 6, "heads": 8, "kv_heads": 2, "new": 70, "prefix": 130}
VERIFY = {"batch": 6, "heads": 8, "kv_heads": 2, "prefix": 300}


def _pr_decode():
    name = "decode_attention"
    yield from sweep(name, batch=4, length=300, dtype="bf16", lengths="ragged")
    for heads, kv_heads, dim in SHAPES[:5]:
        yield point(name, batch=32, heads=heads, kv_heads=kv_heads, length=1024, dim=dim, dtype="bf16", lengths="ragged")
    yield from line(name, "dim", [80, 96], **DECODE, dtype="bf16", lengths="ragged")
    yield from ratios(name, batch=3, length=200, dtype="bf16", lengths="ragged")
    yield from product(name, **DECODE, page=[1, 64], dtype="bf16", lengths=["ragged", "empty"])
    yield point(name, **DECODE, page=16, dtype="bf16", lengths="ragged")
    yield from product(name, **DECODE, dtype=["fp16", "fp32"], lengths=["ragged", "empty"])
    yield from flagged_once(name, keys="length", **DECODE, lengths="ragged")
    yield from product(name, **{**DECODE, "kv_heads": 16}, dtype="bf16", lengths="ragged", cache=FP8, scales="scaled")
    yield point(name, **{**DECODE, "kv_heads": 16}, dtype="fp16", values="low")
    yield from line(name, "window", [0, 127], **DECODE, page=16, dtype="bf16", lengths="ragged")
    yield from line(name, "length", [1, 256, 257, 8192], batch=1, heads=8, kv_heads=1, dtype="bf16")


def _pr_extend():
    name = "extend_attention"
    yield from sweep(name, batch=3, new=70, prefix=130, dtype="bf16", lengths="ragged")
    for heads, kv_heads, dim in SHAPES[:5]:
        yield point(name, batch=2, heads=heads, kv_heads=kv_heads, new=256, prefix=512, dim=dim, dtype="bf16", lengths="ragged")
    yield from line(name, "dim", [80, 96], **EXTEND, dtype="bf16", lengths="ragged")
    yield from product(name, **EXTEND, dtype="bf16", lengths=["ragged", "empty", "cut"], mask=["causal", "full"])
    yield from product(name, **EXTEND, dtype="fp32", lengths=["ragged", "empty", "cut"])
    yield from product(name, **EXTEND, dtype="fp16", mask=["causal", "full"])
    yield from product(name, **{**EXTEND, "prefix": 0}, dtype="bf16", lengths=["ragged", "empty"])
    yield from product(name, **EXTEND, dtype="bf16", page=[16, 64], lengths="ragged")
    yield from product(name, **EXTEND, dtype="bf16", window=[0, 127], lengths="ragged")
    yield point(name, **EXTEND, dtype="bf16", window=15, lengths="empty", mask="full")
    yield from flagged_once(name, keys="prefix", **{**EXTEND, "new": 20}, lengths="ragged")
    yield from line(name, "new", [1, 64, 65, 1024], batch=1, heads=8, kv_heads=1, prefix=64, dtype="bf16")


def _pr_verify():
    name = "verify_attention"
    yield from sweep(name, batch=4, nodes=4, prefix=200, dtype="bf16", lengths="ragged")
    yield from product(name, **VERIFY, nodes=[2, 8], dtype="bf16", shape=["chain", "tree", "star"], lengths="ragged")
    yield from product(name, **VERIFY, nodes=3, dtype="fp16", shape=["chain", "tree"], lengths="ragged")
    yield from product(name, **VERIFY, nodes=4, dtype="bf16", shape="chain", page=[1, 16], lengths="empty")
    yield from line(name, "prefix", [0, 128, 129, 8192], **{**VERIFY, "batch": 2}, nodes=4, dtype="bf16")
    yield from flagged_once(name, keys="prefix", **VERIFY, nodes=4)
    yield point(name, **VERIFY, nodes=4, shape="tree", dtype="bf16", soft_cap=5.0)
    yield from product(name, **VERIFY, nodes=4, shape=["chain", "tree"], dtype="fp32")


def _pr_kv():
    for kv_heads, dim in [(1, 64), (2, 128), (3, 80), (16, 256)]:
        yield from product("kv_write", tokens=300, kv_heads=kv_heads, dim=dim, page=16, dtype=["bf16", "fp32"])
    yield from product("kv_write", tokens=300, kv_heads=8, page=[1, 16], dtype=["bf16", "fp16", "fp32"])
    yield from product("kv_write", tokens=300, kv_heads=8, dtype="bf16", cache=FP8, scales=["unit", "scaled"], slots=["scattered", "run"])
    yield from line("kv_write", "tokens", [1, 1024, 8192], kv_heads=8, dtype="bf16")
    yield point("kv_write", tokens=64, kv_heads=4, dim=192, v_dim=128, dtype="bf16")
    yield from product("kv_indices", batch=[1, 64], length=1000, lengths="ragged", start=["begin", "later"])
    yield point("kv_indices", batch=64, length=1000, lengths="empty", start="later")
    yield from line("kv_indices", "length", [511, 512, 513, 65537], batch=3, lengths="ragged", start="later")
    yield from product("kv_page_table", batch=16, length=1000, page=[1, 16, 64], lengths=["ragged", "empty"], start="later")
    yield from line("kv_page_table", "length", [4095, 4096, 4097, 65537], batch=3, page=64)


def pr():
    yield from _pr_decode()
    yield from _pr_extend()
    yield from _pr_verify()
    yield from _pr_kv()


def _arrays():
    """Axes of few values; the long ones (heads, ratios, lengths) have lines of their own. Heads and kv heads go together."""
    heads = {"group": [(5, 5), (12, 1), (6, 3), (32, 2)]}
    layout = {"dim": [64, 128, 256], "page": [1, 16], "dtype": ["bf16", "fp16", "fp32"], "cache": ["samekv", "e4m3fn"]}
    flags = {"soft_cap": [0.0, 30.0], "sinks": ["nosinks", "sinks"], "scales": ["unit", "scaled"], "values": ["random", "peaked"]}
    lengths = ["uniform", "ragged", "empty"]
    windows = {"window": [-1, 63]}
    yield "decode_attention", {**heads, **layout, **flags, **windows, "batch": [1, 33], "length": [1, 700], "lengths": lengths}
    sizes = {"batch": [1, 5], "new": [1, 200], "prefix": [0, 65, 300], "lengths": [*lengths, "cut"], "mask": ["causal", "full"]}
    yield "extend_attention", {**heads, **layout, **flags, **windows, **sizes}
    sizes = {"batch": [1, 17], "nodes": [2, 7], "prefix": [0, 65, 700], "lengths": lengths, "shape": ["chain", "tree", "star"]}
    yield "verify_attention", {**heads, **layout, **flags, **sizes}


def _lines():
    """One-axis lines at real model shapes."""
    yield from ratios("extend_attention", batch=2, new=40, prefix=60, dtype="bf16", lengths="ragged")
    for heads, kv_heads, dim in [*SHAPES, WIDE]:
        shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "dtype": "bf16"}
        yield from line("decode_attention", "length", [128, 2048, 16384, 65536], batch=1, **shape)
    for heads, kv_heads, dim in [*SHAPES[:5], WIDE]:
        shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "dtype": "bf16"}
        yield from line("decode_attention", "batch", [1, 16, 128], length=2048, page=64, **shape)
        yield from line("verify_attention", "nodes", [2, 5, 8], batch=16, prefix=2048, **shape)
        yield from line("extend_attention", "new", [128, 1024, 4096], batch=1, prefix=0, **shape)
        yield from line("extend_attention", "prefix", [512, 4096, 16384], batch=1, new=256, **shape)
    yield from line("verify_attention", "nodes", range(2, 9), batch=16, prefix=2048, heads=12, kv_heads=1, dtype="bf16")
    yield from line("decode_attention", "heads", HEADS, batch=8, kv_heads=1, length=1024, dtype="bf16")
    yield from line("decode_attention", "heads", [1, 5, 8, 12, 16, 24, 64], batch=8, kv_heads=1, length=1024, dim=64, dtype="fp16")
    yield from line("extend_attention", "heads", HEADS, batch=1, kv_heads=1, new=256, prefix=256, dtype="bf16")


def _combined():
    """Flags together, other head dimensions, windows and sinks of gpt-oss's shape: kernels that `pr` has no time to build."""
    yield from flagged_fully("decode_attention", keys="length", **DECODE, lengths="ragged")
    yield from flagged_fully("extend_attention", keys="prefix", **{**EXTEND, "new": 20}, lengths="ragged")
    for shape in ("chain", "tree"):
        yield from flagged_fully("verify_attention", keys="prefix", **VERIFY, nodes=4, shape=shape)
    yield from line("decode_attention", "values", VALUES, **{**DECODE, "kv_heads": 16}, dtype="bf16", lengths="ragged")
    gpt_oss = {"heads": 8, "kv_heads": 1, "dim": 64, "dtype": "bf16", "sinks": "sinks", "lengths": "ragged"}
    yield from product("decode_attention", batch=8, length=[24, 500], window=[-1, 15, 127], **gpt_oss)
    yield from product("extend_attention", batch=4, new=150, prefix=[24, 200], window=[-1, 15, 127], **gpt_oss)
    for dtype, dims in (("bf16", DIMS), ("fp16", [64, 256])):
        yield from line("decode_attention", "dim", dims, **DECODE, dtype=dtype, lengths="ragged")
        yield from line("extend_attention", "dim", dims, **EXTEND, dtype=dtype, lengths="ragged")
        yield point("decode_attention", **DECODE, dim=192, v_dim=128, dtype=dtype)
        yield point("extend_attention", **EXTEND, dim=192, v_dim=128, dtype=dtype, lengths="ragged")
    yield from product("extend_attention", **EXTEND, dtype=["bf16", "fp16"], window=[0, 15], lengths=["empty", "cut"], mask=["causal", "full"])
    yield from product("decode_attention", **DECODE, page=[16, 64], dtype="fp16", lengths=["ragged", "empty"])
    yield from line("decode_attention", "length", [31, 32, 33, 63, 64, 65], batch=3, heads=12, kv_heads=1, dtype="fp16")
    yield from line("extend_attention", "new", [63, 127, 128, 129], batch=1, heads=8, kv_heads=1, prefix=64, dtype="bf16")
    yield from line("verify_attention", "prefix", [0, 1, 127, 128, 129, 4095, 4096, 8192], **{**VERIFY, "batch": 2}, nodes=4, dtype="fp16")


def nightly():
    yield from pr()
    for name, axes in _arrays():
        for chosen in covering(3, **axes):
            heads, kv_heads = chosen.pop("group")
            yield point(name, heads=heads, kv_heads=kv_heads, **chosen)
    yield from _lines()
    yield from _combined()
    yield from threewise("kv_write", tokens=[1, 17, 3000], kv_heads=[1, 3, 8], dim=[64, 80, 256], page=[1, 16], dtype=["bf16", "fp16", "fp32"])
    yield from product("kv_indices", batch=[1, 256], length=[1, 513, 4097], lengths=["ragged", "empty"], start=["begin", "later"])
    yield from product("kv_page_table", batch=[1, 256], length=[1, 513, 4097], page=[16, 64], lengths=["ragged", "empty"], start=["begin", "later"])
