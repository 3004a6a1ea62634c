"""Every Triton launch of a block of code, seen where Triton itself starts it: what was compiled, for which types, with which grid.

One mechanism in two forms. With `launch=True` it only looks on: the kernel runs as it would have, and the record says which one it was
(the identity of a kernel on a device). With `launch=False` nothing is launched: the kernel is compiled for the active driver's target and
refused as Triton's loader would refuse it, so that a wrapper's own handling of that refusal runs (compiling without the device).

A kernel that was compiled beforehand and is launched by itself (`compiled[grid](...)`) does not pass here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HarnessError


@dataclass(frozen=True)
class Launch:
    """One launch of a Triton kernel.

    kernel      its name in the binary, which a profiler shows
    function    `module:qualified name` of the Python function, and `place`, its file and line
    grid        programs along x, y, z
    signature   parameter -> type (`*bf16`, `i32`, `constexpr`); `aligned`: those specialised on multiples of 16
    constants   parameter -> value of what was compiled in: constexprs, and integers that were 1
    warps, stages, ctas   the launch options
    target      what it was compiled for, as the artefact says (`gfx950`, `sm_90`)
    candidate   tried by an autotuner, not the launch that was asked for
    error       why it could not be compiled or loaded, else empty
    seconds     spent compiling, or finding the kernel in Triton's cache
    compiled    Triton's kernel object (`asm`, `metadata`, `hash`); None where it could not be compiled
    """

    kernel: str
    function: str
    place: str
    grid: tuple[int, int, int]
    signature: Mapping[str, str] = field(default_factory=dict)
    aligned: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 0
    stages: int = 0
    ctas: int = 1
    target: str = ""
    candidate: bool = False
    error: str = ""
    seconds: float = 0.0
    compiled: Any = field(default=None, compare=False, repr=False)


Sink = Callable[[Launch], None]


@contextlib.contextmanager
def captured(sink: Sink, *, launch: bool = True) -> Iterator[None]:
    """Hands every Triton launch of this process to `sink`, before it happens, for as long as the block runs.

    `launch=False` compiles instead of launching and raises triton's OutOfResources where the loader would. A failed compile or a
    refused kernel is handed over too, with its error, before the exception goes on to the caller. Raises HarnessError under Triton's
    interpreter, which compiles nothing.
    """
    from triton import knobs
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    if knobs.runtime.interpret:
        raise HarnessError("Triton's interpreter is on (TRITON_INTERPRET): it launches no kernel that could be captured")
    run, bench = JITFunction.run, Autotuner._bench
    searching = 0

    def watched(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if warmup:  # the caller compiles by itself
            return run(self, *args, grid=grid, warmup=True, **options)
        bound = {**dict(zip(self.arg_names, args, strict=False)), **options}
        shape = _shape(grid(bound) if callable(grid) else grid)
        started = time.perf_counter()
        try:
            compiled = run(self, *args, grid=shape, warmup=True, **options)
            refusal = None if launch or compiled is None else _refusal(compiled)
        except Exception as error:
            sink(_failed(self, shape, error, candidate=searching > 0, seconds=time.perf_counter() - started))
            raise
        if compiled is None:  # a hook of Triton's own took the compile over
            return run(self, *args, grid=shape, warmup=False, **options) if launch else None
        found = _launch(self, shape, compiled, candidate=searching > 0, seconds=time.perf_counter() - started, error=str(refusal or ""))
        sink(found)
        if refusal is not None:
            raise refusal
        return run(self, *args, grid=shape, warmup=False, **options) if launch else compiled

    def searched(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal searching
        searching += 1
        try:
            return bench(self, *args, **options)
        finally:
            searching -= 1

    JITFunction.run, Autotuner._bench = watched, searched
    try:
        yield
    finally:
        JITFunction.run, Autotuner._bench = run, bench


def _shape(grid: Any) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    return int(x), int(y), int(z)


def _refusal(compiled: Any) -> Exception | None:
    """What Triton's loader would raise for this kernel on the active driver's device: more shared memory, tensor memory or threads than there is."""
    from triton.compiler.compiler import max_shared_mem
    from triton.runtime import driver
    from triton.runtime.errors import OutOfResources

    metadata, limit = compiled.metadata, max_shared_mem(driver.active.get_current_device())
    if metadata.shared > limit:
        return OutOfResources(metadata.shared, limit, "shared memory")
    tensor_memory = getattr(metadata, "tmem_size", None) or 0
    if tensor_memory > 512:  # columns, as Triton itself counts them
        return OutOfResources(tensor_memory, 512, "tensor memory")
    threads = metadata.num_warps * metadata.target.warp_size
    return OutOfResources(threads, 1024, "threads") if threads > 1024 else None


def _place(function: Any) -> dict[str, Any]:
    code = function.fn.__code__
    return {"function": f"{function.module}:{function.fn.__qualname__}", "place": f"{code.co_filename}:{code.co_firstlineno}"}


def _failed(function: Any, grid: tuple[int, int, int], error: Exception, **facts: Any) -> Launch:
    return Launch(kernel=function.fn.__name__, grid=grid, error=f"{type(error).__name__}: {error}", **_place(function), **facts)


def _launch(function: Any, grid: tuple[int, int, int], compiled: Any, **facts: Any) -> Launch:
    source, metadata = compiled.src, compiled.metadata
    names = function.arg_names
    arch = metadata.target.arch
    return Launch(
        kernel=metadata.name,
        grid=grid,
        signature=dict(source.signature),
        aligned=tuple(names[path[0]] for path, attrs in source.attrs.items() if len(path) == 1 and ["tt.divisibility", 16] in attrs),
        constants={names[path[0]]: value for path, value in source.constants.items() if len(path) == 1},
        warps=metadata.num_warps,
        stages=metadata.num_stages,
        ctas=metadata.num_ctas,
        target=f"sm_{arch}" if isinstance(arch, int) else arch,
        compiled=compiled,
        **_place(function),
        **facts,
    )
