"""Axes of an op and the cases they span. A case has a short, stable, parseable id such as `b32-h12-s4096-bf16`.

An axis is either numeric, written as its key and the number (`h12`, `p0.95`, `km1` for -1), or a word that stands for
itself (`bf16`, `ties`). An axis at its default is left out of the id, so a new axis with a default changes no id.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError

_NUMBER = re.compile(r"([a-z]+?)(m?\d+(?:\.\d+)?)")


class _Size(enum.Enum):
    LEAST = enum.auto()


@dataclass(frozen=True)
class Axis:
    """One declared axis. `key` is the id prefix of a number, `least` its least value (None: any); a word axis has no key and
    lists every word. `silent`: at its default it is no value of the case either, so that results and tables say nothing of it.
    `search` bounds what a search tries beside the default: least and greatest of an axis of integers, for real numbers the values
    themselves, the plainest first; empty: what suits a size of some hundred (harness/search/spans.py)."""

    name: str
    doc: str
    key: str = ""
    words: tuple[str, ...] = ()
    default: int | float | str | None = None
    real: bool = False
    least: float | None = None
    silent: bool = False
    search: tuple[float, ...] = ()

    def token(self, value: Any) -> str:
        """The axis' part of the id, for example `h12`."""
        if self.words:
            return str(value)
        text = f"{value:.10f}".rstrip("0").rstrip(".") if self.real else str(value)
        return self.key + text.replace("-", "m")


def number(
    name: str, key: str, doc: str, default: int | None = None, *, least: int | _Size | None = _Size.LEAST, search: tuple[int, int] | None = None
) -> Axis:
    """An axis of integers; a default makes it optional. `key` is letters, not ending in m (m marks a negative number).

    least   the least value, None for any; by default the axis is a size: at least 1, or its own lower default
    search  least and greatest value that `kernel-parity fuzz` tries beside the default
    """
    if least is _Size.LEAST:
        least = 1 if default is None else min(1, default)
    if search and search[0] > search[1]:
        raise UsageError(f"axis {name!r}: nothing lies in the search bounds {search}")
    return _numeric(name, key, doc, default, least, search or (), real=False)


def real(name: str, key: str, doc: str, default: float | None = None, *, least: float | None = None, search: tuple[float, ...] = ()) -> Axis:
    """An axis of real numbers, kept to ten decimals in ids; any value unless `least` is given; `search` lists the values that
    `kernel-parity fuzz` tries beside the default, the plainest first; else as `number`."""
    return _numeric(name, key, doc, default, least, search, real=True)


def _numeric(name: str, key: str, doc: str, default: int | float | None, least: float | None, search: tuple[float, ...], *, real: bool) -> Axis:
    if not re.fullmatch(r"[a-z]*[a-ln-z]", key):
        raise UsageError(f"axis {name!r}: key {key!r} must be lower-case letters and not end in 'm'")
    if least is not None and search and min(search) < least:
        raise UsageError(f"axis {name!r}: the search bounds {search} go below its least value {least:g}")
    return Axis(name, doc, key=key, default=default, real=real, least=least, search=search)


def words(name: str, values: tuple[str, ...], doc: str, default: str | None = None) -> Axis:
    """An axis of words, for example dtypes or input families."""
    return Axis(name, doc, words=values, default=default)


class Case:
    """One point of an op's axes: `case.heads`, `case.dtype`; immutable, hashable by its op and id."""

    __slots__ = ("id", "op", "point")
    op: str
    id: str
    point: Mapping[str, Any]

    def __init__(self, op: str, case_id: str, point: Mapping[str, Any]) -> None:
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "id", case_id)
        object.__setattr__(self, "point", dict(point))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.point[name]
        except KeyError:
            raise AttributeError(f"op {self.op!r} has no axis {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a case is immutable; make another with Axes.case")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and (self.op, self.id) == (other.op, other.id)

    def __hash__(self) -> int:
        return hash((self.op, self.id))

    def __repr__(self) -> str:
        return f"{self.op}[{self.id}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Case, (self.op, self.id, self.point))


class Axes:
    """The axes of one op: builds a case from values and parses one from its id. `impossible`: why no inputs of a case can exist."""

    def __init__(self, op: str, axes: Iterable[Axis], impossible: Callable[[Case], str | None] | None = None) -> None:
        self.op = op
        self._impossible = impossible
        self.axes = tuple(axes)
        self.by_name = {axis.name: axis for axis in self.axes}
        self._by_key = {axis.key: axis for axis in self.axes if axis.key}
        self._by_word = {word: axis for axis in self.axes for word in axis.words}
        total = sum(len(axis.words) for axis in self.axes)
        keyed = [axis for axis in self.axes if axis.key]
        if len(self._by_word) != total or len(self._by_key) != len(keyed) or len(self.by_name) != len(self.axes):
            raise UsageError(f"op {op!r}: two axes share a name, a key or a word")
        self._defaults = {axis.name: axis.default for axis in self.axes if axis.default is not None}

    def case(self, **values: Any) -> Case:
        """The case with these axis values; axes with a default may be left out.

        Raises UsageError for an unknown axis, a word not declared, an axis without a value, and a shape that cannot exist.
        """
        unknown_axes = values.keys() - self.by_name.keys()
        if unknown_axes:
            raise UsageError(f"op {self.op!r} has no axis {sorted(unknown_axes)[0]!r}; it has {', '.join(self.by_name)}")
        full: dict[str, Any] = {}
        tokens = []
        for axis in self.axes:
            value = values.get(axis.name, axis.default)
            if value is None:
                raise UsageError(f"op {self.op!r}: axis {axis.name!r} needs a value ({axis.doc})")
            if axis.words and value not in axis.words:
                raise UsageError(f"op {self.op!r}: axis {axis.name!r} is one of {', '.join(axis.words)}, not {value!r}")
            if axis.least is not None and not value >= axis.least:
                raise UsageError(f"op {self.op!r}: axis {axis.name!r} ({axis.doc}) is at least {axis.least:g}, not {value}")
            if value != axis.default or not axis.silent:
                full[axis.name] = float(value) if axis.real else value
            if value != axis.default:
                tokens.append(axis.token(value))
        case = Case(self.op, "-".join(tokens), full)
        if self._impossible is not None and (why := self._impossible(case)):
            raise UsageError(f"op {self.op!r}: there is no case {case.id!r}: {why}")
        return case

    def parse(self, case_id: str) -> Case:
        """The case with this id. Raises UsageError naming the token that no axis knows."""
        values = dict(self._defaults)
        for token in filter(None, case_id.split("-")):
            word_axis = self._by_word.get(token)
            if word_axis is not None:
                values[word_axis.name] = token
                continue
            match = _NUMBER.fullmatch(token)
            axis = self._by_key.get(match[1]) if match else None
            if match is None or axis is None:
                raise UsageError(f"op {self.op!r}: no axis for {token!r} in case {case_id!r} (kernel-parity list ops --op {self.op} shows the axes)")
            text = match[2].replace("m", "-")
            if "." in text and not axis.real:
                raise UsageError(f"op {self.op!r}: axis {axis.name!r} takes whole numbers, not {text!r} in case {case_id!r}")
            values[axis.name] = float(text) if axis.real else int(text)
        missing = [axis.name for axis in self.axes if axis.name not in values]
        if missing:
            raise UsageError(f"op {self.op!r}: case {case_id!r} gives no {', '.join(missing)}")
        case = self.case(**values)
        if case.id != case_id:  # inputs are drawn from the id, so one case has one
            raise UsageError(f"op {self.op!r}: write case {case_id!r} as {case.id!r}")
        return case
