"""Mutants of one source file: every place where an operator applies, and the file's text with one of them changed."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from harness.faults.mutants.operators import OPERATORS, Scope, idle, names_axis, scope_of, target_of

_SHOWN = 70  # characters of a node's text in a key


@dataclass(frozen=True)
class Mutant:
    """One node of a source file changed. `key` names it without line numbers, so that it survives edits elsewhere in the function.

    module, function  where it is; `function` is the name with its class, as `Sampler.forward`
    file, line        the source and the line of the node
    statement         first and last line of what must be executed to meet the node
    span              the bytes of the file that are replaced
    expression        whether the node is an expression, else a statement
    """

    key: str
    module: str
    function: str
    operator: str
    file: str
    line: int
    before: str
    after: str
    statement: tuple[int, int] = field(compare=False)
    span: tuple[int, int] = field(compare=False)
    expression: bool = field(compare=False)

    @property
    def kernel(self) -> str:
        return f"{self.module}:{self.function}"

    def applied(self, source: str) -> str:
        """The file's text with this mutant; every other line keeps its number."""
        data = source.encode()
        start, end = self.span
        lines = "\n" * data[start:end].count(b"\n")
        made = f"({self.after}{lines})" if self.expression else f"{self.after}{lines}"
        return (data[:start] + made.encode() + data[end:]).decode()


@dataclass(frozen=True)
class Function:
    """A function of a source file: its name with its class, its node, and whether Triton compiles it."""

    name: str
    node: ast.FunctionDef
    kernel: bool


def functions(source: str) -> Iterator[Function]:
    """The functions at the top of a file and in its classes."""
    for node in ast.parse(source).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                name = f"{node.name}.{inner.name}" if isinstance(node, ast.ClassDef) else inner.name
                yield Function(name, inner, any("jit" in ast.unparse(decorator) for decorator in inner.decorator_list))


def mutants(source: str, module: str, file: str, function: Function) -> list[Mutant]:
    """Every mutant of a function."""
    starts = [0]
    for line in source.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    seen: Counter[str] = Counter()
    found = []
    for node, holder, scope in _nodes(function.node):
        for name, operator in OPERATORS.items():
            for made in operator(node, scope):
                where, new = _replacement(node, made)
                before, after = ast.unparse(where), ast.unparse(new)
                if "\n" in after or after == before:
                    continue
                stem = f"{module}:{function.name}:{name}:{_short(before)} => {_short(after)}"
                seen[stem] += 1
                key = stem if seen[stem] == 1 else f"{stem} #{seen[stem]}"
                span = (starts[where.lineno - 1] + where.col_offset, starts[(where.end_lineno or 0) - 1] + (where.end_col_offset or 0))
                found.append(Mutant(key, module, function.name, name, file, where.lineno, before, after, holder, span, isinstance(where, ast.expr)))
    return found


def _replacement(node: Any, made: Any) -> tuple[Any, Any]:
    """The node that is replaced, and by what: of a changed `if` its condition alone."""
    if made is None:
        return node, ast.Pass()
    return (node.test, made.test) if isinstance(node, ast.If) else (node, made)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[: _SHOWN - 12]}... {hashlib.sha256(flat.encode()).hexdigest()[:8]}"


def _nodes(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, tuple[int, int], Scope]]:
    """Every node of the body that may be changed, with the lines of its statement and the scope there."""
    outside = scope_of(function)
    stack: list[tuple[ast.AST, ast.stmt, ast.AST]] = [(statement, statement, function) for statement in reversed(function.body)]
    while stack:
        node, holder, parent = stack.pop()
        if idle(node):
            continue
        if isinstance(node, ast.If) and _elsewhere(node):
            stack.extend((statement, statement, node) for statement in reversed(node.orelse))
            continue
        yield node, _lines(holder), replace(outside, target=target_of(holder), axis=names_axis(node, parent))
        for name, value in reversed(list(ast.iter_fields(node))):
            if name in ("annotation", "returns", "type_comment"):
                continue
            children = [child for child in reversed(value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)]
            stack.extend((child, child if isinstance(child, ast.stmt) else holder, node) for child in children)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a statement; of one with a body, its head."""
    body = getattr(statement, "body", None)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else (statement.end_lineno or statement.lineno)


def _elsewhere(node: ast.AST) -> bool:
    """Whether it is a branch for tensors of a device, by a condition that is false on the CPU, where mutants run."""
    if not isinstance(node, ast.If):
        return False
    parts = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return any(isinstance(part, ast.Attribute) and part.attr in ("is_cuda", "is_npu", "is_xpu") for part in parts)
