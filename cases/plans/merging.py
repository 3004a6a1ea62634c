"""Cases of the merging family. Gates: head dimension % 8 (% 4 in fp32) in SGLang's wrapper; powers of two in its DCP kernels."""

from tools import line, pairwise, product, threewise

HEADS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128]
HALF, ALL = ["fp16", "bf16"], ["fp32", "fp16", "bf16"]
VALUES = ["random", "far", "masses", "empty", "bothempty"]


def smoke():
    yield from product("merge_state", tokens=[3], heads=[1, 8, 12, 16], dtype=["fp32", "fp16"])
    yield from product("merge_state", tokens=[4], heads=[12], dtype=["fp32", "fp16"], values=VALUES[1:])
    yield from product("merge_state", tokens=[1], heads=HEADS, dtype="fp16")
    yield from product("merge_state", tokens=[2], heads=[3], dim=[64, 80, 100, 192, 512], dtype="fp32")
    yield from product("merge_states", parts=[2, 4], tokens=[2], heads=[12], dtype="fp16")
    yield from product("merge_states", parts=[4], tokens=[3], heads=[3], dtype="fp32", values=VALUES)
    yield from product("merge_states", parts=[1, 3, 8], tokens=[1], heads=[3], dtype="fp32")
    yield from product("merge_states", parts=[2], tokens=[1], heads=[4], dim=[64, 192, 512], dtype="fp32")
    yield from product("suffix_merge", tokens=[3], heads=[6], group=[1, 6], suffix=[1, 3, 8], dim=[64, 80], dtype="fp16")
    # in some rows any one part outweighs the others by more than exp can hold
    yield from product("merge_states", parts=[4], tokens=[40], heads=[3], dim=64, dtype="fp32", values="far")


def pr():
    yield from product("merge_state", tokens=[17], heads=HEADS, dtype="bf16")
    yield from product("merge_state", tokens=[33], heads=[12], dim=[64, 512], dtype=ALL)
    yield from product("merge_state", tokens=[9], heads=[12], dim=[80, 100, 102], dtype=["fp32", "bf16"])
    yield from product("merge_state", tokens=[8], heads=[12], dtype=["fp32", "bf16"], values=VALUES[1:])
    yield from product("merge_state", tokens=[65535, 65536], heads=[1], dim=64, dtype="bf16")
    yield from product("merge_states", parts=[2, 8], tokens=[33], heads=[12, 16], dim=[128, 512], dtype="bf16")
    yield from product("merge_states", parts=[1, 3, 16], tokens=[9], heads=[12], dtype="bf16")
    yield from product("merge_states", parts=[4], tokens=[8], heads=[12], dtype=["fp32", "fp16"], values=VALUES)
    yield from product("suffix_merge", tokens=[64], heads=[8, 12], group=[1, 4], suffix=[1, 5], dim=[80, 128], dtype=["bf16"])


def nightly():
    yield from pr()
    shape = {"heads": [1, 12, 20, 64], "dim": [64, 80, 192, 512], "dtype": ALL, "values": VALUES}
    yield from threewise("merge_state", tokens=[1, 7, 1000], **shape)
    yield from threewise("merge_states", parts=[1, 2, 8], tokens=[1, 500], **shape)
    yield from pairwise("merge_states", parts=[3, 4, 16], tokens=[5], heads=HEADS, dtype=ALL, values=VALUES)
    yield from threewise("suffix_merge", tokens=[1, 7, 300], heads=[8, 12, 64], group=[1, 4], suffix=[1, 3, 8, 64], dim=[64, 80, 256], dtype=ALL)
    yield from line("suffix_merge", "heads", HEADS, tokens=64, group=1, suffix=5, dtype="bf16")
    yield from line("merge_state", "tokens", [1, 4, 16, 64, 256, 1024, 4096, 65536], heads=12, dtype="bf16")
    yield from line("merge_state", "heads", HEADS, tokens=4096, dtype="bf16")
    yield from line("merge_states", "parts", [2, 4, 8, 12, 16, 32], tokens=256, heads=96, dim=512, dtype="bf16")
