"""Where a cell's time goes, by share: what the harness costs beside the kernels it judges."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_MODULES = 10  # a phase that imports so many modules is an import
_BUILD = 0.5  # seconds of child processes' time that make a phase a build


class Shares:
    """Seconds by share of one cell.

    A provider's phase counts as `compile` where Triton says so (its own times) or where compilers ran as child processes,
    and as `import` where it imported a library; the rest is its own: `prepare`, or `kernel` for the call itself.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def phase(self, share: str) -> Iterator[None]:
        """Adds the time of the block to a share, also when it raises."""
        began, children, modules = time.perf_counter(), _children(), len(sys.modules)
        _compiled.total = 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            if share in ("prepare", "kernel"):
                if len(sys.modules) - modules >= _MODULES:
                    share = "import"
                elif _children() - children > _BUILD:
                    share = "compile"
                else:
                    inside = min(_compiled.total, spent)
                    self._add("compile", inside)
                    spent -= inside
            self._add(share, spent)

    def _add(self, share: str, seconds: float) -> None:
        if seconds:
            self.seconds[share] = self.seconds.get(share, 0.0) + seconds

    def close(self) -> dict[str, float]:
        """The shares, with what none of them names as the harness' own, in seconds."""
        self._add("harness", time.perf_counter() - self._began - sum(self.seconds.values()))
        return {share: round(value, 6) for share, value in self.seconds.items()}


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Compiled:
    """Sums what Triton's compiler says of its own time."""

    total = 0.0

    def __call__(self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        self.total += times.total * 1e-6


_compiled = _Compiled()


def listen_to_triton(compiling: Callable[[bool], None]) -> None:
    """Hears of every compilation from now on, where this Triton can tell (3.4 and newer). `compiling` is told when one begins (True)
    and when it has ended well (False)."""
    try:
        from triton import knobs
    except ImportError:
        return
    if hasattr(knobs.compilation, "listener"):
        knobs.compilation.listener = _compiled
    if hasattr(knobs.runtime, "jit_post_compile_hook"):
        knobs.runtime.jit_cache_hook = lambda **_: compiling(True)
        knobs.runtime.jit_post_compile_hook = lambda **_: compiling(False)
