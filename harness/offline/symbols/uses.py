"""The uses in one function that fail in a scenario, and the functions of a module worth a look."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.offline.symbols import execute, shapes
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path, Record
from harness.offline.symbols.tree import functions, statements
from harness.offline.symbols.values import UNBOUND, UNKNOWN, Broken, Class, External, Instance, Module, Ref, State, bad, one, usable
from harness.offline.symbols.world import World


@dataclass(frozen=True)
class Place:
    """A function of a module: `qualname` as `Class.method`, its node and the class it is of."""

    module: str
    qualname: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: ast.ClassDef | None

    def __hash__(self) -> int:
        return hash((self.module, self.qualname, self.node.lineno))


def places(world: World, module: str) -> list[Place]:
    """The functions of a module that exist in the scenario: those whose definition was reached."""
    syntax, names = world.tree.syntax(module), world.names(module)
    if syntax is None:
        return []
    found = world.places.get(module)
    if found is None:
        found = [Place(module, *parts) for parts in functions(syntax) if _lines(parts[2] or parts[1]) & names.reached]
        if names.done:
            world.places[module] = found
    return found


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[int]:
    return {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}


def run(world: World, place: Place, given: dict[str, State] | None = None) -> Record:
    """Evaluates one function and gives what it met; `given`: what its parameters can be, unknown without.

    Kept by the world without `given`: each is run once.
    """
    kept = None if given else world.runs.get(place.node)
    if kept is None:
        cls = Class(place.module, place.owner) if place.owner is not None else None
        env = dict.fromkeys(shapes.parameters(place.node.args), UNKNOWN) | (given or {})
        first = next(iter([*place.node.args.posonlyargs, *place.node.args.args]), None)
        if cls is not None and first is not None and not shapes.is_static(place.node):
            env[first.arg] = one(cls) if _is_class_method(place.node) else one(Instance(cls))
        kept = Record()
        if not given:
            world.runs[place.node] = kept
        frame = Frame(world, place.module, Path(env, NO_FLAGS), shapes.shape(place.node).local, cls, kept)
        execute.block(frame, place.node.body)
        kept.returns = frame.path is not None or bool(frame.returned)
    return kept


def _is_class_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list)


def suspects(world: World, module: str) -> list[Place]:
    """The functions of a module that mention a name which fails here."""
    if world.names(module).fails:
        return []  # the module does not import here: none of its functions exists
    lines = _Doubts(world, module).lines()
    return [p for p in places(world, module) if any(p.node.lineno <= line <= (p.node.end_lineno or 0) for line in lines)] if lines else []


class _Doubts:
    """Tells from text and statements alone which lines of a module may name something that fails; the evaluation decides."""

    def __init__(self, world: World, module: str) -> None:
        self.world, self.module = world, module
        syntax = world.tree.syntax(module)
        self.body = list(statements(syntax.body)) if syntax else []
        bound = {name for name in shapes.assigned(syntax.body if syntax else []) if "." not in name}
        self.names = {name for name in bound if bad(world.lookup(module, name))}
        self.names |= {name for name in world.tree.loaded(module) - bound if world.lookup(module, name) == UNBOUND}

    def lines(self) -> list[int]:
        """The numbers of those lines, sorted."""
        words = self.names | set(self._held_by_self())
        found = {node.lineno for node in self.body if isinstance(node, (ast.Import, ast.ImportFrom)) and self._import(node)}
        patterns = [r"\b(?:" + "|".join(sorted(map(re.escape, words))) + r")\b"] if words else []
        patterns += [rf"\btorch\.ops\.{package}\.\w+" for package in self.world.scenario.registered]
        text = self.world.tree.text(self.module)
        places = [match.start() for pattern in patterns for match in re.finditer(pattern, text)]
        places += [match.start() for match in re.finditer(r"\b([A-Za-z_]\w*)\.(\w+)", text) if self._lacks(match[1], match[2])]
        return sorted(found | {text.count("\n", 0, place) + 1 for place in places})

    def _held_by_self(self) -> Iterator[str]:
        """Attributes that a method sets to a global which fails here."""
        for node in self.body if self.names else ():
            if isinstance(node, ast.Assign):
                own = [target.attr for target in node.targets if isinstance(target, ast.Attribute) and _is_self(target.value)]
                if own and any(isinstance(n, ast.Name) and n.id in self.names for n in ast.walk(node.value)):
                    yield from own

    def _lacks(self, base: str, name: str) -> bool:
        held = self.world.names(self.module).env.get(base)
        if held is None or len(held) != 1:
            return False
        (value,) = held
        if isinstance(value, Ref):
            (value,) = resolved if len(resolved := self.world.resolved(held)) == 1 else (value,)
        if isinstance(value, Module):
            return bad(self.world.member(value.name, name))
        return isinstance(value, External) and value.path in self.world.scenario.registered and bad(self.world.external(f"{value.path}.{name}"))

    def _import(self, node: ast.Import | ast.ImportFrom) -> bool:
        if isinstance(node, ast.Import):
            return bool(node.col_offset) and any(self._absent(alias.name) for alias in node.names)
        source = self.world.tree.absolute(self.module, node.module, node.level)
        if node.col_offset and self._absent(source):
            return True
        if source.split(".")[0] == self.world.tree.package:
            return source in self.world.tree.paths and any(bad(self.world.resolved(one(Ref(source, a.name)))) for a in node.names if a.name != "*")
        return source.split(".")[0] in self.world.scenario.registered

    def _absent(self, module: str) -> bool:
        return not self.world.present(module) or module in self.world.stops.all


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def works_in(other: World, symbol: str) -> bool:
    """Whether the symbol, `module:name`, a module or a dotted path of another package, is bound and not None in the other scenario."""
    module, colon, name = symbol.partition(":")
    if not colon and module in other.tree.paths:
        return module not in other.stops.all
    if not colon:
        return not any(isinstance(value, Broken) for value in other.external(symbol))
    state: State = other.member(module, name)
    return state != UNBOUND and usable(state)
