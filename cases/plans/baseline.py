"""The preset `baseline`: what is timed on every machine start. Lines over head counts and top-k values at served shapes, attention in bf16.
Some 350 cells where every library is installed, so that three runs take at most four minutes of one H200."""

from tools import line, point, product

SERVED = 163840
MLA = {"page": 64, "dtype": "bf16"}
# real shapes on one rank: (heads, kv heads, dim)
SHAPES = [(64, 8, 128), (12, 1, 128), (8, 1, 64)]


def baseline():
    yield from sampling()
    yield from latent()
    yield from attention()
    yield from merging()


def sampling():
    yield from line("top_k_renorm", "k", [1, 20, 50, 51, 256, 257, 1024], batch=64, vocab=SERVED)
    yield from line("top_k_renorm", "batch", [1, 16], vocab=SERVED, k=50, form="rows")
    yield point("top_k_renorm", batch=64, vocab=129280, k=50, form="rows")
    yield from line("top_p_renorm", "batch", [1, 64], vocab=SERVED, p=0.95, form="rows")
    yield from line("top_k_top_p_sample", "batch", [1, 64], vocab=SERVED, k=50, p=0.95, form="rows", draws=1)
    yield point("temperature_softmax", batch=128, vocab=SERVED, temperature=0.6, form="rows")
    yield point("greedy", batch=64, vocab=SERVED)
    yield point("token_bitmask", batch=256, vocab=SERVED, dtype="bf16")


def latent():
    yield from line("mla_decode", "heads", [1, 8, 12, 16, 20, 24, 64, 128], batch=32, length=4096, **MLA)
    yield from line("mla_decode", "length", [512, 32768], batch=4, heads=12, **MLA)
    yield from line("mla_decode", "batch", [1, 256], length=2048, heads=12, **MLA)
    yield from line("mla_prefill", "heads", [4, 8, 12, 16, 64, 128], batch=1, new=2048, dtype="bf16")
    yield from line("mla_prefill", "new", [512, 8192], batch=1, heads=12, dtype="bf16")
    yield from line("mla_prefill_absorbed", "heads", [8, 12, 16, 64, 128], batch=1, new=256, prefix=4096, **MLA)
    yield from line("concat_mla_k", "heads", [12, 16, 128], tokens=8192, dtype="bf16")


def attention():
    for heads, kv_heads, dim in SHAPES:
        shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "dtype": "bf16"}
        yield point("decode_attention", batch=16, length=2048, page=64, **shape)
    for heads, kv_heads, dim in SHAPES[:2]:
        shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "dtype": "bf16"}
        yield point("extend_attention", batch=1, new=256, prefix=4096, **shape)
    yield from line("decode_attention", "heads", [8, 12, 16, 24], batch=8, kv_heads=1, length=1024, dtype="bf16")
    yield from line("extend_attention", "heads", [8, 12, 16], batch=1, kv_heads=1, new=256, prefix=256, dtype="bf16")


def merging():
    yield from product("merge_state", tokens=4096, heads=[8, 12, 16, 128], dtype="bf16")
    yield point("merge_states", parts=8, tokens=256, heads=96, dim=512, dtype="bf16")
