"""Uses that fail, recorded where they are met."""

from __future__ import annotations

import ast

from harness.offline.symbols.frames import Frame, Use
from harness.offline.symbols.values import UNKNOWN, Broken, Nothing, State, bad

_CAUGHT = {
    "NameError": {"NameError", "Exception", "BaseException", ""},
    "TypeError": {"TypeError", "Exception", "BaseException", ""},
    "AttributeError": {"AttributeError", "Exception", "BaseException", ""},
    "unregistered operator": {"AttributeError", "RuntimeError", "Exception", "BaseException", ""},
    "ImportError": {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", ""},
}


def failing(frame: Frame, node: ast.expr | ast.stmt, symbol: str, failure: str) -> State:
    """Records a use that fails, and goes on as if it had not, so that further ones on the path are found too."""
    if frame.record is not None and frame.path is not None:
        caught = any(kinds & _CAUGHT[failure] for kinds in frame.catching)
        use = Use(node.lineno, node.col_offset, symbol, failure, frame.path.flags, caught, ast.unparse(node))
        key = (use.line, use.column, symbol)
        known = frame.record.uses.get(key)
        if known is None or len(known.flags) > len(use.flags):
            frame.record.uses[key] = use
    return UNKNOWN


def dereference(frame: Frame, node: ast.expr, state: State, how: str) -> None:
    """Records the use where every value of `state` fails when it is called, asked for an attribute, or indexed (`how`)."""
    if not bad(state):
        _on_one_way(frame, node, state, how)
        return
    for value in state:
        if isinstance(value, Broken) and how != "subscript":
            if not (value.failure == "unregistered operator" and how == "attribute" and not value.path.startswith("torch.ops.")):
                failing(frame, node, value.path, value.failure)
            return
        if isinstance(value, Nothing) and value.origin:
            failing(frame, node, value.origin, "AttributeError" if how == "attribute" else "TypeError")
            return


def _on_one_way(frame: Frame, node: ast.expr, state: State, how: str) -> None:
    """Records the use of a local name that holds, where ways have met, a global that is None here on one of them, untested until now."""
    if frame.record is None or frame.locals is None or not isinstance(node, ast.Name) or node.id not in frame.locals:
        return
    for value in state:
        module, _, name = value.origin.partition(":") if isinstance(value, Nothing) else ("", "", "")
        if isinstance(value, Nothing) and name and bad(frame.world.lookup(module, name)):
            failing(frame, node, value.origin, "AttributeError" if how == "attribute" else "TypeError")
