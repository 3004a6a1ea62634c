"""What assignments bind, and which names and attributes statements bind at all."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from harness.offline.symbols import expressions
from harness.offline.symbols.frames import Frame
from harness.offline.symbols.values import UNKNOWN, State


def bind(frame: Frame, target: ast.expr, state: State, value: ast.expr | None = None) -> None:
    """Binds a target of an assignment; parts of a tuple get their own states where both sides are written out."""
    if isinstance(target, ast.Name):
        frame.set(target.id, state)
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
        for number, element in enumerate(target.elts):
            bind(frame, element, expressions.evaluate(frame, parts[number]) if parts else expressions.item(state, number))
    elif isinstance(target, ast.Starred):
        bind(frame, target.value, UNKNOWN)
    elif isinstance(target, ast.Attribute):
        expressions.evaluate(frame, target.value)
        if isinstance(target.value, ast.Name):
            frame.set(f"{target.value.id}.{target.attr}", state)
    elif isinstance(target, ast.Subscript):
        expressions.evaluate(frame, target.value)
        expressions.evaluate(frame, target.slice)


def assigned(body: Iterable[ast.AST]) -> set[str]:
    """The names, and attributes as `name.attribute`, that the statements bind; those of inner functions apart."""
    found: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        todo += ast.iter_child_nodes(node)
    return found
