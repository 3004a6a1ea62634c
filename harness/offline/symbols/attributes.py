"""What objects of a class have under a name, from its body and from every method that sets it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from harness.offline.symbols import calls, execute, expressions, shapes
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path
from harness.offline.symbols.values import UNKNOWN, Class, Function, Instance, State, constant, joined, one

if TYPE_CHECKING:
    from harness.offline.symbols.world import World


def attribute_of(world: World, cls: Class, name: str) -> State:
    """What objects of a class have under a name; UNKNOWN where a base is of another package and no assignment is seen."""
    found: list[State] = []
    if any("Enum" in expressions.last_word(base) for base in cls.node.bases) and not any(isinstance(v, Function) for v in world.body(cls).get(name, ())):
        return one(Instance(cls, (constant(name),))) if name in world.body(cls) else UNKNOWN
    kinds = [kind for kind in world.lineage(cls) if kind is not None]
    for kind in kinds:
        body = world.body(kind)
        if name in body:
            found.append(UNKNOWN if world.set_elsewhere(kind, name) else world.resolved(body[name]))
            break
    for first in (True, False):  # what the constructor leaves is what the other methods find
        for kind in kinds:
            found += [
                state for method in setters(world, kind).get(name, ()) if (method.name == "__init__") is first for state in _left_by(world, kind, method, name)
            ]
        if first and found:
            world.attributes[cls.node, name] = joined(*found)
    return joined(*found) if found else UNKNOWN


def _left_by(world: World, cls: Class, method: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[State]:
    """What a method of the class leaves in the attribute of its first parameter, on any of its ways out."""
    if method not in world.ends:
        if len(world.running) >= calls.DEEPEST:
            return [UNKNOWN]
        me = method.args.args[0].arg
        world.ends[method] = None
        given = {**dict.fromkeys(shapes.parameters(method.args), UNKNOWN), me: one(Instance(cls))}  # whoever calls it need not leave a default
        frame = Frame(world, cls.module, Path(given, NO_FLAGS), shapes.shape(method).local, cls)
        world.running.add(method)
        execute.block(frame, method.body)
        world.running.discard(method)
        left: dict[str, State] = {}
        for path in [*frame.exits, *([frame.path] if frame.path else [])]:
            for key, state in path.env.items():
                if key.startswith(me + "."):
                    short = key.removeprefix(me + ".")
                    left[short] = joined(left[short], state) if short in left else state
        world.ends[method] = left
    ends = world.ends[method]
    if ends is None:
        return [UNKNOWN]  # in the middle of running it
    return [world.resolved(ends[name])] if name in ends else []


def setters(world: World, cls: Class) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The methods that set each attribute of their first parameter."""
    kept = world.setters.get(cls.node)
    if kept is None:
        kept = world.setters[cls.node] = {}
        for method in cls.node.body:
            if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.args.args:
                start = method.args.args[0].arg + "."
                for name in shapes.shape(method).binds:
                    if name.startswith(start):
                        kept.setdefault(name[len(start) :], []).append(method)
    return kept
