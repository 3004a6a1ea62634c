"""The frozen list of cells to compile, and the adapters for kernels that no provider reaches."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.contracts import Case, op
from harness.errors import UsageError
from harness.providers import Provider, providers_of

_CELL = re.compile(r"(\w+)\[(\w+)(?:-([^\]]+))?\]")


@dataclass(frozen=True)
class Listed:
    """A cell of the list: `targets` are those it is compiled for, empty for all; `declined`: why the provider documents that it does not
    take the case, else empty."""

    id: str
    op: str
    provider: str
    case: Case
    make: Callable[[], Any]
    serves: frozenset[str]
    targets: tuple[str, ...] = ()
    declined: str = ""


def load_cells(path: Path, targets: Container[str] | None = None) -> list[Listed]:
    """The cells of a list: one a line, `op[provider-case]`, then the targets that it is for, if not all. Raises UsageError, one line.
    `targets`: those that a line may name."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    cells = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        unknown = [name for name in words[1:] if targets is not None and name not in targets]
        if unknown:
            raise UsageError(f"{path}:{number}: unknown target {unknown[0]!r}; targets.toml describes the targets")
        if words:
            try:
                cells.append(find(words[0], tuple(words[1:])))
            except UsageError as error:
                raise UsageError(f"{path}:{number}: {error}") from error
    twice = sorted(cell.id for cell in cells if sum(other.id == cell.id for other in cells) > 1)
    if twice:
        raise UsageError(f"{path} lists {twice[0]} twice")
    return cells


def find(name: str, targets: tuple[str, ...] = ()) -> Listed:
    """The cell of an id. Raises UsageError for an op, provider or case that nobody declared."""
    match = _CELL.fullmatch(name)
    if match is None:
        raise UsageError(f"{name!r} is no cell; a cell is OP[PROVIDER-CASE]")
    op_name, provider, case_id = match[1], match[2], match[3] or ""
    case = op(op_name).axes.parse(case_id)
    found = _implementations(op_name).get(provider)
    if found is None:
        raise UsageError(f"op {op_name!r} has no Triton provider {provider!r}; known: {', '.join(sorted(_implementations(op_name)))}")
    make, serves, why_not = found
    return Listed(name, op_name, provider, case, make, serves, targets, why_not(case) or "")


def _implementations(op_name: str) -> dict[str, tuple[Callable[[], Any], frozenset[str], Callable[[Case], str | None]]]:
    """Who implements the op in Triton: providers, and the adapters of this folder. What makes it, the platforms it serves, why not a case."""
    from harness.offline.codegen.adapters import ADAPTERS

    known = {provider.name: (provider.make, provider.platforms, provider.why_not) for provider in providers_of(op_name) if _in_triton(provider)}
    return known | {name: (made, frozenset(["cuda", "rocm"]), lambda case: None) for (of, name), made in ADAPTERS.items() if of == op_name}


def _in_triton(provider: Provider) -> bool:
    return "interpret" in provider.platforms or provider.source.startswith("harness.providers.sglang_triton")


def chosen(cells: Iterable[Listed], ops: tuple[str, ...], names: tuple[str, ...]) -> list[Listed]:
    """The cells of those ops (all, when there are none) and, where `names` are given, those cells alone, listed or not. Raises UsageError."""
    for name in ops:
        op(name)
    if names:
        if ops:
            raise UsageError("--cell names the cells: --op has nothing left to choose; give one of the two")
        listed = {cell.id: cell for cell in cells}
        return [listed.get(name) or find(name) for name in dict.fromkeys(names)]
    found = [cell for cell in cells if not ops or cell.op in ops]
    if not found:
        raise UsageError(f"the list has no cell{' of ' if ops else ''}{', '.join(ops)}; give one with --cell")
    return found
