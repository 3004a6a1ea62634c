"""Cases of the merging family."""

from tools import product


def smoke():
    yield from product("merge_state", tokens=[3], heads=[1, 8, 12, 16], dtype=["fp32", "fp16"])
    yield from product("merge_state", tokens=[4], heads=[12], dtype=["fp32", "fp16"], values=["far", "empty", "bothempty"])


def pr():
    yield from smoke()


def nightly():
    yield from pr()
