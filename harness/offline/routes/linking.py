"""Runs parts of a source tree without importing it: a name is bound when it is first used, by the statements of its module that bind it.

What the tree does not hold (torch, os, the device) comes from a described world. Anything neither holds raises Undescribed; nothing is guessed.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from typing import Any

from harness.offline.routes.parsing import SEEN, Module, Place, Tree, bindings

_PACKAGE = "sglang"


class Undescribed(BaseException):
    """The code reached a name, an attribute or an import that nobody described. Not an Exception, so that no `except Exception` of the code hides it."""


def told(error: BaseException) -> str:
    """The error in one line; an Undescribed in its own words, another with its type."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Undescribed) else f"{type(error).__name__}: {text}"


class Trace:
    """The conditions that ran, in order, with their outcome; `forced` turns some of them round."""

    def __init__(self) -> None:
        self.seen: list[tuple[Place, bool]] = []
        self.forced: dict[Place, bool] = {}

    def note(self, place: Place, value: Any) -> Any:
        """Records one condition and returns the value that the code is to go on with."""
        value = self.forced.get(place, value)
        self.seen.append((place, bool(value)))
        return value


class Linker:
    """One described world's view of one source tree."""

    def __init__(self, tree: Tree, world: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
        """world: the modules outside the tree, by dotted name; answers: values of names of the tree that are described instead of run."""
        self.tree, self.trace = tree, Trace()
        self._world, self.answers = world, dict(answers)
        self.filled: set[str] = set()  # containers that start empty and that are known to hold all they ever will
        self.plans: dict[tuple[Any, ...], Any] = {}  # methods cut down, by what they were cut for
        self._spaces: dict[str, dict[str, Any]] = {}
        self._done: set[int] = set()

    def load(self, module_name: str, name: str) -> Any:
        """The value of a module's global. Raises Undescribed."""
        full = f"{module_name}.{name}"
        if full in self.answers:
            return self.answers[full]
        space = self.space(module_name)
        if name in space:
            return space[name]
        module = self.module(module_name)
        try:
            for statement in module.binding(name):
                self._execute(module, statement, name)
        except BaseException:  # a name that two statements bind is not what the first alone made of it
            space.pop(name, None)
            raise
        if name in space:
            if isinstance(space[name], (list, dict, set)) and not space[name] and full not in self.filled:
                raise Undescribed(f"{full} starts empty and is filled by code that did not run")
            return space[name]
        if self.tree.module(full):
            return ModuleView(self, full)
        for star in module.stars():
            source = module.absolute(star.module, star.level)
            if self.tree.module(source) and (self.module(source).binding(name) or f"{source}.{name}" in self.answers):
                space[name] = self.load(source, name)
                return space[name]
        raise Undescribed(f"{full} is bound nowhere that was described")

    def module(self, name: str) -> Module:
        """The parsed module. Raises Undescribed."""
        found = self.tree.module(name)
        if found is None:
            raise Undescribed(f"no module {name} in the sources")
        return found

    def space(self, module_name: str) -> dict[str, Any]:
        """The globals of a module, filled as they are used."""
        if module_name not in self._spaces:
            self._spaces[module_name] = {"__name__": module_name, "__builtins__": _Builtins(self, module_name)}
        return self._spaces[module_name]

    def function(self, module: Module, node: ast.FunctionDef) -> Any:
        """A function or method of the tree, ready to be called; decorators run."""
        made: dict[str, Any] = {}
        exec(module.code(node), self.space(module.name), made)
        return made[node.name]

    def imported(self, name: str, fromlist: tuple[str, ...] | None, level: int, at: str) -> Any:
        """What an import statement in module `at` gets: a view of the tree, or a described module."""
        module = self.module(at)
        full = module.absolute(name, level)
        if full.split(".")[0] == _PACKAGE:
            return ModuleView(self, full if fromlist else _PACKAGE)
        top = full.split(".")[0]
        found = self._world.get(full, None if fromlist else self._world.get(top))  # `import a.b` binds a, which raises where b is touched
        if found is None:
            raise Undescribed(f"{module.path} imports {full}, which is not described")
        if isinstance(found, ImportError):
            raise found
        return found if fromlist else self._world.get(top, found)

    def _execute(self, module: Module, statement: ast.stmt, name: str) -> None:
        if isinstance(statement, ast.ImportFrom):  # one name of it: the others may be undescribed, and nobody asked for them
            alias = next(part for part in statement.names if (part.asname or part.name) == name)
            source = self.imported(statement.module or "", (alias.name,), statement.level, module.name)
            self.space(module.name)[name] = getattr(source, alias.name)
        elif id(statement) not in self._done:
            self._done.add(id(statement))
            space = self.space(module.name)
            try:
                exec(module.code(statement), space)
            except BaseException:  # all or nothing: what half a block has bound is not what the block binds
                self._done.discard(id(statement))
                for bound in bindings(statement):
                    space.pop(bound, None)
                raise


class ModuleView:
    """A module of the tree as code sees it: attributes are bound on first use."""

    def __init__(self, linker: Linker, name: str) -> None:
        self.__dict__["_linker"], self.__dict__["__name__"] = linker, name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return self._linker.load(self.__name__, attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        self._linker.space(self.__name__)[attribute] = value


class _Builtins(dict[str, Any]):
    """The builtins of a module; a name that is neither global nor builtin is looked for in its sources."""

    def __init__(self, linker: Linker, module_name: str) -> None:
        super().__init__(vars(builtins))
        self._linker, self._module = linker, module_name
        self["__import__"] = self._import
        self[SEEN] = self._seen

    def __missing__(self, name: str) -> Any:
        return self._linker.load(self._module, name)

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        return self._linker.imported(name, tuple(fromlist or ()), level, self._module)

    def _seen(self, module_name: str, number: int, value: Any) -> Any:
        return self._linker.trace.note(self._linker.module(module_name).places[number], value)
