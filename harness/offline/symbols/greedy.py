"""Silently greedy: a choice between the best token and a draw that one platform makes in more cases than the other, without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from harness.offline.symbols import calls, conditions, expressions, shapes, uses
from harness.offline.symbols.chains import Callers
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path
from harness.offline.symbols.uses import Place
from harness.offline.symbols.values import UNKNOWN, State
from harness.offline.symbols.world import World

ALWAYS = "always"
_WARNS = {"warning", "warn", "warning_once", "error", "log_once", "rank0_log"}


@dataclass(frozen=True)
class Choice:
    """An `if` whose branch takes the best token where the rest draws: `when`, the conditions left open here that are not left open there."""

    place: Place
    line: int
    when: str
    chain: tuple[str, ...]
    needs: frozenset[str]


def choices(world: World, other: World, callers: Callers, module: str) -> Iterator[Choice]:
    """The choices of a module that fall to the best token in this world in cases in which the other draws."""
    greedy, draws = world.config.words("greedy"), world.config.words("draws")
    if not any(word in world.tree.text(module) for word in greedy) or world.names(module).fails:
        return
    for place in uses.places(world, module):
        for test, body, rest in _forks(place.node):
            if not (_words(body) & greedy and _words(rest) & draws) or _words(body) & draws or _words(body) & _WARNS:
                continue
            if _warned(place.node, test):
                continue
            here, there = _open(world, place, test), _open(other, place, test)
            more = sorted(here - there)
            if not more or ALWAYS in there:
                continue
            way = callers.way(place)
            if way is not None:
                yield Choice(place, test.lineno, " or ".join(more), way.chain, way.flags)


def _forks(node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.stmt], list[ast.stmt]]]:
    """Every `if` with what it runs and what is run instead: its else, or the rest of the block where it returns."""
    for part in ast.walk(node):
        for block in (getattr(part, "body", None), getattr(part, "orelse", None)):
            for number, statement in enumerate(block if isinstance(block, list) else ()):
                if isinstance(statement, ast.If):
                    ends = isinstance(statement.body[-1], (ast.Return, ast.Raise))
                    yield statement.test, statement.body, statement.orelse or (block[number + 1 :] if ends and block else [])


def _warned(node: ast.AST, test: ast.expr) -> bool:
    """Whether the function says in its log that it comes to this: a warning under a condition on one of the same plain names."""
    names = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    return any(
        isinstance(part, ast.If) and _words(part.body) & _WARNS and names & {n.id for n in ast.walk(part.test) if isinstance(n, ast.Name) and n.id.isupper()}
        for part in ast.walk(node)
    )


def _words(body: list[ast.stmt]) -> set[str]:
    calls_ = (node.func for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return {expressions.last_word(func) for func in calls_}


def _open(world: World, place: Place, test: ast.expr) -> set[str]:
    """The conditions, any of which makes the test hold, that the scenario leaves open; `always` where one of them holds in any case."""
    env: dict[str, State] = dict.fromkeys(shapes.parameters(place.node.args), UNKNOWN)
    frame = Frame(world, place.module, Path(env, NO_FLAGS), shapes.shape(place.node).local)
    return _disjuncts(frame, _definition(place, test), 0)


def _definition(place: Place, test: ast.expr) -> ast.expr:
    """The expression that a local name in the test stands for, where it is assigned once."""
    if not isinstance(test, ast.Name):
        return test
    found = [n.value for n in ast.walk(place.node) if isinstance(n, ast.Assign) and len(n.targets) == 1 and expressions.last_word(n.targets[0]) == test.id]
    return found[0] if len(found) == 1 else test


def _disjuncts(frame: Frame, test: ast.expr, depth: int) -> set[str]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return set().union(*(_disjuncts(frame, part, depth) for part in test.values))
    yes, no = conditions.branch(frame, test)
    if yes is None:
        return set()
    if no is None:
        return {ALWAYS}
    inner = calls.inlined(frame, test) if depth < 3 else None
    if inner is not None:
        return _disjuncts(inner[0], inner[1], depth + 1)
    return {" and ".join(_conjuncts(frame, test))}


def _conjuncts(frame: Frame, test: ast.expr) -> list[str]:
    """The parts of an `and` that are left open."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [p for p in test.values if conditions.branch(frame, p)[1] is not None]
        return [text for part in parts for text in _conjuncts(frame, part)]
    return [ast.unparse(test)]
