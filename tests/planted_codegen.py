"""A plugin with kernels that compile badly on purpose: registers spilled, a dot without matrix instructions, more shared memory than there is."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from harness.providers import implements

PLATFORMS = {"cuda", "rocm", "interpret"}


@triton.jit
def spilling(x, y, size: tl.constexpr):
    """One warp keeps a whole row in registers while it is summed."""
    at = tl.arange(0, size)
    row = tl.load(x + at)
    tl.store(y + at, row / tl.sum(row))


@triton.jit
def without_matrix(x, y, rows: tl.constexpr, size: tl.constexpr):
    """A dot of fewer rows than a matrix instruction has, in full fp32."""
    at, row = tl.arange(0, size), tl.arange(0, rows)
    left = tl.load(x + row[:, None] * size + at[None, :])
    right = tl.load(x + at[:, None] * size + at[None, :])
    tl.store(y + row[:, None] * size + at[None, :], tl.dot(left, right, input_precision="ieee"))


@triton.jit
def over_limit(x, y, size: tl.constexpr, depth: tl.constexpr):
    """A tile that is turned, by way of shared memory."""
    at, deep = tl.arange(0, size), tl.arange(0, depth)
    tile = tl.load(x + at[:, None] * depth + deep[None, :])
    tl.store(y + deep[:, None] * size + at[None, :], tl.trans(tile))


tuned = triton.autotune([triton.Config({"depth": depth}, num_warps=16) for depth in (256, 128, 16)], key=["size"])(over_limit)


def turned(x, depth):
    buffer = torch.empty(256, depth, device=x.device)
    over_limit[(1,)](buffer, buffer, size=256, depth=depth, num_warps=16)


@implements("merge_state", library="planted", name="planted_spill", platforms=PLATFORMS)
def spill(x):
    buffer = torch.empty(1 << 13, device=x.device)
    few = {"waves_per_eu": 8} if torch.version.hip else {"maxnreg": 32}
    spilling[(1,)](buffer, buffer, size=buffer.numel(), num_warps=1, **few)


@implements("merge_state", library="planted", name="planted_no_matrix", platforms=PLATFORMS)
def no_matrix(x):
    buffer = torch.empty(64, 64, device=x.device)
    without_matrix[(1,)](buffer, buffer, rows=2, size=64)


@implements("merge_state", library="planted", name="planted_over_limit", platforms=PLATFORMS)
def too_deep(x):
    turned(x, 128)


@implements("merge_state", library="planted", name="planted_fallback", platforms=PLATFORMS)
def fallback(x):
    """Takes a smaller tile when the loader refuses one."""
    try:
        turned(x, 128)
    except triton.runtime.errors.OutOfResources:
        turned(x, 16)


@implements("merge_state", library="planted", name="planted_tuned", platforms=PLATFORMS)
def searched(x):
    buffer = torch.empty(256, 256, device=x.device)
    tuned[(1,)](buffer, buffer, size=256)


@implements("merge_state", library="planted", name="planted_broken", platforms=PLATFORMS)
def broken(x):
    """A size that is no power of two."""
    buffer = torch.empty(48, device=x.device)
    spilling[(1,)](buffer, buffer, size=48)


@implements("merge_state", library="planted", name="planted_refused", platforms=PLATFORMS)
def refused(x):
    raise ValueError("not on this device")


@implements("merge_state", library="planted", name="planted_deadly", platforms=PLATFORMS)
def deadly(x):
    """As a compiler that calls abort()."""
    import os

    os.abort()


@implements("merge_state", library="planted", name="planted_endless", platforms=PLATFORMS)
def endless(x):
    """As a compiler that does not return."""
    import time

    time.sleep(600)
