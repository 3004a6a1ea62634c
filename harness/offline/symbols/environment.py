"""What environment variables give: those that a scenario sets, else the defaults that the code gives."""

from __future__ import annotations

import ast
from typing import Any

from harness.offline.symbols import calls, expressions
from harness.offline.symbols.frames import Frame
from harness.offline.symbols.values import NONE, UNKNOWN, Const, Function, Instance, State, constant, joined, one


def variable(frame: Frame, args: list[State], keywords: dict[str, State], default: str) -> State:
    """An environment variable read by name: as the scenario sets it, or the default the code gives."""
    name = next(iter(args[0])) if len(args[0]) == 1 else None
    if not isinstance(name, Const):
        return UNKNOWN
    held = frame.world.scenario.env.get(name.value)
    if held is None:
        given = args[1] if len(args) > 1 else keywords.get("default")
        if given is None:
            return constant(_read(default, default)) if default else NONE
        value = next(iter(given)) if len(given) == 1 else None
        return constant(_read(value.value, default)) if isinstance(value, Const) else given
    return constant(_read(held, default))


def _read(text: Any, kind: str) -> Any:
    if kind == "false":
        return str(text).lower() in ("true", "1")
    return int(text) if kind.isdigit() and str(text).lstrip("-").isdigit() else text


def field(frame: Frame, func: ast.Attribute, target: State, word: str) -> State | None:
    """`envs.NAME.get()`: the variable of that name, or the default that the field was made with."""
    held = expressions.evaluate(
        frame.at(frame.path) if frame.record is None else Frame(frame.world, frame.module, frame.path, frame.locals, frame.owner), func.value
    )
    if len(held) != 1:
        return None
    (made,) = held
    if not isinstance(made, Instance) or not any(c and c.node.name in frame.world.config.env_fields for c in frame.world.lineage(made.cls)):
        return None
    name = expressions.last_word(func.value)
    given = frame.world.scenario.env.get(name)
    if word == "is_set":
        return constant(given is not None)
    kind = "false" if "Bool" in made.cls.node.name else "0" if "Int" in made.cls.node.name else ""
    if given is not None:
        return constant(_read(given, kind))
    default = made.args[0] if made.args else UNKNOWN
    return joined(*(calls.invoke(frame, value, [], {}) if isinstance(value, Function) else one(value) for value in default))
