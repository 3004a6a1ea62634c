"""What AITER's Python sources say: signatures and constants by their syntax tree, gates by running their own conditions on given values."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

Row = dict[str, Any]


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The module's function of that name. Raises LookupError without one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise LookupError(f"no function {name}")


def signature(function: ast.FunctionDef) -> list[Row]:
    """The parameters in order: name, `type` as annotated, `default` (a literal, or its text in `default_text`), `keyword` where only a name
    will do."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    rows = [_parameter(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    return rows + [_parameter(a, default) | {"keyword": True} for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]


def _parameter(argument: ast.arg, default: ast.expr | None) -> Row:
    row: Row = {"name": argument.arg}
    if argument.annotation is not None:
        row["type"] = ast.unparse(argument.annotation)
    if default is not None:
        try:
            row["default"] = ast.literal_eval(default)
        except ValueError:
            row["default_text"] = ast.unparse(default)
    return row


def binding(tree: ast.Module, function: ast.FunctionDef) -> str:
    """How it is reached: `ctypes`, `pybind` (a compiled module), `custom_op` (torch.ops.aiter) or `python`."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "compile_ops":
            ffi = [keyword.value for keyword in decorator.keywords if keyword.arg == "ffi_type"]
            return "ctypes" if ffi and isinstance(ffi[0], ast.Constant) and ffi[0].value == "ctypes" else "pybind"
    for node in tree.body:
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "direct_register_custom_op":
            first = call.args[0]
            if isinstance(first, ast.Constant) and first.value == function.name:
                return "custom_op"
    return "python"


def constant(tree: ast.AST, name: str) -> tuple[Any, int]:
    """The literal that is assigned to `name` anywhere in the tree, and its line; a dict's keys as text. Raises LookupError."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            value = ast.literal_eval(node.value)
            return ({str(key): part for key, part in value.items()} if isinstance(value, dict) else value), node.lineno
    raise LookupError(f"no literal {name}")


def holds(test: ast.expr, values: Mapping[str, Any]) -> bool | None:
    """Whether a condition holds; None where it touches what is not given."""
    try:
        return bool(eval(compile(ast.Expression(test), "<gate>", "eval"), {"__builtins__": {"range": range, "int": int}}, dict(values)))
    except (NameError, AttributeError, TypeError):
        return None


def failed_assert(function: ast.FunctionDef, values: Mapping[str, Any]) -> int:
    """The line of the function's first assertion that fails on the values, or 0."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert) and not (isinstance(node.test, ast.Constant)) and holds(node.test, values) is False:
            return node.lineno
    return 0


def last_resort(function: ast.FunctionDef, values: Mapping[str, Any]) -> tuple[str, int]:
    """Which arm the chain of ifs takes whose last `else` is `assert False`: (`native`, `fold` or `refused`, line).

    `native` is the arm that does nothing, `fold` any other. Raises LookupError without such a chain.
    """
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or not _gives_up(node):
            continue
        arm: ast.If = node
        while True:
            if holds(arm.test, values):
                plain = all(isinstance(statement, ast.Pass) for statement in arm.body)
                return ("native" if plain else "fold"), arm.lineno
            rest = arm.orelse
            if len(rest) == 1 and isinstance(rest[0], ast.If):
                arm = rest[0]
                continue
            return "refused", rest[0].lineno
    raise LookupError(f"{function.name} has no chain that ends in assert False")


def _gives_up(node: ast.If) -> bool:
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
    last = node.orelse[:1]
    return bool(last) and isinstance(last[0], ast.Assert) and isinstance(last[0].test, ast.Constant) and not last[0].test.value


def routes(function: ast.FunctionDef) -> list[tuple[str, str, list[str], int]]:
    """The arms of the chain `if can_this(): ... elif can_that(): ... else`: (test's name or "", callee, names handed to it, line)."""
    nested = {node.name for node in function.body if isinstance(node, ast.FunctionDef)}
    for node in function.body:
        if isinstance(node, ast.If) and _tested(node.test) in nested:
            return list(_arms(node))
    raise LookupError(f"{function.name} has no chain of nested tests")


def _tested(test: ast.expr) -> str:
    return getattr(test.func, "id", "") if isinstance(test, ast.Call) else ""


def _arms(node: ast.If) -> Iterator[tuple[str, str, list[str], int]]:
    yield (_tested(node.test), *_callee(node.body), node.lineno)
    if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If) and _tested(node.orelse[0].test):
        yield from _arms(node.orelse[0])
    else:
        yield ("", *_callee(node.orelse), node.orelse[0].lineno)


def _callee(body: list[ast.stmt]) -> tuple[str, list[str]]:
    """The first function whose result an arm keeps, and the plain names it is given."""
    for statement in body:
        call = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            return call.func.id, sorted({part.id for value in given for part in ast.walk(value) if isinstance(part, ast.Name)})
    return "", []


def nested(function: ast.FunctionDef, values: Mapping[str, Any]) -> dict[str, Any]:
    """The functions defined inside it, runnable, with `values` as what they see around them."""
    inner: list[ast.stmt] = [node for node in function.body if isinstance(node, ast.FunctionDef)]
    space: dict[str, Any] = {"__builtins__": {"int": int, "bool": bool, "len": len}, **values}
    exec(compile(ast.Module(inner, []), "<gates>", "exec"), space)
    return {node.name: space[node.name] for node in inner if isinstance(node, ast.FunctionDef)}
