"""A package as one scenario sees it: every module's names, evaluated from source when they are asked for."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.offline.symbols import attributes, execute, expressions
from harness.offline.symbols.facts import Config, Scenario
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path, Record
from harness.offline.symbols.refused import with_refused
from harness.offline.symbols.stopping import Stops
from harness.offline.symbols.tree import Tree, statements
from harness.offline.symbols.values import UNBOUND, UNKNOWN, Broken, Class, External, Function, Module, Nothing, Ref, State, either, joined, one

if TYPE_CHECKING:
    from harness.offline.symbols.uses import Place

# what can bind names of a module that no statement of it names
_DYNAMIC = re.compile(r"globals\(\)(?:\[[^\]]*\]\s*=[^=]|\.update|\.setdefault)|setattr\(sys\.modules|(?<![\w.])exec\(|^def __getattr__", re.MULTILINE)

_DYNAMIC_PARTS = ("globals()", "setattr(sys.modules", "exec(", "def __getattr__")  # one of them is in every match: far quicker to look for


@dataclass
class Names:
    """A module's names: `env` while and after it is evaluated, `lines` of code that was reached, `fails` the error that stops its import.

    dynamic    it may have names that no statement of it binds
    answers    by a `__getattr__`: those do not go along with `import *`
    record     what the code at the top met
    """

    env: dict[str, State]
    done: bool = False
    fails: str = ""
    reached: set[int] = field(default_factory=set)
    changed: frozenset[str] = frozenset()
    dynamic: bool = False
    answers: bool = False
    record: Record = field(default_factory=Record)


class World:
    """Evaluates the modules of a tree under a scenario, each once, when it is first asked for."""

    def __init__(self, tree: Tree, scenario: Scenario, config: Config) -> None:
        self.tree, self.scenario, self.config = tree, scenario, with_refused(tree, scenario, config)
        self.stops = Stops(self)
        self.modules: dict[str, Names] = {}
        self.classes: dict[ast.ClassDef, dict[str, State]] = {}
        self.attributes: dict[tuple[ast.ClassDef, str], State] = {}
        self.results: dict[object, State] = {}
        self.running: set[object] = set()
        self.switches: dict[str, State] = {}
        self.ends: dict[ast.FunctionDef | ast.AsyncFunctionDef, dict[str, State] | None] = {}
        self.answering: dict[ast.AST, tuple[list[ast.stmt], bool]] = {}
        self.setters: dict[ast.ClassDef, dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]] = {}
        self.runs: dict[object, Record] = {}
        self.places: dict[str, list[Place]] = {}

    def names(self, module: str) -> Names:
        """The module's names, evaluated if they were not yet; a module in evaluation (a cycle of imports) gives what it has."""
        if module in self.modules:
            return self.modules[module]
        names = self.modules[module] = Names({})
        if module in self.stops.plain:
            names.fails, names.done = "ImportError", True
            return names
        syntax = self.tree.syntax(module)
        if syntax is None:
            names.dynamic = module in self.tree.paths
            names.done = True
            return names
        text = self.tree.text(module)
        names.dynamic = any(part in text for part in _DYNAMIC_PARTS) and bool(_DYNAMIC.search(text))
        names.answers = "\ndef __getattr__" in text
        names.changed = _changed(syntax) if "global " in text else frozenset()
        frame = Frame(self, module, Path(names.env, NO_FLAGS), record=names.record)
        execute.block(frame, syntax.body)
        if frame.path is None:
            names.fails = frame.raised[-1][0] if frame.raised else "SystemExit"
            names.env = frame.raised[-1][1].env if frame.raised else names.env
        else:
            names.env = frame.path.env
        names.done = True
        return names

    def lacking(self, module: str) -> tuple[int, str] | None:
        """The line and name of an import at the top of the module that its source, which does import, does not have; None as a rule."""
        syntax = self.tree.syntax(module)
        names = self.names(module)
        for node in syntax.body if syntax and not names.fails else ():
            if isinstance(node, ast.ImportFrom) and (source := self.tree.absolute(module, node.module, node.level)) in self.tree.paths:
                for alias in node.names:
                    if alias.name != "*" and self.resolved(one(Ref(source, alias.name))) == UNBOUND:
                        return node.lineno, f"{source}:{alias.name}"
        return None

    def lookup(self, module: str, name: str, inside: bool = True) -> State:
        """What a global of the module holds once everything is imported; `inside`: as its own functions see it, builtins included."""
        names = self.names(module)
        if name in names.env:
            state = self.resolved(names.env[name])
            return joined(state, UNKNOWN) if name in names.changed else state
        if name in names.changed or names.dynamic or not names.done:
            return UNKNOWN
        if inside and (hasattr(builtins, name) or name in ("__file__", "__name__", "__path__", "__doc__", "__spec__", "__package__")):
            return one(External(f"builtins.{name}"))
        return UNBOUND

    def bound_later(self, module: str, name: str) -> bool:
        """Whether a name that no statement at the top of a module bound until now may be there all the same."""
        names = self.names(module)
        return name in names.changed or names.dynamic or hasattr(builtins, name) or name.startswith("__")

    def resolved(self, state: State) -> State:
        """The state with names of other modules looked up."""
        if not any(isinstance(value, Ref) for value in state):
            return state
        return joined(*(self._follow(value) if isinstance(value, Ref) else one(value) for value in state))

    def _follow(self, ref: Ref) -> State:
        if ref in self.running:
            return UNKNOWN
        self.running.add(ref)
        try:
            return self.member(ref.module, ref.name)
        finally:
            self.running.discard(ref)

    def member(self, module: str, name: str) -> State:
        """What `module.name` gives from outside the module: a name of it, or a module inside it."""
        if module in self.tree.paths:
            if self.tree.plainly_defines(module, name) and module not in self.modules:
                return self._definition(module, name)
            state = self.lookup(module, name, inside=False)
            if self.names(module).fails:
                return UNKNOWN  # whoever imports it fails first: that error names itself
            if state != UNBOUND:
                return frozenset(Nothing(f"{module}:{name}") if value == Nothing() else value for value in state)
        return one(Module(f"{module}.{name}")) if f"{module}.{name}" in self.tree else UNBOUND

    def _definition(self, module: str, name: str) -> State:
        syntax = self.tree.syntax(module)
        for node in syntax.body if syntax else ():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                return one(Function(module, node))
            if isinstance(node, ast.ClassDef) and node.name == name:
                return one(Class(module, node))
        return UNKNOWN

    def external(self, path: str) -> State:
        """What a dotted name outside the package is, by the facts."""
        if path in self.scenario.values:
            return either(self.scenario.values[path])
        top, _, rest = path.partition(".")
        if top in self.scenario.absent:
            return one(Broken(path, "ImportError"))
        if path.startswith("torch.ops.") and path.count(".") == 3:
            package, name = path.split(".")[2:]
            return one(Broken(path, "unregistered operator")) if name not in self.scenario.registered.get(package, {name}) else one(External(path))
        if rest and top in self.scenario.registered and "." not in rest and rest not in self.scenario.registered[top] and not rest.startswith("_"):
            return one(Broken(path, "unregistered operator"))
        return one(External(path))

    def set_elsewhere(self, cls: Class, name: str) -> bool:
        """Whether a field of a data class gets other values than its default: an argument or an assignment of that name, anywhere in the package."""
        if not any("dataclass" in ast.unparse(decorator) for decorator in cls.node.decorator_list) or not any(
            isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and n.target.id == name for n in cls.node.body
        ):
            return False
        return self.tree.sets_by_name(name)

    def present(self, module: str) -> bool:
        """Whether `import module` finds something: of the package by its files, of others by the facts."""
        top = module.split(".")[0]
        return module in self.tree if top == self.tree.package else top not in self.scenario.absent

    def body(self, cls: Class) -> dict[str, State]:
        """The names that a class's own body binds."""
        if cls.node not in self.classes:
            self.classes[cls.node] = {}
            frame = Frame(self, cls.module, Path({}, NO_FLAGS), owner=cls)
            execute.block(frame, cls.node.body)
            self.classes[cls.node] = frame.path.env if frame.path else {}
        return self.classes[cls.node]

    def lineage(self, cls: Class, seen: tuple[Class, ...] = ()) -> list[Class | None]:
        """The class and its bases in order; None stands for a base that is not of the package or not known."""
        found: list[Class | None] = [cls]
        for base in cls.node.bases:
            frame = Frame(self, cls.module, Path({}, NO_FLAGS))
            for value in expressions.evaluate(frame, base):
                if isinstance(value, Class) and value != cls and value not in seen:
                    found += [c for c in self.lineage(value, (*seen, cls)) if c not in found]
                elif not isinstance(value, Class):
                    found.append(None)
        return found

    def switch(self, name: str) -> State:
        """An attribute of something unknown that reads like a switch: what the one class that sets it makes of it, where only one does."""
        if name not in self.switches:
            self.switches[name] = UNKNOWN
            setters = [m for m in self.tree.mentions(name) if f"self.{name} =" in self.tree.text(m) or f"self.{name}:" in self.tree.text(m)]
            if len(setters) == 1 and not self.names(setters[0]).fails:
                syntax = self.tree.syntax(setters[0])
                classes = [node for node in statements(syntax.body if syntax else []) if isinstance(node, ast.ClassDef)]
                own = [c for c in classes if name in attributes.setters(self, Class(setters[0], c))]
                if len(own) == 1:
                    self.switches[name] = self.attribute(Class(setters[0], own[0]), name)
        return self.switches[name]

    def attribute(self, cls: Class, name: str) -> State:
        """What an object of the class has under that name: by its class body, or by any `self.name = ...` of its methods."""
        key = (cls.node, name)
        if key not in self.attributes:
            self.attributes[key] = UNKNOWN  # while it is worked out: an attribute that depends on itself
            state = attributes.attribute_of(self, cls, name)
            if len(self.running) > 1:
                del self.attributes[key]  # worked out in the middle of something: perhaps not all of it
                return state
            self.attributes[key] = state
        return self.attributes[key]


def _changed(syntax: ast.Module) -> frozenset[str]:
    """The globals that functions of the module change."""
    return frozenset(name for node in statements(syntax.body) if isinstance(node, ast.Global) for name in node.names)
