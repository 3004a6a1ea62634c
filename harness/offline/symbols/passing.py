"""What the callers of a function pass, where all of them are known."""

from __future__ import annotations

import ast

from harness.offline.symbols import calls, shapes, uses
from harness.offline.symbols.chains import Callers
from harness.offline.symbols.meaning import Kind
from harness.offline.symbols.uses import Place
from harness.offline.symbols.values import UNKNOWN, State, joined

_DEEPEST = 2


def arguments(callers: Callers, place: Place, depth: int = _DEEPEST) -> dict[str, State] | None:
    """What the parameters can be by every caller, itself run with what its own callers pass; those not told are left out.

    None: with what they are passed, none of the callers comes to the call.
    """
    word, node = place.node.name, place.node
    target: Place | Kind = place
    if word == "__init__" and place.owner is not None:
        word, target = place.owner.name, Kind(place.module, place.owner)
    edges = callers.all_edges(target) if not word.startswith("__") else []
    if not edges:
        return {}
    given = []
    for source, _, _ in edges:
        if source is not None and callers.way(source) is None:
            continue  # nothing that the scenario reaches calls it from there
        passed = _passed(callers, source, word, depth) if isinstance(source, Place) else None
        if passed is None:
            return {}  # it is handed on as a value, or a class inherits it: who calls it is not known
        given += [calls.bound(node, args if _is_plain(place) else [UNKNOWN, *args], keywords) for args, keywords in passed]
    if not given:
        return None
    names = shapes.parameters(node.args) - set(() if _is_plain(place) else [node.args.args[0].arg])
    told = {name: joined(*(env[name] for env in given)) for name in names}
    return {name: state for name, state in told.items() if state != UNKNOWN}


def _passed(callers: Callers, source: Place, word: str, depth: int) -> list[tuple[list[State], dict[str, State]]] | None:
    """What the calls of `word` in a function pass; None where it is mentioned otherwise too."""
    record = uses.run(callers.world, source)
    passed = record.passed.get(word, [])
    if not passed or len(passed) < len(record.seen.get(word, ())):
        return None
    own = arguments(callers, source, depth - 1) if depth else {}
    if own is None:
        return []
    return uses.run(callers.world, source, own).passed.get(word, []) if own else passed


def _is_plain(place: Place) -> bool:
    """Whether the first parameter is the caller's to give."""
    return place.owner is None or shapes.is_static(place.node) or not isinstance(place.node.args, ast.arguments) or not place.node.args.args
