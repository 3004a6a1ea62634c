"""Reviewed facts in TOML: read, and held against the fields that a table has. A mistake is one line that names file, table and field."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from harness.errors import UsageError, nearest

_WORDS = {str: "text", bool: "true or false", int: "a whole number", dict: "a table", list: "a list"}


def read(path: Path, what: str = "") -> dict[str, Any]:
    """The tables of a file; `what` it is, for the message. Raises UsageError where it cannot be read."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {what}{' ' if what else ''}{path}: {error}") from error


def check(place: str, table: object, known: Mapping[str, Any], required: Collection[str] = ()) -> None:
    """Holds a table against its fields; raises UsageError, beginning with `place`, for the first thing that is wrong.

    known      each field's type as an annotation: str, bool, int, Any, or list[...] and dict[str, ...] of them
    required   fields that must be there, with something in them where they are text or lists
    """
    if not isinstance(table, dict):
        raise UsageError(f"{place} is not a table")
    for name, value in table.items():
        if name not in known:
            raise UsageError(f"{place}: {unknown_field(name, known)}")
        wrong = _misfit(name, value, known[name])
        if wrong:
            raise UsageError(f"{place}: {wrong}")
    missing = [name for name in required if table.get(name, "") in ("", [])]
    if missing:
        raise UsageError(f"{place}: needs {', '.join(missing)}")


def unknown_field(name: str, known: Collection[str]) -> str:
    """What to say of a field that a table does not have."""
    return f"unknown field {name!r}; nearest: {', '.join(nearest(name, known))}; known: {', '.join(sorted(known))}"


def _misfit(name: str, value: object, kind: Any) -> str:
    """What of a value is not of the kind, in words; empty where all is. A table is gone into, so that the entry itself is named."""
    if kind is Any:
        return ""
    origin = get_origin(kind) or kind
    if type(value) is not origin:
        return f"{name} is {_words(kind)}, not {value!r}"
    if isinstance(value, dict) and get_args(kind):
        return next((wrong for key, item in value.items() if (wrong := _misfit(f"{name}.{key}", item, get_args(kind)[1]))), "")
    if isinstance(value, list) and get_args(kind) and any(_misfit("", item, get_args(kind)[0]) for item in value):
        return f"{name} is {_words(kind)}, not {value!r}"
    return ""


def _words(kind: Any) -> str:
    if get_origin(kind) is list:
        return {str: "a list of words", int: "a list of whole numbers", Any: "a list"}.get(get_args(kind)[0], "a list of tables, each [[...]]")
    return _WORDS[get_origin(kind) or kind]
