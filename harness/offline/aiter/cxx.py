"""A reader of the plain part of C++ that dispatch code is written in: assignments, if chains and checks, run on given values.

It is no compiler. What it cannot evaluate is unknown: an unknown condition takes neither branch and leaves what the branches
assign unknown, an unknown check is passed over. Loops and switches are passed over too.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

_NAME = r"[A-Za-z_]\w*"
_ASSIGN = re.compile(
    rf"^(?:(?:const|static|constexpr|auto|bool|int|float|size_t|u?int\d+_t|std::string|[\w:]+\*?)\s+)*(?P<name>{_NAME})\s*=(?!=)\s*(?P<value>.+)$", re.S
)
_CHECK = re.compile(r"(?P<macro>AITER_CHECK|TORCH_CHECK)\s*\(")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_KERNEL = re.compile(rf'^static\s+AiterAsmKernel\s+(?P<name>{_NAME})\s*\(\s*"(?P<symbol>[^"]+)"', re.S)


class Unknown(Exception):
    """An expression whose value is not known."""


@dataclass(frozen=True)
class Refused(Exception):
    """A check of the dispatch code that fails: its line and macro (AITER_CHECK aborts outside of a throwing entry point)."""

    line: int
    macro: str


@dataclass
class Statement:
    """One statement: `kind` is plain, if, block or other; `line` counts from 1 in the file."""

    kind: str
    line: int
    text: str = ""
    body: list[Statement] = field(default_factory=list)
    orelse: list[Statement] = field(default_factory=list)


def stripped(source: str) -> str:
    """The source with comments blanked out; lines and offsets stay."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)

    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', blank, source, flags=re.S)


def line_of(source: str, offset: int) -> int:
    """The line of an offset, from 1."""
    return source.count("\n", 0, offset) + 1


def closing(source: str, start: int) -> int:
    """The offset of the bracket that closes the one at `start`. Raises ValueError where none does."""
    depth, quoted = 0, False
    for at in range(start, len(source)):
        char = source[at]
        if char == '"' and source[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and char in "([{":
            depth += 1
        elif not quoted and char in ")]}":
            depth -= 1
            if not depth:
                return at
    raise ValueError(f"no bracket closes the one on line {line_of(source, start)}")


def split_arguments(text: str) -> list[str]:
    """The text split at its outer commas."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, char in enumerate(text):
        if char == '"' and (not at or text[at - 1] != "\\"):
            quoted = not quoted
        elif not quoted and char in "([{":
            depth += 1
        elif not quoted and char in ")]}":
            depth -= 1
        elif not quoted and not depth and char == ",":
            parts.append(text[start:at].strip())
            start = at + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


def function(source: str, name: str) -> tuple[int, list[str], list[Statement]]:
    """(line, parameter names, statements) of the definition of `name` in a stripped source. Raises LookupError without one."""
    for match in re.finditer(rf"\b{name}\s*\(", source):
        end = closing(source, match.end() - 1)
        brace = re.match(r"\s*(?:const\s*)?\{", source[end + 1 :])
        if brace is None:
            continue
        parameters = [re.split(r"=(?!=)", part)[0].strip() for part in split_arguments(source[match.end() : end])]
        names = [re.findall(_NAME, part)[-1] for part in parameters if part and part != "void"]
        body = end + brace.end()
        return line_of(source, match.start()), names, list(_parse(source, body + 1, closing(source, body)))
    raise LookupError(f"no definition of {name}")


def _parse(source: str, start: int, end: int) -> Iterator[Statement]:
    at = start
    while at < end:
        if source[at].isspace() or source[at] == ";":
            at += 1
            continue
        statement, at = _one(source, at, end)
        yield statement


def _one(source: str, at: int, end: int) -> tuple[Statement, int]:
    line = line_of(source, at)
    if source[at] == "{":
        close = closing(source, at)
        return Statement("block", line, body=list(_parse(source, at + 1, close))), close + 1
    if match := re.compile(r"if\s*(?:constexpr\s*)?\(").match(source, at):
        close = closing(source, match.end() - 1)
        chosen = Statement("if", line, source[match.end() : close].strip())
        then, at = _one(source, _skip(source, close + 1), end)
        chosen.body = [then]
        follows = re.compile(r"\s*else\b").match(source, at)
        if follows:
            other, at = _one(source, _skip(source, follows.end()), end)
            chosen.orelse = [other]
        return chosen, at
    if match := re.compile(r"(?:for|while|switch)\s*\(").match(source, at):
        _, after = _one(source, _skip(source, closing(source, match.end() - 1) + 1), end)
        return Statement("other", line), after
    if source[at] == "#":
        after = source.find("\n", at)
        return Statement("other", line), end if after < 0 else after + 1
    stop = at
    while stop < end and source[stop] != ";":
        quoted = _QUOTED.match(source, stop)
        stop = quoted.end() if quoted else closing(source, stop) + 1 if source[stop] in "([{" else stop + 1
    return Statement("plain", line, source[at:stop].strip()), stop + 1


def _skip(source: str, at: int) -> int:
    while at < len(source) and source[at].isspace():
        at += 1
    return at


_PLAIN = (
    ast.Expression,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.IfExp,
    ast.Constant,
    ast.Name,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
_WORDS = (
    (r"&&", " and "),
    (r"\|\|", " or "),
    (r"!(?!=)", " not "),
    (r"\bnullptr\b", "None"),
    (r"\btrue\b", "True"),
    (r"\bfalse\b", "False"),
    (r"->", "."),
    (r"::", "_"),
)


def evaluate(text: str, values: Mapping[str, Any], calls: Mapping[str, str] | None = None) -> Any:
    """The value of an expression. `calls` replaces expressions by the names of values (`Q->dtype()` by `q_dtype`). Raises Unknown."""
    code = _translated(text, tuple((calls or {}).items()))
    if code is None:
        raise Unknown(text)
    try:
        return eval(code, {"__builtins__": {}}, dict(values))
    except (NameError, TypeError, ArithmeticError) as error:
        raise Unknown(text) from error


@functools.lru_cache(maxsize=4096)
def _translated(text: str, calls: tuple[tuple[str, str], ...]) -> CodeType | None:
    """The expression in Python; None where it holds a call or an attribute, which are never evaluated."""
    for written, name in calls:
        text = text.replace(written, name)
    pieces = re.split(r'("(?:\\.|[^"\\])*")', text)
    for index in range(0, len(pieces), 2):
        for pattern, word in _WORDS:
            pieces[index] = re.sub(pattern, word, pieces[index])
        pieces[index] = re.sub(r"\((?:int|u?int\d+_t|float)\)", "", pieces[index])
    text = " ".join("".join(pieces).split())
    if choice := re.fullmatch(r"(?P<test>[^?]+)\?(?P<yes>[^:?]+):(?P<no>[^:?]+)", text):
        text = f"({choice['yes'].strip()}) if ({choice['test'].strip()}) else ({choice['no'].strip()})"
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    return compile(tree, "<dispatch>", "eval") if all(isinstance(node, _PLAIN) for node in ast.walk(tree)) else None


class Machine:
    """Runs statements. `values` holds what is known; `pinned` names keep their value whatever the code assigns; `calls` as for
    `evaluate`; `functions` are Python stand-ins for functions by name, called with evaluated arguments."""

    def __init__(
        self,
        values: Mapping[str, Any],
        pinned: frozenset[str],
        calls: Mapping[str, str] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.values = dict(values)
        self.pinned, self.calls, self.functions = pinned, calls or {}, functions or {}

    def run(self, statements: list[Statement]) -> None:
        """Runs them in order. Raises Refused at a check that fails."""
        for statement in statements:
            if statement.kind == "plain":
                self._plain(statement)
            elif statement.kind == "block":
                self.run(statement.body)
            elif statement.kind == "if":
                self._choose(statement)

    def _choose(self, statement: Statement) -> None:
        try:
            taken = statement.body if evaluate(statement.text, self.values, self.calls) else statement.orelse
        except Unknown:
            for name in {name for name in _assigned([*statement.body, *statement.orelse]) if name not in self.pinned}:
                self.values.pop(name, None)
            return
        self.run(taken)

    def _plain(self, statement: Statement) -> None:
        text = statement.text
        if match := _CHECK.match(text):
            condition = split_arguments(text[match.end() : closing(text, match.end() - 1)])[0]
            try:
                holds = evaluate(condition, self.values, self.calls)
            except Unknown:
                return
            if not holds:
                raise Refused(statement.line, match["macro"])
        elif match := _KERNEL.match(text):
            self.values[match["name"]] = match["symbol"]
        elif match := _ASSIGN.match(text):
            self._assign(match["name"], match["value"])

    def _assign(self, name: str, value: str) -> None:
        if name in self.pinned:
            return
        called = re.match(rf"(?P<name>{_NAME})\s*\((?P<rest>.*)\)$", value, re.S)
        try:
            if called and called["name"] in self.functions:
                given = [evaluate(part, self.values, self.calls) for part in split_arguments(called["rest"])]
                self.values[name] = self.functions[called["name"]](*given)
            else:
                self.values[name] = evaluate(value.removeprefix("&"), self.values, self.calls)
        except Unknown:
            self.values.pop(name, None)


def _assigned(statements: list[Statement]) -> Iterator[str]:
    for statement in statements:
        if statement.kind == "plain" and (match := _ASSIGN.match(statement.text)):
            yield match["name"]
        yield from _assigned([*statement.body, *statement.orelse])
