"""The source of functions and classes with everything they use from this package, as the statements of one script.

Names are followed through imports to their definitions. Annotations, docstrings and this package's decorators are left out;
of a class only the members that something in the script names are kept.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Callable
from typing import Any

from harness.commands.definitions import bound, free_names, is_module, table
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
_REGISTRY = {("harness.contracts.registry", name) for name in ("op", "ops", "make_inputs")}
_DECLARING = ("implements", "contract")
_RESERVED = {"main", "data", "x", "before", "scratch", "made", "returned", "outputs", "right"}  # what the script itself calls things
_NEUTRAL = ("ABC", "SimpleNamespace", "object")


class Bundle:
    """Statements in an order that runs. `entry`: the module and name of what is called; its module's definitions are written
    out as this package's are, and its decorators, which declare it, are left out."""

    def __init__(self, entry: tuple[str, str], used: frozenset[str] = frozenset()) -> None:
        self.entry, self.own = entry, entry[0]
        self.imports: dict[str, str] = {}
        self.statements: list[ast.stmt] = []
        self.used = used  # names by which class members and inputs are kept
        self._names: dict[tuple[str, str], str] = {}
        self._defined = set(_RESERVED)

    def require(self, module: str, name: str) -> str:
        """Adds the definition of a module-level name, once; returns what it is called in the script. Raises UsageError."""
        module, name = STAND_INS.get((module, name), (module, name))
        if (module, name) == _LAZY_TORCH:
            return self.imported("torch", "import torch")
        if (module, name) in self._names:
            return self._names[module, name]
        if (module, name) in _REGISTRY:
            raise UsageError(f"the source reads the harness' own {name}(), so no script of it stands alone")
        statement = table(module).get(name)
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
        copy: Any = ast.parse(ast.unparse(statement)).body[0]
        if (module, getattr(copy, "name", "")) == self.entry:
            copy.decorator_list = []
        clean = cleaner.visit(copy)
        called = dict(renamed or {})
        for name in free_names(clean) if module else ():
            if name in cleaner.inner:
                called[name] = self._inlined(*cleaner.inner[name])
            elif name in table(module):
                called[name] = self._global(module, name, clean)
            elif name not in called and not hasattr(builtins, name) and hasattr(importlib.import_module(module), name):
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
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and not isinstance(node.args[1], ast.Constant):
                found |= {"__dict__"} if ast.unparse(node.args[0]) in ("x", "self.x") else set()  # of the inputs, any may be meant
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
        found = table(module).get(base.id)
        return isinstance(found, ast.ClassDef) or (isinstance(found, ast.ImportFrom) and self.inlines(found.module or ""))

    def imported(self, name: str, text: str, binds: str = "") -> str:
        """Adds the import statement of `name`, which binds it (or `binds`: its first part); returns what it binds."""
        binds = binds or name
        if binds in self._defined or self.imports.setdefault(name, text) != text:
            raise UsageError(f"two modules mean different things by {name!r}, one of them {text!r}: rename it in the provider")
        return binds

    def _follow(self, statement: ast.Import | ast.ImportFrom, name: str) -> str:
        alias = next(a for a in statement.names if (a.asname or a.name.split(".")[0]) == name)
        if isinstance(statement, ast.ImportFrom) and self.inlines(statement.module or ""):
            return self._inlined(statement.module or "", alias.name)
        return self.imported(alias.asname or alias.name, ast.unparse(type(statement)(**{**vars(statement), "names": [alias]})), name)

    def _inlined(self, module: str, name: str) -> str:
        return self.imported("torch", "import torch") if module == "" else self.require(module, name)

    def _global(self, module: str, name: str, user: ast.AST) -> str:
        """A global name of a module; a module of this package (`rounding.FP32`) becomes one name an attribute."""
        found = table(module)[name]
        if isinstance(found, (ast.Import, ast.ImportFrom)):
            alias = next(a for a in found.names if (a.asname or a.name.split(".")[0]) == name)
            whole = f"{found.module}.{alias.name}" if isinstance(found, ast.ImportFrom) else alias.name
            if self.inlines(whole) and (isinstance(found, ast.Import) or alias.name not in table(found.module or "")) and is_module(whole):
                _Flatten(name, lambda attribute: self.require(whole, attribute)).visit(user)
                return name
        return self.require(module, name)


def bundle(fill: Callable[[Bundle], None], entry: tuple[str, str]) -> Bundle:
    """The bundle that `fill` fills, with the fewest class members: repeated until what is kept and what is named agree."""
    used: frozenset[str] = frozenset()
    while True:
        made = Bundle(entry, used)
        fill(made)
        names = made.names()
        if names <= used:
            return made
        used |= names


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
        return all(self.into.keeps(self.module, node, name) for name in bound(member))

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
