"""Run by test_launches.py in a process of its own: prints what the launch capture saw, a line a check."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from harness.errors import HarnessError
from harness.machine.launches import Launch, captured
from harness.offline.codegen.cells import find
from harness.offline.codegen.device import describe
from harness.offline.codegen.metrics import kernel_of
from harness.offline.codegen.searching import Search
from harness.offline.codegen.worker import compile_cell
from harness.offline.targets import load_targets

TARGETS = load_targets(Path(__file__).resolve().parent.parent / "cases" / "targets.toml")


@triton.jit
def scaled(x, factor, count, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < count) * factor, mask=at < count)


@triton.jit
def squared(x, y, size: tl.constexpr, depth: tl.constexpr):
    at, deep = tl.arange(0, size), tl.arange(0, depth)
    left = tl.load(x + at[:, None] * depth + deep[None, :])
    tl.store(y + at[:, None] * size + at[None, :], tl.dot(left, tl.trans(left)))


searched = triton.autotune([triton.Config({"depth": depth}) for depth in (64, 128)], key=[])(squared)


class Recorder:
    """A launcher that keeps the grids it is given, and how many launches had been seen by then."""

    def __init__(self, seen: list[Launch]) -> None:
        self.grids: list[tuple[int, int, int]] = []
        self.seen, self.counts = seen, []

    def __call__(self, source: object, metadata: object) -> object:
        return self.launch

    def launch(self, x: int, y: int, z: int, *rest: object) -> None:
        self.grids.append((x, y, z))
        self.counts.append(len(self.seen))


def outcome(call: object, seen: list[Launch]) -> str:
    """The exception's name, and whether the launch was seen, with its error."""
    try:
        call()
    except Exception as error:
        shown = "seen" if seen else "not seen"
        return f"{type(error).__name__}, {shown}{' with its error' if seen and seen[-1].error else ''}"
    return "no exception"


def main() -> None:
    describe(TARGETS["gfx942"])
    device = torch.cuda.get_device_properties(0)
    facts = (torch.version.hip is not None, torch.version.cuda, device.gcnArchName, device.warp_size, torch.cuda.get_device_capability())
    print("described:", (*facts, triton.runtime.driver.active.get_current_target().warp_size))
    data, small = torch.zeros(4096, dtype=torch.bfloat16), torch.zeros(64, 64)
    deep = torch.zeros(64, 1024, dtype=torch.bfloat16)
    original = triton.runtime.jit.JITFunction.run
    found: dict[bool, list[Launch]] = {}
    for form in (False, True):
        seen: list[Launch] = []
        recorder = Recorder(seen)
        triton.runtime.driver.active.launcher_cls = recorder
        scaled.device_caches.clear()
        with captured(seen.append, launch=form):
            scaled[lambda meta: (meta["count"] // 32 // meta["BLOCK"], 2)](data, 0.5, 6144, BLOCK=64, num_warps=2, num_stages=3)
        found[form] = seen
        print("launched while looking on:" if form else "launched while compiling alone:", recorder.grids if form else len(recorder.grids))
    print("seen before it was launched:", recorder.counts == [1])
    plain = [replace(seen[0], seconds=0.0) for seen in found.values()]
    print("both forms see the same launch:", plain[0] == plain[1] and len(found[True]) == 1)
    one = plain[0]
    print("kernel:", one.kernel)
    print("grid of a function:", one.grid)
    print("signature:", one.signature)
    print("constants:", one.constants)
    print("aligned:", one.aligned)
    print("options:", (one.warps, one.stages, one.ctas))
    print("place:", one.place.startswith(__file__) and one.function == "__main__:scaled")
    print("target:", one.target)
    for form in (False, True):
        seen = []
        with captured(seen.append, launch=form):
            said = outcome(lambda: squared[(1,)](deep, small, size=64, depth=1024), seen)
        print("too large while looking on:" if form else "too large while compiling alone:", said)
    seen = []
    with captured(seen.append, launch=False):
        print("broken:", outcome(lambda: scaled[(1,)](data, 0.5, 48, BLOCK=48), seen))
    seen = []
    with captured(seen.append, launch=False):
        searched[(1,)](deep, small, size=64)
    print("candidates of a search:", [launch.candidate for launch in seen])
    seen = []
    with captured(seen.append):
        scaled.warmup(data, 0.5, 48, BLOCK=64, grid=(1,))
    print("a warm-up of the caller's own:", len(seen))
    print("after the block:", triton.runtime.jit.JITFunction.run is original)
    with captured(seen.append, launch=False):
        outcome(lambda: scaled[(1,)](data, 0.5, 48, BLOCK=48), [])
    print("after an exception:", triton.runtime.jit.JITFunction.run is original)
    try:
        kernel_of(found[False][0], TARGETS["gfx950"], "")
    except HarnessError as error:
        print("another target's artefact:", type(error).__name__)
    swallowing = SimpleNamespace(prepare=lambda x, scratch: None, run=swallowed)
    cell = replace(find("merge_state[sglang_triton-t1-h1-bf16]"), make=lambda: swallowing)
    try:
        compile_cell(cell, TARGETS["gfx950"], "", contextlib.nullcontext(), Search())
    except HarnessError as error:
        print("another target's artefact, where the library catches everything:", type(error).__name__)


def swallowed() -> None:
    """As a wrapper that falls back whatever happens."""
    with contextlib.suppress(Exception):
        scaled[(1,)](torch.zeros(64), 0.5, 64, BLOCK=64)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        main()
