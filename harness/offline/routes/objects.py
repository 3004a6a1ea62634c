"""SGLang's own objects under description: methods and properties come from its sources, fields from a description; the rest raises."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.offline.routes.linking import Linker, Undescribed
from harness.offline.routes.parsing import Module, Tree
from harness.offline.routes.slicing import cut, writes


class Instance:
    """An object of a class of the tree that was never constructed: `values` are its fields, its methods are the class's own."""

    def __init__(self, linker: Linker, module: Module, owner: str, values: Mapping[str, Any], absent: Iterable[str] = ()) -> None:
        self.__dict__.update(_linker=linker, _module=module, _owner=owner, _values=dict(values), _absent=frozenset(absent), _read=set(), _only=frozenset())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._read.add(name)
        if name in self._values:
            return self._values[name]
        node = self._module.function(name, self._owner)
        if node is not None:
            if self._only and writes(node, self._module.methods(self._owner)):
                node, _ = cut(node, *self._only, methods=self._module.methods(self._owner))
            made = self._linker.function(self._module, node)
            return made.__get__(self, type(self)) if hasattr(made, "__get__") else made
        if name in self._absent:
            raise AttributeError(name)
        raise Undescribed(f"{self._owner}.{name} is not described")

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __delattr__(self, name: str) -> None:
        self._values.pop(name, None)

    def call(self, name: str, *wanted: str) -> Any:
        """Calls the method `name` cut down to what decides the attributes `wanted`; the methods it calls, and functions it hands itself to, are cut alike."""
        key = self._module.name, self._owner, name, wanted
        if key not in self._linker.plans:
            self._linker.plans[key] = self._plan(name, wanted)
        node, self.__dict__["_only"], helpers = self._linker.plans[key]
        for module, helper in helpers:
            full = f"{module.name}.{helper.name}"
            if full not in self._linker.answers:
                self._linker.answers[full] = self._linker.function(module, helper)
        try:
            return self._linker.function(self._module, node)(self)
        finally:
            self.__dict__["_only"] = frozenset()

    def _plan(self, name: str, wanted: tuple[str, ...]) -> tuple[ast.FunctionDef, frozenset[str], list[tuple[Module, ast.FunctionDef]]]:
        """The method cut down, the names that its own methods are to be cut down to, and the functions that it hands itself to, cut down."""
        node = self._module.function(name, self._owner)
        if node is None:
            raise Undescribed(f"{self._module.path} has no {self._owner}.{name}")
        handed = dict(self._handed(node))
        methods = {**self._module.methods(self._owner), **{helper: function for helper, (_, function) in handed.items()}}
        small, only = cut(node, *(f"self.{part}" for part in wanted), methods=methods)
        helpers = [(module, cut(function, *(f"{function.args.args[0].arg}.{part}" for part in wanted))[0]) for module, function in handed.values()]
        return small, only, helpers

    def _handed(self, node: ast.FunctionDef) -> Iterator[tuple[str, tuple[Module, ast.FunctionDef]]]:
        """The functions of other modules that a method hands itself to, by name."""
        imports = [part for part in [*ast.walk(node), *self._module.tree.body] if isinstance(part, ast.ImportFrom)]
        for part in ast.walk(node):
            call = part.value if isinstance(part, ast.Expr) else None
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                continue
            if any(isinstance(given, ast.Name) and given.id == "self" for given in call.args):
                name = call.func.id
                sources = [self._module.absolute(found.module, found.level) for found in imports if name in [alias.name for alias in found.names]]
                module = self._linker.tree.module(sources[0]) if sources else None
                function = module.function(name) if module else None
                if module is not None and function is not None and function.args.args:
                    yield name, (module, function)

    def __repr__(self) -> str:
        return self._owner


def argument_defaults(tree: Tree) -> dict[str, Any]:
    """The literal defaults of SGLang's server arguments, from the class ServerArgs or, since 0.5.19, the classes of arg_groups/fields."""
    modules = ["sglang.srt.server_args"]
    folder = tree.root / "sglang" / "srt" / "arg_groups" / "fields"
    modules += [f"sglang.srt.arg_groups.fields.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    found: dict[str, Any] = {}
    for name in modules:
        module = tree.module(name)
        for node in module.tree.body if module else []:
            if isinstance(node, ast.ClassDef) and (node.name == "ServerArgs" or name != modules[0]):
                found |= _literal_fields(node)
    return found


def _literal_fields(node: ast.ClassDef) -> dict[str, Any]:
    found = {}
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
            try:
                found[part.target.id] = ast.literal_eval(part.value)
            except ValueError:
                continue  # a computed default: undescribed, so that code which reads it says so
    return found
