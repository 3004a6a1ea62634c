"""What the syntax of a function says of it before anything is evaluated: the names it binds, whether it loops, its parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from harness.offline.symbols.tree import statements


class Shape(NamedTuple):
    """One function: the names, and attributes as `name.attribute`, that its statements bind, those of inner functions apart; the names local to it."""

    binds: frozenset[str]
    local: frozenset[str]


AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


def shape(node: AnyFunction) -> Shape:
    """The shape of a function, read once and kept with its node."""
    kept = getattr(node, "_shape", None)
    if kept is None:
        binds = frozenset(assigned(node.body))
        outer = {name for part in statements(node.body) if isinstance(part, (ast.Global, ast.Nonlocal)) for name in part.names}
        kept = node._shape = Shape(binds, frozenset((binds | parameters(node.args)) - outer))  # type: ignore[union-attr]
    assert isinstance(kept, Shape)
    return kept


def loops(node: AnyFunction) -> bool:
    """Whether there is a `for` or a `while` in it, or in a function inside it."""
    return any(isinstance(part, (ast.For, ast.While)) for part in statements(node.body))


def yields(node: AnyFunction) -> bool:
    """Whether there is a `yield` in it, or in a function inside it."""
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(node))


def assigned(body: Iterable[ast.AST]) -> set[str]:
    """The names, and attributes as `name.attribute`, that the statements bind; those of inner functions apart."""
    found: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, (ast.Lambda, ast.Constant)):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        todo += _children(node)
    return found


def _children(node: ast.AST) -> list[ast.AST]:
    """As ast.iter_child_nodes, which takes three times as long: most of what reading shapes costs."""
    found: list[ast.AST] = []
    for name in node._fields:
        part = getattr(node, name, None)
        if isinstance(part, list):
            found += [inner for inner in part if isinstance(inner, ast.AST)]
        elif isinstance(part, ast.AST):
            found.append(part)
    return found


def parameters(arguments: ast.arguments) -> set[str]:
    """The names of all parameters."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *(a for a in (arguments.vararg, arguments.kwarg) if a)]
    return {argument.arg for argument in named}


def is_static(node: AnyFunction) -> bool:
    """Whether the method takes no instance."""
    return any((d.id if isinstance(d, ast.Name) else getattr(d, "attr", "")) == "staticmethod" for d in node.decorator_list)
