"""The modules of a source tree, parsed once: which statements bind a name, and their code with every condition made visible."""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

from harness.errors import UsageError

SEEN = "__seen__"  # the builtin that instrumented code calls with a condition's place and value


@dataclass(frozen=True)
class Place:
    """Where a condition stands: path below the package's root, line, the function around it, and its text on one line."""

    path: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass
class Module:
    """One parsed module. `path` is relative to the source root; `package` says whether it is a package's __init__."""

    name: str
    path: str
    package: bool
    tree: ast.Module
    places: list[Place] = field(default_factory=list)
    _bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    _methods: dict[str, dict[str, ast.FunctionDef]] = field(default_factory=dict)
    _code: dict[int, tuple[ast.stmt, CodeType]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for statement in self.tree.body:
            for name in dict.fromkeys(bindings(statement)):
                self._bindings.setdefault(name, []).append(statement)

    def binding(self, name: str) -> list[ast.stmt]:
        """The top-level statements that bind `name`, in order; a compound statement binds what its blocks bind."""
        return self._bindings.get(name, [])

    def stars(self) -> Iterator[ast.ImportFrom]:
        """The `from x import *` statements."""
        return (node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*")

    def function(self, name: str, owner: str = "") -> ast.FunctionDef | None:
        """The function `name`, or the method `name` of the class `owner`."""
        return self.methods(owner).get(name)

    def methods(self, owner: str) -> dict[str, ast.FunctionDef]:
        """The methods of the class `owner`, or the module's functions for an empty name."""
        if owner not in self._methods:
            body = [part for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == owner for part in node.body] if owner else self.tree.body
            self._methods[owner] = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        return self._methods[owner]

    def code(self, statement: ast.stmt) -> CodeType:
        """The statement compiled; each `if`, conditional expression, assertion and returned `and`/`or` reports its conditions to SEEN."""
        if id(statement) not in self._code:  # the node is kept beside its code, so that no other node can get its id
            shown = ast.fix_missing_locations(_Visible(self).visit(copy.deepcopy(statement)))
            flags = __future__.annotations.compiler_flag
            self._code[id(statement)] = statement, compile(ast.Module([shown], []), self.path, "exec", flags=flags, dont_inherit=True)
        return self._code[id(statement)][1]

    def absolute(self, node_module: str | None, level: int) -> str:
        """The module that an import statement of this one names."""
        if not level:
            return node_module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - level + self.package]
        return ".".join([*parts, *([node_module] if node_module else [])])


class Tree:
    """A source tree: modules are read and parsed when they are first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The module of that dotted name, or None where the tree has none."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        base = self.root.joinpath(*name.split("."))
        for path, package in ((base.with_suffix(".py"), False), (base / "__init__.py", True)):
            if path.is_file():
                return _parsed(name, str(path.relative_to(self.root)), package, path.resolve(), path.stat().st_mtime_ns)
        if base.is_dir():  # a package without __init__.py binds nothing but its modules
            return Module(name, str(base.relative_to(self.root)), True, ast.Module([], []))
        return None


@functools.lru_cache(maxsize=512)
def _parsed(name: str, relative: str, package: bool, path: Path, changed: int) -> Module:
    """A file's module; one for all trees that hold the same file, so that it is parsed and compiled once."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, OSError) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"cannot parse {path} ({said}); is the file whole, and not for a newer Python than {platform.python_version()}?") from None
    return Module(name, relative, package, tree)


class _Visible(ast.NodeTransformer):
    """Wraps conditions in SEEN(module, number of the place, condition)."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._around: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._around.append(node.name)
        try:
            return self.generic_visit(node)
        finally:
            self._around.pop()

    def _wrap(self, test: ast.expr) -> ast.expr:
        self._module.places.append(Place(self._module.path, test.lineno, self._around[-1] if self._around else "", ast.unparse(test)))
        number = len(self._module.places) - 1
        call = ast.Call(ast.Name(SEEN, ast.Load()), [ast.Constant(self._module.name), ast.Constant(number), test], [])
        return ast.copy_location(call, test)

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._wrap(node.test)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._wrap(node.test)
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.test = self._wrap(node.test)
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if isinstance(node.value, ast.BoolOp):
            node.value.values = [self._wrap(value) for value in node.value.values]
        return self.generic_visit(node)


def bindings(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds; a compound one, those of its blocks."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.split(".")[0] for alias in statement.names if alias.name != "*")
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    else:
        for block in ("body", "orelse", "finalbody", "handlers"):
            for part in getattr(statement, block, []):
                yield from (name for inner in part.body for name in bindings(inner)) if isinstance(part, ast.ExceptHandler) else bindings(part)
