"""Cases of the mla family. Gates: 12 and other counts that are no power of two (K assembly), pages of 64 (FlashMLA), 128 heads
(the compiled K assembly), page ids past 16 bits and byte offsets past 31."""

from tools import line, pairwise, product, threewise

HEADS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128]
HALF, ALL = ["fp16", "bf16"], ["fp32", "fp16", "bf16"]
LENGTHS = ["uniform", "ragged", "empty"]
FP8 = ["e4m3fn", "allfp8", "e4m3fnuz", "allfnuz"]  # a device has one of both flavours
GLM = {"nope": 192, "v_dim": 256}


def smoke():
    yield from product("mla_decode", batch=1, heads=HEADS, length=5, dtype="fp16")
    yield from product("mla_decode", batch=3, heads=[12], length=40, page=[1, 16], dtype=["fp32", "fp16"], lengths="ragged")
    yield from product("mla_decode", batch=1, heads=[3], length=[15, 16, 17], page=16, dtype="fp16")
    yield from product("mla_decode", batch=3, heads=[5], length=9, dtype="fp32", lengths="empty")
    yield from product("mla_decode", batch=2, heads=[3], length=9, dtype="fp16", cache=["e4m3fn", "e4m3fnuz", "allfp8"])
    yield from product("mla_decode", batch=2, queries=[2, 5], heads=[4], length=9, dtype="fp16", lengths="ragged")
    yield from product("mla_prefill", batch=1, heads=[1, 3, 4, 8, 12, 16, 20, 24], new=5, dtype="fp16")
    yield from product("mla_prefill", batch=4, heads=[3], new=5, prefix=9, chunk=[0, 4], dtype="fp32", lengths=LENGTHS)
    yield from product("mla_prefill", batch=2, heads=[5], new=4, prefix=[0, 3], dtype="fp16", lengths="ragged", **GLM)
    yield from product("mla_prefill_absorbed", batch=1, heads=[1, 3, 8, 12, 16, 24], new=3, prefix=4, dtype="fp16")
    yield from product("mla_prefill_absorbed", batch=4, heads=[3], new=3, prefix=[0, 9], page=4, dtype="fp32", lengths=["ragged", "empty"])
    yield from product("concat_mla_k", tokens=3, heads=HEADS, dtype="fp16")
    yield from product("concat_mla_k", tokens=2, heads=[12], dtype="fp32", layout=["sliced", "packed"], nope=[128, 192])
    yield from product("concat_mla_absorb_q", tokens=3, heads=[1, 12, 16], dtype=["fp32", "bf16"])


def pr():
    """FlashInfer builds a kernel for each dtype and pair of head dimensions: 256/192 wait for the nightly list."""
    yield from product("mla_decode", batch=4, heads=HEADS, length=700, page=64, dtype="bf16", lengths="ragged")
    yield from product("mla_decode", batch=5, heads=[12], length=300, page=[1, 16, 64, 128], dtype=HALF, lengths="ragged")
    yield from product("mla_decode", batch=5, heads=[12], length=300, page=[1, 64], dtype="fp32", lengths="ragged")
    yield from product("mla_decode", batch=6, heads=[12], length=130, page=[1, 64], dtype="bf16", lengths="empty")
    yield from product("mla_decode", batch=2, heads=[12], length=500, page=64, dtype="bf16", cache=FP8, lengths="ragged")
    yield from product("mla_decode", batch=3, queries=[2, 8], heads=[12], length=400, page=64, dtype="bf16", lengths="ragged")
    yield from product("mla_decode", batch=4, heads=[12], length=5, top_page=[65535, 65537], dtype="bf16")
    yield from product("mla_decode", batch=[1, 128], heads=[12], length=2048, page=64, dtype="bf16")
    yield from product("mla_prefill", batch=2, heads=[h for h in HEADS if h <= 48], new=100, dtype="bf16", lengths="ragged")
    yield from product("mla_prefill", batch=2, heads=[12], new=[64, 65], dtype=["bf16", "fp32"])
    yield from product("mla_prefill", batch=2, heads=[12], new=64, dtype="fp16")
    yield from product("mla_prefill", batch=5, heads=[12], new=70, prefix=300, chunk=128, dtype="bf16", lengths=LENGTHS)
    yield from product("mla_prefill", batch=1, heads=[12], new=2048, dtype="bf16")
    yield from product("mla_prefill_absorbed", batch=3, heads=[4, 8, 12, 16, 24, 48, 128], new=33, prefix=200, page=64, dtype="bf16", lengths="ragged")
    yield from product("mla_prefill_absorbed", batch=5, heads=[12], new=20, prefix=[0, 100], page=64, dtype=ALL, lengths="empty")
    yield from product("mla_prefill_absorbed", batch=3, heads=[12], new=20, prefix=100, page=[1, 16], dtype="bf16", lengths="ragged")
    # the query that straddles the end of a tile of 128 rows has one key more than a multiple of 64
    for heads, new in ((12, 11), (48, 3)):
        yield from product("mla_prefill_absorbed", batch=1, heads=heads, new=new, prefix=65 - new, dtype="bf16")
    yield from product("concat_mla_k", tokens=[257], heads=HEADS, dtype="bf16")
    yield from product("concat_mla_k", tokens=[65], heads=[12, 128], dtype=["fp16", "bf16"], layout=["sliced", "packed"], nope=[128, 192])
    yield from product("concat_mla_absorb_q", tokens=[1, 257], heads=[1, 12, 128], dtype="bf16", layout=["sliced", "packed"])


def nightly():
    yield from pr()
    few = [1, 12, 20, 64]
    yield from threewise("mla_decode", batch=[1, 65], heads=[1, 12, 20], length=[1, 65, 1000], page=[1, 64], dtype=ALL, lengths=LENGTHS, queries=[1, 2, 8])
    yield from pairwise("mla_decode", batch=[1, 7], heads=HEADS, length=[63, 2000], page=[16, 64], dtype=HALF, queries=[1, 4])
    yield from threewise("mla_decode", batch=[1, 16], heads=few, length=[63, 2000], page=[1, 64], dtype=HALF, cache=["e4m3fn", "allfp8"], lengths=LENGTHS)
    yield from threewise("mla_decode", batch=[1, 16], heads=few, length=[63, 2000], page=[1, 64], dtype=HALF, cache=["e4m3fnuz", "allfnuz"], lengths=LENGTHS)
    yield from threewise("mla_prefill", batch=[1, 9], heads=few, new=[1, 17, 513], prefix=[0, 1, 1000], chunk=[0, 64, 300], dtype=ALL, lengths=LENGTHS)
    yield from product("mla_prefill", batch=2, heads=[12, 64], new=[1, 64, 65], dtype="fp16", lengths="ragged")
    yield from threewise("mla_prefill", batch=[1, 4], heads=[5, 20], new=[33, 512], prefix=[0, 500], dtype=ALL, lengths=LENGTHS, nope=[192], v_dim=[256])
    yield from threewise("mla_prefill_absorbed", batch=[1, 9], heads=few, new=[1, 17, 128], prefix=[0, 1, 1000], page=[1, 16, 64], dtype=ALL, lengths=LENGTHS)
    yield from pairwise("mla_prefill_absorbed", batch=[3], heads=HEADS, new=[5, 60], prefix=[0, 300], page=[1, 64], dtype=HALF)
    yield from threewise("concat_mla_k", tokens=[1, 33, 5000], heads=[1, 12, 20, 128], dtype=ALL, layout=["sliced", "packed"], nope=[128, 192])
    for heads in (8, 12, 16):
        yield from line("mla_decode", "length", [128, 512, 2048, 8192, 32768, 65536], batch=4, heads=heads, page=64, dtype="bf16")
        yield from line("mla_decode", "batch", [1, 4, 16, 64, 256], length=2048, heads=heads, page=64, dtype="bf16")
        yield from line("mla_prefill", "new", [128, 512, 2048, 8192], batch=1, heads=heads, dtype="bf16")
        yield from line("mla_prefill_absorbed", "prefix", [128, 1024, 4096, 16384], batch=1, new=256, heads=heads, page=64, dtype="bf16")
        yield from line("concat_mla_k", "tokens", [1, 16, 256, 4096, 16384], heads=heads, dtype="bf16")
    yield from line("mla_decode", "heads", HEADS, batch=32, length=4096, page=64, dtype="bf16")
    yield from line("mla_prefill", "heads", HEADS, batch=1, new=2048, dtype="bf16")
    yield from line("concat_mla_k", "heads", HEADS, tokens=8192, dtype="bf16")
    yield from line("concat_mla_absorb_q", "heads", HEADS, tokens=64, dtype="bf16")
    yield from product("concat_mla_absorb_q", tokens=64, heads=[12, 128], dtype=["fp16", "fp32"])
    # 2^31 numbers of 576: token slot 3,728,270, and 2^31 bytes of a 16-bit cache: 1,864,135
    yield from product("mla_decode", batch=2, heads=[12], length=70, page=1, top_page=[1864200], dtype="bf16")
    yield from product("mla_decode", batch=2, heads=[12], length=200, page=64, top_page=[29130, 58256], dtype="bf16")
