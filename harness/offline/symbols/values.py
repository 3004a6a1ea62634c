"""What a name can hold when module-level code is evaluated without importing it: a state is a set of these values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unbound:
    """No value: a load raises NameError, or AttributeError where the name was asked of a module."""


@dataclass(frozen=True, slots=True)
class Const:
    """A plain constant: bool, number, string, or a tuple of them."""

    value: Any


@dataclass(frozen=True, slots=True)
class Nothing:
    """None; `origin` is the global that holds it, `module:name`, where it came from one."""

    origin: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """Bound to something that fails when it is called: a lazy import of an absent package, or a wrapper of an operator never registered."""

    path: str
    failure: str


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the package under scan, by its dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class External:
    """Something of another package, by its dotted path: taken to be there and not None."""

    path: str


@dataclass(frozen=True, slots=True)
class Ref:
    """A name of another module of the package, not looked up yet."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the package."""

    module: str
    node: ast.ClassDef


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method of the package; `owner` is its class."""

    module: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: Class | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """functools.partial of a function, with its keyword arguments."""

    function: Function
    keywords: tuple[tuple[str, State], ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the package, with the positional arguments it was made with."""

    cls: Class
    args: tuple[State, ...] = ()


@dataclass(frozen=True, slots=True)
class Flag:
    """The value of a server flag that the facts describe; `among`: one of these, where a test said so."""

    name: str
    among: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Same:
    """A decorator, or a maker of one, that gives back what it is given: functools.lru_cache and the like."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything at all."""


Value = Unbound | Const | Nothing | Broken | Module | External | Ref | Class | Function | Partial | Instance | Flag | Same | Unknown
State = frozenset[Value]

UNBOUND: State = frozenset({Unbound()})
UNKNOWN: State = frozenset({Unknown()})
NONE: State = frozenset({Nothing()})
SOMETHING: State = frozenset({External("")})
TRUE: State = frozenset({Const(True)})
FALSE: State = frozenset({Const(False)})
FALSY: State = NONE | FALSE
_MOST = 12


def one(value: Value) -> State:
    return frozenset({value})


def joined(*states: State) -> State:
    """What is either of the states; one with too many values is unknown."""
    union: State = frozenset().union(*states)
    return UNKNOWN if Unknown() in union or len(union) > _MOST else union


def met(*states: State) -> State:
    """What a local name is where ways meet: a None that came from a global is kept beside anything at all, to be found when it is used."""
    union = joined(*states)
    if union >= FALSY and union >= SOMETHING:
        union = UNKNOWN
    if union != UNKNOWN:
        return union
    return UNKNOWN | frozenset(value for state in states for value in state if isinstance(value, Nothing) and value.origin)


def constant(value: Any) -> State:
    """The state of a plain constant; None has its own value."""
    return NONE if value is None else one(Const(value))


def either(value: Any) -> State:
    """The state of a fact: a list of lists stands for several possible tuples."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return frozenset(Const(tuple(part)) for part in value)
    return constant(tuple(value) if isinstance(value, list) else value)


def bad(state: State) -> bool:
    """Whether every value of the state fails when it is called."""
    return bool(state) and all(isinstance(value, (Unbound, Nothing, Broken)) for value in state)


def usable(state: State) -> bool:
    """Whether some value of the state can be called."""
    return any(not isinstance(value, (Unbound, Nothing, Broken)) for value in state)


def truths(value: Value) -> set[bool]:
    """The truth values that the value can have."""
    if isinstance(value, Const):
        return {bool(value.value)}
    if isinstance(value, Nothing):
        return {False}
    return {True, False} if isinstance(value, (Unknown, Flag, Unbound, Ref)) else {True}


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}


def combined(kind: type[ast.operator], left: State, right: State) -> State:
    """What an operator makes of whole numbers, where both sides are known."""
    work = _OPERATORS.get(kind)
    numbers = [[value.value if isinstance(value, Const) and isinstance(value.value, int) else None for value in side] for side in (left, right)]
    if work is None or not left or not right or any(None in side for side in numbers):
        return UNKNOWN
    try:
        return joined(*(constant(work(a, b)) for a in numbers[0] for b in numbers[1]))
    except (ArithmeticError, TypeError, ValueError):
        return UNKNOWN
