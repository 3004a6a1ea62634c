"""Conditions: the paths on which they hold and do not, with what is known on either."""

from __future__ import annotations

import ast

from harness.offline.symbols import assigning, calls, comparing, expressions
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path, forked
from harness.offline.symbols.values import FALSY, SOMETHING, UNKNOWN, Flag, State, truths

Outcome = tuple[Path | None, Path | None]


def branch(frame: Frame, node: ast.expr) -> Outcome:
    """The paths on which the condition holds and does not; None where it cannot be so."""
    path = frame.path
    if path is None:
        return None, None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yes, no = branch(frame, node.operand)
        return no, yes
    if isinstance(node, ast.BoolOp):
        return _branch_bool(frame, node)
    if isinstance(node, ast.NamedExpr):
        assigning.bind(frame, node.target, expressions.evaluate(frame, node.value))
        return branch(frame, node.target)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return comparing.compared(frame, node)
    if isinstance(node, ast.Compare):  # a chain of comparisons: not decided
        expressions.parts(frame, node)
        return forked(path), forked(path)
    told = comparing.asked(frame, node)
    if told is not None:
        return told
    state = expressions.evaluate(frame, node)
    inner = calls.inlined(frame, node) if isinstance(node, ast.Call) and (len(state) != 1 or state == UNKNOWN) else None
    if inner is not None and len(frame.world.running) < 3:
        frame.world.running.add(inner[1])
        yes, no = branch(*inner)  # a function that is one expression: what it needs to hold is what the call needs
        frame.world.running.discard(inner[1])
        names = calls.names_passed(frame, node)  # type: ignore[arg-type]
        return tuple(forked(path, _told(names, inner[0], way), way.flags) if way else None for way in (yes, no))  # type: ignore[return-value]
    return _split(frame, path, node, state)


def _told(names: dict[str, str], inner: Frame, way: Path) -> dict[str, State]:
    """What a way through a function says of the caller's names that were passed, where it says more than was known."""
    before = inner.path.env if inner.path else {}
    return {name: way.env[parameter] for parameter, name in names.items() if way.env.get(parameter) not in (None, UNKNOWN, before.get(parameter))}


def _split(frame: Frame, path: Path, node: ast.expr, state: State) -> Outcome:
    """By the truth of a value: the name it came from is narrowed on either path."""
    name = expressions.dotted(node)
    outcomes: list[Path | None] = []
    for truth in (True, False):
        kept = frozenset(value for value in state if truth in truths(value))
        if not kept:
            outcomes.append(None)
            continue
        plain = kept == UNKNOWN and name.isidentifier()
        narrowed = {name: kept} if name and kept != state else {name: SOMETHING} if name and truth and kept == UNKNOWN else {name: FALSY} if plain else {}
        narrowed = narrowed | _alike(frame, path, name, truth) if name else narrowed
        asked = [comparing.truth_of_flag(frame, value, truth) if isinstance(value, Flag) else NO_FLAGS for value in kept]
        flags = [needs for needs in asked if needs is not None]
        outcomes.append(forked(path, narrowed, min(flags, key=len)) if flags else None)
    return outcomes[0], outcomes[1]


def _alike(frame: Frame, path: Path, name: str, truth: bool) -> dict[str, State]:
    """What the truth of a name tells of those that have the same."""
    text = path.alike.get(name, name)
    peers = [other for other, same in path.alike.items() if same == text and other != name] + ([text] if text != name else [])
    told = {}
    for peer in peers:
        state = path.env.get(peer, UNKNOWN)
        if state == UNKNOWN or any(isinstance(value, Flag) and frame.world.config.flags[value.name].is_switch for value in state):
            told[peer] = SOMETHING if truth else FALSY
        else:
            told[peer] = frozenset(value for value in state if truth in truths(value))
    return {peer: state for peer, state in told.items() if state}


def _branch_bool(frame: Frame, node: ast.BoolOp) -> Outcome:
    stops = isinstance(node.op, ast.Or)
    early: list[Path | None] = []
    path: Path | None = frame.path
    for part in node.values:
        if path is None:
            break
        yes, no = branch(frame.at(path), part)
        early.append(yes if stops else no)
        path = no if stops else yes
    ended = frame.merge(early)
    return (ended, path) if stops else (path, ended)
