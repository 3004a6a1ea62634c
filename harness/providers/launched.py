"""Kernels that a provider must and must not launch, from the reviewed `kernels.toml`: which call it was is then known without a baseline."""

from __future__ import annotations

import functools
from pathlib import Path

from harness import toml

NEVER, PLATFORMS = "never", "platforms"  # fields of a table that are no op


@functools.cache
def _declared() -> dict[str, dict[str, tuple[str, ...]]]:
    tables = toml.read(Path(__file__).parent / "kernels.toml", "the kernels of providers")
    return {provider: {field: tuple(patterns) for field, patterns in table.items()} for provider, table in tables.items()}


def must(provider: str, op: str, arch: str) -> tuple[str, ...]:
    """Patterns of kernels that a plain call must launch on a device of that architecture, each of them; empty where nothing is known."""
    table = _declared().get(provider, {})
    here = "rocm" if arch.startswith("gfx") else "cuda"
    return table.get(op, ()) if here in table.get(PLATFORMS, (here,)) else ()


def never(provider: str, op: str) -> tuple[str, ...]:
    """Patterns of kernels that it must not launch; of a table with ops, in those alone."""
    table = _declared().get(provider, {})
    return table.get(NEVER, ()) if op in table or not table.keys() - {NEVER, PLATFORMS} else ()
