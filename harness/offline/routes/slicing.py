"""A function cut down to the statements that decide some of its names: its conditions, returns and what feeds them stay; logging, checks and the rest go."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping

Methods = Mapping[str, ast.FunctionDef]
# what was cut, by the ids of the nodes that went in; they are kept beside it, so that their ids stay theirs
_CUTS: dict[tuple[int, tuple[str, ...]], tuple[list[ast.stmt], ast.FunctionDef, frozenset[str]]] = {}


def cut(node: ast.FunctionDef, *wanted: str, methods: Methods | None = None) -> tuple[ast.FunctionDef, frozenset[str]]:
    """The function with the body that decides `wanted` alone, and every name that this depends on; the same node for the same question,
    so that it is compiled once. methods: those of `self`, and functions that are handed it; their calls stay where they set one of the names."""
    key = id(node), (*sorted(wanted), *(str(id(method)) for method in (methods or {}).values()))
    if key not in _CUTS:
        body, relevant = slice_for(node.body, wanted, methods or {})
        made = ast.FunctionDef(node.name, node.args, body or [ast.copy_location(ast.Pass(), node)], node.decorator_list, None, None)
        _CUTS[key] = [node, *(methods or {}).values()], ast.copy_location(made, node), frozenset(relevant)
    return _CUTS[key][1:]


def block(statement: ast.stmt, *names: str) -> ast.FunctionDef:
    """A statement as the body of a function of `names`."""
    key = id(statement), names
    if key not in _CUTS:
        arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
        _CUTS[key] = [statement], ast.copy_location(ast.FunctionDef("block", arguments, [statement], [], None, None), statement), frozenset()
    return _CUTS[key][1]


def slice_for(body: list[ast.stmt], wanted: Iterable[str], methods: Methods) -> tuple[list[ast.stmt], set[str]]:
    """The statements of `body` that decide `wanted`, copied, and all names that they read. A name is `x`, an attribute `self.x`, an item
    of a local mapping `x['key']`.

    Returns are kept with the conditions they hang on; `raise`, `assert` and other calls are not: what they check ends a start-up, it does
    not choose a route.
    """
    relevant = set(wanted)
    while True:
        kept = _keep(body, relevant, methods)
        reads = {name for statement in kept for name in _reads(statement)}
        todo, done = list(reads), set()
        while todo:
            method = methods.get(todo.pop().removeprefix("self."))
            if method is not None and method.name not in done:
                done.add(method.name)
                more = {name for statement in _keep(method.body, relevant, methods) for name in _reads(statement)}
                reads |= more
                todo += more
        if reads <= relevant:
            return kept, relevant
        relevant |= reads


def writes(node: ast.FunctionDef, methods: Methods) -> set[str]:
    """The attributes that a method sets of `self`, or a function of its first argument, as `self.x`; by the methods it calls as well."""
    found: set[str] = set()
    todo, done = [node], {node.name}
    while todo:
        node = todo.pop()
        first = node.args.args[0].arg if node.args.args else "self"
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == first:
                if isinstance(part.ctx, ast.Store):
                    found.add(f"self.{part.attr}")
                elif part.attr in methods and part.attr not in done:
                    done.add(part.attr)
                    todo.append(methods[part.attr])
    return found


def _keep(body: list[ast.stmt], relevant: set[str], methods: Methods) -> list[ast.stmt]:
    return [kept for statement in body if (kept := _kept(statement, relevant, methods)) is not None]


def _kept(statement: ast.stmt, relevant: set[str], methods: Methods) -> ast.stmt | None:
    if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return copy.deepcopy(statement) if any(_name(part) in relevant for target in targets for part in _parts(target)) else None
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        found = [alias for alias in statement.names if (alias.asname or alias.name.split(".")[0]) in relevant]
        if not found:
            return None
        part = copy.deepcopy(statement)
        part.names = found
        return part
    if isinstance(statement, (ast.Return, ast.Global)) or _updates(statement, relevant, methods):
        return copy.deepcopy(statement)
    if isinstance(statement, (ast.If, ast.For, ast.While, ast.With)):
        inner = _keep(statement.body, relevant, methods)
        other = _keep(getattr(statement, "orelse", []), relevant, methods)
        if not inner and not other:
            return None
        shell = copy.copy(statement)
        shell.body = inner or [ast.copy_location(ast.Pass(), statement)]
        if isinstance(shell, ast.If):
            shell.orelse, shell.test = other, copy.deepcopy(shell.test)
        return shell
    if isinstance(statement, (ast.Try, ast.Match)):  # kept whole: what its blocks skip is decided by what they run
        stores = (part for part in ast.walk(statement) if isinstance(part, ast.expr) and isinstance(getattr(part, "ctx", None), ast.Store))
        return copy.deepcopy(statement) if any(_name(part) in relevant for part in stores) else None
    return None


def _updates(statement: ast.stmt, relevant: set[str], methods: Methods) -> bool:
    """Whether it is `x.update(...)` of a mapping that may carry a relevant key, or the call of a method that sets a relevant attribute."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    if isinstance(call.func, ast.Name):
        handed = any(_name(part) == "self" for part in call.args) and call.func.id in methods
        return handed and bool(writes(methods[call.func.id], methods) & relevant)
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = _name(call.func.value)
    if owner == "self" and call.func.attr in methods:
        return bool(writes(methods[call.func.attr], methods) & relevant)
    if call.func.attr != "update" or owner not in relevant:
        return False
    return bool(call.args) or any(f"{owner}[{word.arg!r}]" in relevant for word in call.keywords)


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _name(node: ast.expr) -> str:
    """The name that an expression reads or a target binds, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        return f"{node.value.id}[{node.slice.value!r}]"
    return ""


def _reads(statement: ast.stmt) -> set[str]:
    return {name for node in ast.walk(statement) if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", None), ast.Load) and (name := _name(node))}
