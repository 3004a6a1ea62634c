"""Head tables that SGLang copied from AITER, held against AITER's own router at the commits that facts exist for, or in a given source tree."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.offline.aiter.tables import REDUCE, reduce_router
from harness.offline.routes.heads import AITER, COPIED
from harness.offline.routes.parsing import Tree


@dataclass(frozen=True)
class Router:
    """AITER's mla_reduce_v1 at one commit: value dimension -> query head counts it is built for."""

    label: str
    heads: dict[int, frozenset[int]]


@dataclass(frozen=True)
class Drift:
    """One value dimension where the copy and AITER differ. lacking: AITER has them, SGLang does not; foreign: the other way round, which aborts."""

    aiter: str
    dim: int
    lacking: list[int]
    foreign: list[int]


def facts_routers(folder: Path) -> list[Router]:
    """The routers of the fact files of a folder, by commit."""
    found = []
    for path in sorted(folder.glob("*.json")):
        facts = json.loads(path.read_text())
        name = f"aiter {facts['version']} " if facts.get("version") else "aiter "
        found.append(Router(f"{name}{facts['commit'][:10]}", _by_dim(facts["tables"]["mla_reduce"])))
    return found


def tree_router(path: Path) -> Router:
    """The router of a source tree. Raises UsageError where the tree has none of the known form."""
    source = path / REDUCE
    if not source.is_file():
        raise UsageError(f"{path} is not a tree of AITER's sources: it has no {REDUCE}")
    heads = _by_dim(reduce_router(source.read_text(errors="replace")))
    if not heads:
        raise UsageError(f"{source} has no MLA_REDUCE_ROUTER of a known form")
    return Router(str(path), heads)


def copied(tree: Tree) -> tuple[dict[int, frozenset[int]], str, int] | None:
    """SGLang's copy, with file and line; None where this version has none."""
    module = tree.module(AITER)
    for statement in module.binding(COPIED) if module else []:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict) and module:
            heads = {}
            for key, value in zip(statement.value.keys, statement.value.values, strict=True):
                arguments = value.args[0] if isinstance(value, ast.Call) and value.args else value
                heads[int(ast.literal_eval(key or ast.Constant(0)))] = frozenset(ast.literal_eval(arguments))
            return heads, module.path, statement.lineno
    return None


def drifts(copy: dict[int, frozenset[int]], router: Router) -> list[Drift]:
    """Where the copy and the router differ, by value dimension."""
    none: frozenset[int] = frozenset()
    found = []
    for dim in sorted(copy.keys() | router.heads.keys()):
        ours, theirs = copy.get(dim, none), router.heads.get(dim, none)
        if ours != theirs:
            found.append(Drift(router.label, dim, sorted(theirs - ours), sorted(ours - theirs)))
    return found


def _by_dim(pairs: Iterable[Any]) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for heads, dim in pairs:
        found.setdefault(dim, set()).add(heads)
    return {dim: frozenset(counts) for dim, counts in found.items()}
