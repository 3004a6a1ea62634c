"""What assignments bind, and which names and attributes statements bind at all."""

from __future__ import annotations

import ast

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
