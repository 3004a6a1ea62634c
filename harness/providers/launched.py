"""Kernels that a provider must and must not launch, from the reviewed `kernels.toml`: which call it was is then known without a baseline."""

from __future__ import annotations

import functools
from pathlib import Path

from harness import toml

NEVER = "never"


@functools.cache
def _declared() -> dict[str, dict[str, tuple[str, ...]]]:
    tables = toml.read(Path(__file__).parent / "kernels.toml", "the kernels of providers")
    return {provider: {field: tuple(patterns) for field, patterns in table.items()} for provider, table in tables.items()}


def must(provider: str, op: str) -> tuple[str, ...]:
    """Patterns of kernels that a plain call must launch, each of them; empty where nothing is known."""
    return _declared().get(provider, {}).get(op, ())


def never(provider: str, op: str) -> tuple[str, ...]:
    """Patterns of kernels that it must not launch; empty where it has no must-have name in this op to go with."""
    table = _declared().get(provider, {})
    return table.get(NEVER, ()) if op in table or len(table) == 1 else ()
