"""The source of functions and classes with everything they use from this package, as the statements of one script.

Names are followed through imports to their definitions. Annotations, docstrings and this package's decorators are left out;
of a class only the members that something in the script names are kept.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import symtable
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.errors import UsageError

KIT = "harness.commands.kit"
PACKAGE = "harness"
_LAZY_TORCH = ("harness.contracts._torch", "torch")
# short stand-ins for what the harness does with more care
STAND_INS = {
    ("harness.contracts.inputs", "Inputs"): (KIT, "Inputs"),
    ("harness.providers.resolve", "resolve"): (KIT, "resolve"),
    ("harness.providers.isolate", "isolate"): (KIT, "isolate"),
    ("harness.errors", "Missing"): (KIT, "Missing"),
    ("harness.errors", "Unsupported"): (KIT, "Unsupported"),
}
_DECLARING = ("implements", "contract")
_NEUTRAL = ("ABC", "SimpleNamespace", "object")


class Bundle:
    """Statements in an order that runs. `own`: the one module besides this package whose definitions are written out."""

    def __init__(self, own: str, used: frozenset[str] = frozenset()) -> None:
        self.own = own
        self.imports: dict[str, str] = {}
        self.statements: list[ast.stmt] = []
        self.used = used  # names by which class members and inputs are kept
        self._names: dict[tuple[str, str], str] = {}
        self._defined: set[str] = set()

    def require(self, module: str, name: str) -> str:
        """Adds the definition of a module-level name, once; returns what it is called in the script. Raises UsageError."""
        module, name = STAND_INS.get((module, name), (module, name))
        if (module, name) == _LAZY_TORCH:
            return self.imported("torch", "import torch")
        if (module, name) in self._names:
            return self._names[module, name]
        statement = _table(module).get(name)
        if statement is None:
            raise UsageError(f"{module} defines no {name!r} at its top level, so no script can be written from its source")
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            called = self._follow(statement, name)
            self._names[module, name] = called
            return called
        taken = self._defined | self.imports.keys()
        called = next(n for n in (name, *(f"{name}_{i}" for i in range(2, 100))) if n not in taken)
        self._names[module, name] = called
        self._defined.add(called)
        self.add(module, statement, {name: called} if called != name else {})
        return called

    def add(self, module: str, statement: ast.stmt, renamed: dict[str, str] | None = None) -> None:
        """Adds a statement that reads its names in `module` (empty: in the script itself), after what it needs."""
        cleaner = _Cleaner(self, module)
        clean = cleaner.visit(ast.parse(ast.unparse(statement)).body[0])
        called = dict(renamed or {})
        for name in _free(clean) if module else ():
            if name in cleaner.inner:
                called[name] = self._inlined(*cleaner.inner[name])
            elif name in _table(module):
                called[name] = self._global(module, name, clean)
            elif not hasattr(builtins, name) and name not in called:
                raise UsageError(f"{module} binds {name!r} in a way that no script can be written from (a loop variable, or at run time)")
        self.statements.append(_Rename({old: new for old, new in called.items() if old != new}).visit(clean))

    def names(self) -> set[str]:
        """Every attribute and identifier-like string in the statements."""
        found = set()
        for node in (n for statement in self.statements for n in ast.walk(statement)):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.ClassDef):
                found |= {n.id for member in node.body if isinstance(member, ast.Assign) for n in ast.walk(member) if isinstance(n, ast.Name)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and isinstance(node.args[1], ast.JoinedStr):
                found.add("__dict__")  # a name made at run time may be any
        return found

    def keeps(self, module: str, cls: ast.ClassDef, member: str) -> bool:
        """Whether a member of a class is written out: it is named somewhere, or the class may be called back by another library."""
        dunder = member.startswith("__") and member.endswith("__")
        return dunder or member in self.used or not self.owns(module, cls)

    def owns(self, module: str, cls: ast.ClassDef) -> bool:
        """Whether every base of a class is written out too, so that no other library calls its members."""
        return all(self._ours(module, base) for base in cls.bases)

    def inlines(self, module: str) -> bool:
        """Whether definitions of that module are written out rather than imported."""
        return module == self.own or module.split(".")[0] == PACKAGE

    def _ours(self, module: str, base: ast.expr) -> bool:
        if not isinstance(base, ast.Name):
            return False
        if base.id in _NEUTRAL:
            return True
        found = _table(module).get(base.id)
        return isinstance(found, ast.ClassDef) or (isinstance(found, ast.ImportFrom) and self.inlines(found.module or ""))

    def imported(self, name: str, text: str, bound: str = "") -> str:
        """Adds the import statement of `name`, which binds it (or `bound`: its first part); returns what it binds."""
        bound = bound or name
        if bound in self._defined or self.imports.setdefault(name, text) != text:
            raise UsageError(f"two modules mean different things by {name!r}, one of them {text!r}: rename it in the provider")
        return bound

    def _follow(self, statement: ast.Import | ast.ImportFrom, name: str) -> str:
        alias = next(a for a in statement.names if (a.asname or a.name.split(".")[0]) == name)
        if isinstance(statement, ast.ImportFrom) and self.inlines(statement.module or ""):
            return self._inlined(statement.module or "", alias.name)
        return self.imported(alias.asname or alias.name, ast.unparse(type(statement)(**{**vars(statement), "names": [alias]})), name)

    def _inlined(self, module: str, name: str) -> str:
        return self.imported("torch", "import torch") if module == "" else self.require(module, name)

    def _global(self, module: str, name: str, user: ast.AST) -> str:
        """A global name of a module; a module of this package (`rounding.FP32`) becomes one name an attribute."""
        found = _table(module)[name]
        if isinstance(found, (ast.Import, ast.ImportFrom)):
            alias = next(a for a in found.names if (a.asname or a.name.split(".")[0]) == name)
            whole = f"{found.module}.{alias.name}" if isinstance(found, ast.ImportFrom) else alias.name
            if self.inlines(whole) and (isinstance(found, ast.Import) or alias.name not in _table(found.module or "")) and _is_module(whole):
                _Flatten(name, lambda attribute: self.require(whole, attribute)).visit(user)
                return name
        return self.require(module, name)


def bundle(fill: Callable[[Bundle], None], own: str) -> Bundle:
    """The bundle that `fill` fills, with the fewest class members: repeated until what is kept and what is named agree."""
    used: frozenset[str] = frozenset()
    while True:
        made = Bundle(own, used)
        fill(made)
        names = made.names()
        if names <= used:
            return made
        used |= names


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


class _Cleaner(ast.NodeTransformer):
    """Leaves out what only readers and checkers need, and imports of what is written out. `inner` are those inside functions."""

    def __init__(self, into: Bundle, module: str) -> None:
        self.into, self.module = into, module
        self.inner: dict[str, tuple[str, str]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in (*arguments, *filter(None, (node.args.vararg, node.args.kwarg))):
            argument.annotation = None
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.body = [member for member in node.body if self._stays(node, member)]
        for member in node.body:
            if isinstance(member, ast.AnnAssign):
                member.annotation = ast.Name("object")  # a field, whatever its type
        return self._body(node)

    def _stays(self, node: ast.ClassDef, member: ast.stmt) -> bool:
        if isinstance(member, ast.AnnAssign) and any(not _declares(d) for d in node.decorator_list):
            return True  # a field of a dataclass
        if isinstance(member, ast.AnnAssign) and member.value is None and self.into.owns(self.module, node):
            return False
        return all(self.into.keeps(self.module, node, name) for name in _bound(member))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not isinstance(node.target, ast.Name) or (isinstance(node.annotation, ast.Name) and node.annotation.id == "object"):
            return node
        return self.visit(ast.Assign([node.target], node.value, lineno=0)) if node.value else None

    def visit_Import(self, node: ast.Import) -> Any:
        if [(a.name, a.asname) for a in node.names] != [("torch", None)]:
            return node
        self.inner["torch"] = ("", "torch")
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if not self.into.inlines(node.module or ""):
            return node
        self.inner |= {a.asname or a.name: (node.module or "", a.name) for a in node.names}
        return None

    def _body(self, node: Any) -> Any:
        node.decorator_list = [d for d in node.decorator_list if not _declares(d)]
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def _declares(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id in _DECLARING


class _Rename(ast.NodeTransformer):
    def __init__(self, called: dict[str, str]) -> None:
        self.called = called

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self.called.get(node.id, node.id)
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.name = self.called.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: Any) -> Any:
        return self.visit_FunctionDef(node)


class _Flatten(ast.NodeTransformer):
    """module.attribute -> the attribute's own name in the script."""

    def __init__(self, module: str, require: Callable[[str], str]) -> None:
        self.module, self.require = module, require

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == self.module:
            return ast.Name(self.require(node.attr), node.ctx)
        return self.generic_visit(node)


@functools.cache
def _table(module: str) -> dict[str, ast.stmt]:
    """The statement that binds each module-level name, also those under if, for, try and with."""
    path = inspect.getsourcefile(importlib.import_module(module))
    tree = ast.parse(Path(path).read_text()) if path else ast.Module([], [])
    return {name: statement for statement in _flat(tree.body) for name in _bound(statement)}


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, (ast.If, ast.For, ast.With, ast.Try)):
            yield from _flat([*statement.body, *getattr(statement, "orelse", []), *(s for h in getattr(statement, "handlers", []) for s in h.body)])
        else:
            yield statement


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return []


def _free(statement: ast.AST) -> list[str]:
    """The global names a statement reads, in any of its scopes."""
    found: dict[str, None] = {}

    def look(scope: symtable.SymbolTable) -> None:
        found.update({symbol.get_name(): None for symbol in scope.get_symbols() if symbol.is_global() and symbol.is_referenced()})
        for child in scope.get_children():
            look(child)

    look(symtable.symtable(ast.unparse(ast.fix_missing_locations(statement)), "script", "exec"))
    return list(found)


def _is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
