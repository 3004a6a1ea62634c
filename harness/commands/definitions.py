"""Where a module binds its names, in its own source."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import symtable
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.errors import UsageError


def source_of(function: Callable[..., Any], name: str) -> ast.FunctionDef:
    """The definition of a function as `name`, also of one inside another, and of a lambda. Raises UsageError for a missing source."""
    code = function.__code__
    try:
        tree = ast.parse(Path(inspect.getsourcefile(function) or "").read_text())
    except (OSError, TypeError, SyntaxError) as error:
        raise UsageError(f"{function!r} has no source to write a script from: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__ and _first_line(node) == code.co_firstlineno:
            node.name = name
            return node
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno and [a.arg for a in node.args.args] == [*code.co_varnames[: code.co_argcount]]:
            return ast.FunctionDef(name, node.args, [ast.Return(node.body)], [], lineno=0)
    raise UsageError(f"{function!r} is not found in its source, so no script can be written from it")


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


@functools.cache
def table(module: str) -> dict[str, ast.stmt]:
    """The statement that binds each module-level name, also those under if, for, try and with."""
    path = inspect.getsourcefile(importlib.import_module(module))
    tree = ast.parse(Path(path).read_text()) if path else ast.Module([], [])
    return {name: statement for statement in flat(tree.body) for name in bound(statement)}


def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements and those inside if, for, with and try."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.For, ast.With, ast.Try)):
            yield from flat([*statement.body, *getattr(statement, "orelse", []), *(s for h in getattr(statement, "handlers", []) for s in h.body)])
        else:
            yield statement


def bound(statement: ast.stmt) -> list[str]:
    """The names that a statement binds."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return []


def free_names(statement: ast.AST) -> list[str]:
    """The global names a statement reads, in any of its scopes."""
    found: dict[str, None] = {}

    def look(scope: symtable.SymbolTable) -> None:
        found.update({symbol.get_name(): None for symbol in scope.get_symbols() if symbol.is_global() and symbol.is_referenced()})
        for child in scope.get_children():
            look(child)

    look(symtable.symtable(ast.unparse(ast.fix_missing_locations(statement)), "script", "exec"))
    return list(found)


def is_module(name: str) -> bool:
    """Whether the name is an importable module."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
