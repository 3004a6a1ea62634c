"""Cases at AITER's gates: head counts with a kernel of their own, folded and without one; its page sizes, fp8 flavours and flags."""

from tools import product

RAGGED = {"dtype": "bf16", "lengths": "ragged"}
ROUTER = [1, 2, 4, 8, 10, 12, 16, 24, 40, 48, 64, 80, 96, 112, 128]
FP8 = ["allfp8", "allfnuz"]  # a device has one of both flavours


def smoke():
    yield from ()


def pr():
    yield from product("mla_decode", batch=4, heads=[8, 16, 24, 64, 128], length=500, page=[1, 64], **RAGGED)
    yield from product("mla_decode", batch=3, queries=[2, 4], heads=[16, 32], length=300, **RAGGED)
    yield from product("mla_decode", batch=4, heads=[16, 128], length=500, page=[1, 64], cache=FP8, **RAGGED)
    yield from product("mla_decode", batch=3, queries=[2, 4], heads=16, length=300, cache=FP8, **RAGGED)
    yield from product("mla_decode", batch=4, heads=16, length=500, cache=["e4m3fn", "e4m3fnuz"], **RAGGED)
    yield from product("mla_decode", batch=[31, 32], heads=16, length=200, **RAGGED)  # from 32 requests on gfx950 drops the plan
    yield from product("mla_prefill_absorbed", batch=2, heads=[8, 16, 128], new=100, prefix=200, page=[1, 64], **RAGGED)
    yield from product("decode_attention", batch=3, heads=[8, 16, 24], kv_heads=1, length=600, page=16, **RAGGED)
    yield from product("decode_attention", batch=3, heads=32, kv_heads=4, length=600, page=16, dtype="fp16", lengths="ragged")
    yield from product("extend_attention", batch=2, heads=8, kv_heads=2, new=60, prefix=100, sinks="sinks", **RAGGED)
    yield from product("extend_attention", batch=2, heads=8, kv_heads=2, new=60, prefix=100, window=[0, 32], **RAGGED)
    yield from product("merge_states", parts=4, tokens=9, heads=[8, 10, 48], dim=[128, 512], dtype="bf16")


def nightly():
    yield from pr()
    yield from product("mla_decode", batch=2, queries=[1, 3], heads=[8, 16, 32, 48, 64, 80, 112, 128], length=700, page=16, **RAGGED)
    yield from product("mla_decode", batch=2, queries=[1, 2, 4], heads=[16, 32, 64], length=700, cache=FP8, **RAGGED)
    yield from product("mla_prefill_absorbed", batch=2, heads=[4, 16, 48, 128], new=300, prefix=700, page=[1, 16], **RAGGED)
    yield from product("merge_states", parts=[70], tokens=5, heads=ROUTER, dim=[128, 512], dtype="bf16")
