"""Expressions: what they can be, and which way a condition can go, with what is known on either way."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from harness.offline.symbols import assigning, calls, conditions, shapes
from harness.offline.symbols.failing import dereference, failing
from harness.offline.symbols.frames import NO_FLAGS, Frame, forked
from harness.offline.symbols.values import (
    FALSE,
    SOMETHING,
    TRUE,
    UNBOUND,
    UNKNOWN,
    Broken,
    Class,
    Const,
    External,
    Flag,
    Function,
    Instance,
    Module,
    Nothing,
    Ref,
    State,
    Unknown,
    Value,
    combined,
    constant,
    joined,
    one,
    truths,
)

_SWITCH = re.compile(r"_?(?:use|enable|is|has|support|should)_")


def last_word(node: ast.expr | None) -> str:
    """The last name of a dotted expression, or nothing."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def dotted(node: ast.expr) -> str:
    """A dotted expression as text, or nothing where it is more than names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def evaluate(frame: Frame, node: ast.expr) -> State:
    """What the expression can be on the frame's path; uses that fail are recorded on the way."""
    return _EXPRESSIONS.get(type(node), parts)(frame, node)


def parts(frame: Frame, node: ast.expr) -> State:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            evaluate(frame, child)
        elif isinstance(child, ast.keyword):
            evaluate(frame, child.value)
    return UNKNOWN


def _constant(frame: Frame, node: ast.Constant) -> State:
    return constant(node.value)


def _name(frame: Frame, node: ast.Name) -> State:
    state = _held(frame, node)
    if frame.record is not None:
        frame.record.reach(node.id, node, frame, held=state)
    return state


def _held(frame: Frame, node: ast.Name) -> State:
    name = node.id
    if frame.path is not None and name in frame.path.env:
        state = frame.world.resolved(frame.path.env[name])
        if state == UNBOUND and frame.path.env[name] != UNBOUND:  # an import inside the function, of a name that is not there
            ref = next(v for v in frame.path.env[name] if isinstance(v, Ref))
            return failing(frame, node, f"{ref.module}:{ref.name}", "ImportError")
        if frame.locals is None and state == UNBOUND:
            return failing(frame, node, f"{frame.module}:{name}", "NameError")
        for value in state if frame.record is not None and frame.locals is not None and name in frame.locals else ():
            if isinstance(value, Function) and value.module == frame.module:
                calls.inner_function(frame, value.node)
        flag = frame.world.config.flag_of(name) if state == UNKNOWN and frame.locals is not None else None
        return one(Flag(flag)) if flag else state
    if frame.locals is not None and name in frame.locals:
        return UNKNOWN
    unbound = frame.locals is None and frame.record is not None and not frame.world.bound_later(frame.module, name)
    state = UNBOUND if unbound else frame.world.lookup(frame.module, name)
    return failing(frame, node, f"{frame.module}:{name}", "NameError") if state == UNBOUND else _from_here(frame, name, state)


def _from_here(frame: Frame, name: str, state: State) -> State:
    """A None that a global holds remembers which global."""
    return frozenset(Nothing(f"{frame.module}:{name}") if value == Nothing() else value for value in state)


def _attribute(frame: Frame, node: ast.Attribute) -> State:
    base = evaluate(frame, node.value)
    if frame.record is not None:
        frame.record.reach(node.attr, node, frame, base=base)
    text = dotted(node)
    if frame.path is not None and text in frame.path.env:
        return frame.world.resolved(frame.path.env[text])
    dereference(frame, node.value, base, "attribute")
    if node.attr == "type" and last_word(node.value) == "device" and frame.world.scenario.device:
        return constant(frame.world.scenario.device)
    if frame.world.config.flag_of(node.attr) and not any(isinstance(value, (Module, Class)) or (isinstance(value, External) and value.path) for value in base):
        own = joined(*(_member(frame, node, value) for value in base)) if any(isinstance(value, Instance) for value in base) else UNKNOWN
        placeholder = own == UNKNOWN or all(isinstance(value, Nothing) for value in own)  # a flag's field that starts as None is filled before it is read
        return one(Flag(frame.world.config.flag_of(node.attr) or "")) if placeholder else own
    state = joined(*(_member(frame, node, value) for value in base)) if base else UNKNOWN
    if frame.locals is None and text.startswith("torch.ops.") and any(isinstance(value, Broken) for value in state):
        frame.stop("AttributeError")  # a look-up at the top of a module, as a test whether the operator is there
    return state


def _member(frame: Frame, node: ast.Attribute, value: Value) -> State:
    world = frame.world
    if isinstance(value, Module):
        state = world.member(value.name, node.attr)
        if state == UNBOUND and world.present(value.name) and not _special(frame, value, node.attr):
            return failing(frame, node, f"{value.name}:{node.attr}", "AttributeError")
        return UNKNOWN if state == UNBOUND else state
    if isinstance(value, External) and value.path:
        return world.external(f"{value.path}.{node.attr}")
    if isinstance(value, Instance):
        return world.attribute(value.cls, node.attr)
    if isinstance(value, Class):
        return world.attribute(value, node.attr)
    if isinstance(value, (Unknown, External)) and _SWITCH.match(node.attr):
        return world.switch(node.attr)
    return UNKNOWN


def _special(frame: Frame, module: Module, name: str) -> bool:
    if name.startswith("__") or module.name not in frame.world.tree.paths:
        return True
    names = frame.world.names(module.name)
    return names.dynamic or not names.done or bool(names.fails)


def _both(frame: Frame, node: ast.expr) -> State:
    """A conditional expression, `and`, `or`, `not`, a comparison: as a value, with its parts on their own paths."""
    if isinstance(node, ast.IfExp):
        yes, no = conditions.branch(frame, node.test)
        states = [evaluate(frame.at(path), part) for path, part in ((yes, node.body), (no, node.orelse)) if path is not None]
        return joined(*states)
    if isinstance(node, ast.BoolOp):
        return _bool_value(frame, node)
    yes, no = conditions.branch(frame, node)
    return joined(*([TRUE] if yes else []), *([FALSE] if no else []))


def _bool_value(frame: Frame, node: ast.BoolOp) -> State:
    stops = isinstance(node.op, ast.Or)
    found: list[State] = []
    for number, part in enumerate(node.values):
        state = evaluate(frame, part)
        if number == len(node.values) - 1:
            found.append(state)
            break
        found.append(frozenset(value for value in state if stops in truths(value)))
        yes, no = conditions.branch(frame, part)
        path = no if stops else yes
        if path is None:
            break
        frame = frame.at(path)
    return joined(*found)


def _binary(frame: Frame, node: ast.BinOp) -> State:
    return combined(type(node.op), evaluate(frame, node.left), evaluate(frame, node.right))


def _sequence(frame: Frame, node: ast.Tuple | ast.List | ast.Set) -> State:
    parts = [_listed(frame, element) for element in node.elts]
    values = [next(iter(part)) for part in parts if len(part) == 1]
    if len(values) == len(parts) and all(isinstance(value, Const) for value in values):
        return one(Const(tuple(value.value for value in values if isinstance(value, Const))))
    return SOMETHING if not parts else UNKNOWN


def _listed(frame: Frame, node: ast.expr) -> State:
    """An element of a list; a class in a list is there to be compared with, and counts as no use of it."""
    state = evaluate(frame, node)
    if frame.record is not None and any(isinstance(value, Class) for value in state):
        seen = frame.record.seen.get(last_word(node))
        if seen:
            seen.pop()
    return state


def _dict(frame: Frame, node: ast.Dict) -> State:
    """A table by the values of a server flag: an entry is for those who give the flag that value."""
    keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
    flag = next((f for f in frame.world.config.flags.values() if sum(key in values for values in f.default.values() for key in keys) > 1), None)
    for key, value in zip(node.keys, node.values, strict=True):
        if key is not None:
            evaluate(frame, key)
        named = flag is not None and isinstance(key, ast.Constant) and isinstance(key.value, str)
        told = flag.told(key.value, frame.world.scenario.platform) if flag and named and isinstance(key, ast.Constant) else NO_FLAGS
        if told is not None and frame.path is not None:
            evaluate(frame.at(forked(frame.path, None, told)) if told else frame, value)
    return SOMETHING


def _subscript(frame: Frame, node: ast.Subscript) -> State:
    base = evaluate(frame, node.value)
    index = evaluate(frame, node.slice)
    dereference(frame, node.value, base, "subscript")
    at = next(iter(index)) if len(index) == 1 else None
    return item(base, at.value) if isinstance(at, Const) and isinstance(at.value, int) else UNKNOWN


def item(state: State, number: int) -> State:
    """What the state has at a position, where all its values are known tuples."""
    if state and all(isinstance(value, Const) and isinstance(value.value, tuple) and number < len(value.value) for value in state):
        return joined(*(constant(value.value[number]) for value in state if isinstance(value, Const)))
    return UNKNOWN


def _inner_scope(frame: Frame, node: ast.expr) -> State:
    """A comprehension or lambda: its own names are unknown, its conditions guard its element."""
    if frame.path is None:
        return UNKNOWN
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if isinstance(node, ast.Lambda):
        names |= shapes.parameters(node.args)
    inner = frame.at(forked(frame.path, dict.fromkeys(names, UNKNOWN)))
    if isinstance(node, ast.Lambda):
        evaluate(inner, node.body)
        return SOMETHING
    for loop in node.generators:  # type: ignore[attr-defined]
        evaluate(inner, loop.iter)
        for test in loop.ifs:
            if inner.path is not None:
                inner.path = conditions.branch(inner, test)[0]
    if inner.path is not None:
        for part in ("key", "value", "elt"):
            child = getattr(node, part, None)
            if child is not None:
                evaluate(inner, child)
    return UNKNOWN


def _named(frame: Frame, node: ast.NamedExpr) -> State:
    state = evaluate(frame, node.value)
    assigning.bind(frame, node.target, state)
    return state


_EXPRESSIONS: dict[type[ast.expr], Callable[[Frame, Any], State]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: lambda frame, node: calls.call(frame, node),
    ast.IfExp: _both,
    ast.BoolOp: _both,
    ast.Compare: _both,
    ast.UnaryOp: lambda frame, node: _both(frame, node) if isinstance(node.op, ast.Not) else parts(frame, node),
    ast.BinOp: _binary,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.Subscript: _subscript,
    ast.Lambda: _inner_scope,
    ast.ListComp: _inner_scope,
    ast.SetComp: _inner_scope,
    ast.DictComp: _inner_scope,
    ast.GeneratorExp: _inner_scope,
    ast.NamedExpr: _named,
    ast.JoinedStr: parts,
}
