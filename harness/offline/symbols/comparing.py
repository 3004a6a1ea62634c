"""Comparisons: which way they can go, and which server flags either way needs."""

from __future__ import annotations

import ast

from harness.offline.symbols import expressions
from harness.offline.symbols.frames import NO_FLAGS, Flags, Frame, Path, forked
from harness.offline.symbols.values import NONE, SOMETHING, UNBOUND, UNKNOWN, Const, Flag, Instance, Nothing, State, Unknown, Value


def compared(frame: Frame, node: ast.Compare) -> tuple[Path | None, Path | None]:
    """The paths on which a comparison of two things holds and does not, with a name narrowed by `is None`."""
    path, kind = frame.path, type(node.ops[0])
    assert path is not None
    left, right = expressions.evaluate(frame, node.left), expressions.evaluate(frame, node.comparators[0])
    if kind in (ast.Is, ast.IsNot) and right == NONE:
        return _is_none(path, node.left, left, kind is ast.Is)
    if kind in (ast.In, ast.NotIn):
        listed = _name_listed(frame, node)
        if listed is not None:
            yes, no = (path, None) if listed else (None, path)
            return (yes, no) if kind is ast.In else (no, yes)
    if kind not in _OUTCOMES or not left or not right:
        return forked(path), forked(path)
    yes_flags, no_flags = _flags_either_way(frame, [_pair(frame, a, b, kind) for a in left for b in right])
    if kind in (ast.NotEq, ast.NotIn, ast.IsNot):
        yes_flags, no_flags = no_flags, yes_flags
    equal = kind in (ast.Eq, ast.In)
    yes, no = (
        forked(path, _narrowed(node, left, right, way == equal), flags) if flags is not None else None for way, flags in ((True, yes_flags), (False, no_flags))
    )
    return yes, no


def _narrowed(node: ast.Compare, left: State, right: State, equal: bool) -> dict[str, State]:
    """What a name that holds a flag's value is where it equals one of the values on the right, or none of them."""
    name = expressions.dotted(node.left)
    wanted = [value for b in right if isinstance(b, Const) for value in (b.value if isinstance(b.value, tuple) else (b.value,))]
    flags = [value for value in left if isinstance(value, Flag)]
    if not name or not wanted or len(flags) != len(left) or len({flag.name for flag in flags}) != 1 or not all(isinstance(b, Const) for b in right):
        return {}
    if not equal:
        among = {flag: tuple(value for value in flag.among if value not in wanted) for flag in flags}
        return {name: frozenset(Flag(flag.name, rest) for flag, rest in among.items() if rest or not flag.among)}
    among = {flag: tuple(value for value in wanted if not flag.among or value in flag.among) for flag in flags}
    return {name: frozenset(Flag(flag.name, rest) for flag, rest in among.items() if rest)}


def asked(frame: Frame, node: ast.expr) -> tuple[Path | None, Path | None] | None:
    """The paths on which `backend.is_triton()` of a flag's value holds and does not; None for anything else."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("is_") and not node.args and frame.path):
        return None
    held = expressions.evaluate(frame, node.func.value)
    flags = [value for value in held if isinstance(value, Flag)]
    word = node.func.attr.removeprefix("is_")
    values = [v for flag in flags for v in frame.world.config.flags[flag.name].values if str(v).lower().replace("-", "_") == word]
    if len(flags) != len(held) or not values:
        return None
    yes, no = _flags_either_way(frame, [_flag_pair(frame, flags[0], Const(values[0]), ast.Eq)])
    return (forked(frame.path, None, yes) if yes is not None else None, forked(frame.path, None, no) if no is not None else None)


_OUTCOMES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


_Ways = tuple[Flags | None, Flags | None]


_ANY: _Ways = (NO_FLAGS, NO_FLAGS)


def _flags_either_way(frame: Frame, ways: list[_Ways]) -> _Ways:
    sides = []
    for side in (0, 1):
        open_ = [way[side] for way in ways if way[side] is not None]
        sides.append(min(open_, key=lambda flags: len(flags or ())) if open_ else None)
    return sides[0], sides[1]


def _pair(frame: Frame, a: Value, b: Value, kind: type[ast.cmpop]) -> _Ways:
    """Which flags a pair of values needs to be (equal, in) and not to be; None: impossible."""
    a, b = _flag_value(frame, a), _flag_value(frame, b)
    if isinstance(b, Flag) and kind in (ast.Eq, ast.NotEq):
        a, b = b, a
    if isinstance(a, Flag):
        return _flag_pair(frame, a, b, kind)
    if isinstance(a, Nothing) or isinstance(b, Nothing):
        if isinstance(a, Unknown) or isinstance(b, Unknown) or kind in (ast.In, ast.NotIn):
            return _ANY
        same = isinstance(a, Nothing) and isinstance(b, Nothing)
        return (NO_FLAGS, None) if same else (None, NO_FLAGS)
    if isinstance(a, Instance) and isinstance(b, Instance) and a.cls == b.cls and a.args and b.args and _is_member(a) and _is_member(b):
        return (NO_FLAGS, None) if a == b else (None, NO_FLAGS)
    if not (isinstance(a, Const) and isinstance(b, Const)):
        return _ANY
    try:
        if kind in (ast.In, ast.NotIn):
            holds = a.value in b.value
        elif kind in (ast.Lt, ast.LtE, ast.Gt, ast.GtE):
            holds = {ast.Lt: a.value < b.value, ast.LtE: a.value <= b.value, ast.Gt: a.value > b.value, ast.GtE: a.value >= b.value}[kind]
        else:
            holds = a.value == b.value
    except TypeError:
        return _ANY
    return (NO_FLAGS, None) if holds else (None, NO_FLAGS)


def _flag_value(frame: Frame, value: Value) -> Value:
    """A member of an enumeration that stands for a flag's values as that value, any other object of it as the flag."""
    flag = frame.world.config.flag_of_class(value.cls.node.name) if isinstance(value, Instance) else None
    if flag is None or not isinstance(value, Instance):
        return value
    named = next(iter(value.args[0])) if value.args and len(value.args[0]) == 1 else None
    if not isinstance(named, Const):
        return Flag(flag)
    held = frame.world.body(value.cls).get(named.value, UNKNOWN)
    text = next(iter(held)) if len(held) == 1 else None
    return text if isinstance(text, Const) and isinstance(text.value, str) else named


def _is_member(value: Instance) -> bool:
    """Whether the object is a member of an enumeration."""
    return any("Enum" in expressions.last_word(base) for base in value.cls.node.bases)


def _flag_pair(frame: Frame, a: Flag, b: Value, kind: type[ast.cmpop]) -> _Ways:
    if not isinstance(b, Const) or kind not in (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot):
        return _ANY
    flag, platform = frame.world.config.flags[a.name], frame.world.scenario.platform
    wanted = b.value if isinstance(b.value, tuple) else (b.value,)
    ways = [way for value in wanted if (not a.among or value in a.among) and (way := flag.told(value, platform)) is not None]
    yes = min(ways, key=lambda way: (len(way), sorted(way))) if ways else None
    if a.among:
        rest = [way for value in a.among if value not in wanted and (way := flag.told(value, platform)) is not None]
        return yes, min(rest, key=lambda way: (len(way), sorted(way))) if rest else None
    others = [value for value in flag.default.get(platform, ()) if value not in wanted]
    return yes, NO_FLAGS if others or not flag.default.get(platform) else frozenset({f"{flag.option} other than {wanted[0]}"})


def truth_of_flag(frame: Frame, value: Flag, truth: bool) -> Flags | None:
    """What a user must give for a flag, used as a condition, to hold or not to; None: it is refused."""
    flag, platform = frame.world.config.flags[value.name], frame.world.scenario.platform
    by_itself = flag.default.get(platform, ())
    if any(one_of is truth for one_of in flag.foreign.get(platform, ())):
        return None
    return NO_FLAGS if not by_itself or truth in {bool(one_of) for one_of in by_itself} else frozenset({flag.option})


def _is_none(path: Path, node: ast.expr, state: State, asks: bool) -> tuple[Path | None, Path | None]:
    name = expressions.dotted(node)
    empty = frozenset(value for value in state if isinstance(value, (Nothing, Unknown, Flag)))
    full = frozenset(value for value in state if not isinstance(value, Nothing))
    yes = forked(path, {name: NONE} if name else None) if empty else None
    no = forked(path, {name: SOMETHING if full == UNKNOWN else full} if name else None) if full else None
    return (yes, no) if asks else (no, yes)


def _name_listed(frame: Frame, node: ast.Compare) -> bool | None:
    """`"name" in globals()`: whether the module has the name; None for any other comparison."""
    right = node.comparators[0]
    if isinstance(right, ast.Call) and expressions.last_word(right.func) == "globals" and isinstance(node.left, ast.Constant):
        return frame.world.names(frame.module).env.get(str(node.left.value), UNBOUND) != UNBOUND
    return None
