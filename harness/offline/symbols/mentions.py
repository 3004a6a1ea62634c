"""What a module calls a function or class of another, and where it mentions it outside functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from harness.offline.symbols import uses
from harness.offline.symbols.expressions import last_word
from harness.offline.symbols.frames import NO_FLAGS, Flags
from harness.offline.symbols.meaning import Kind, Node
from harness.offline.symbols.tree import statements
from harness.offline.symbols.values import Class, Function, Ref, State, Unbound, Unknown, Value, one
from harness.offline.symbols.world import World

Edge = tuple[Node | None, Flags, str]  # from where (None: the module itself), what that needs, and how it reads in the chain


def known_as(world: World, other: str, module: str, word: str, target: ast.AST) -> set[str]:
    """The names under which a module refers to the target: its own name, an alias of an import, or none."""
    if other == module:
        return {word}
    text = world.tree.text(other)
    last = module.rpartition(".")[2]
    held = world.names(other).env.get(word)
    otherwise = held is not None and not {Unknown(), Unbound()} & world.resolved(held)  # the name is of something else there
    words = {word} if last in text and not otherwise and re.search(rf"\.{re.escape(word)}\b", text) else set()
    if re.search(rf"[\"'][\w.]+:{re.escape(word)}[\"']", text):
        words.add(word)
    names = {word, *re.findall(rf"{re.escape(word)}(?<!\w{re.escape(word)})\s+as\s+(\w+)", text)}
    return words | {name for name in names if _is_target(world.lookup(other, name), target)} | _imported_inside(world, other, word, target)


def _is_target(state: State, target: ast.AST) -> bool:
    return any(_node_of(value) is target for value in state)


def _imported_inside(world: World, other: str, word: str, target: ast.AST) -> set[str]:
    """The names that imports inside functions give the target."""
    found = set()
    for node in (node for place in uses.places(world, other) for node in statements(place.node.body)):
        if not isinstance(node, ast.ImportFrom):
            continue
        source = world.tree.absolute(other, node.module, node.level)
        for alias in node.names if source in world.tree.paths else ():
            if alias.name == word and _is_target(world.resolved(one(Ref(source, word))), target):
                found.add(alias.asname or word)
    return found


def at_the_top(world: World, module: str, syntax: ast.Module, words: set[str], other_devices: Callable[[], frozenset[str]]) -> Iterator[Edge]:
    """Mentions outside functions: a table, a base class, a decorator, an alias."""
    reached = world.names(module).reached
    todo: list[tuple[ast.AST, bool]] = [(node, False) for node in syntax.body]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += [(decorator, inside) for decorator in node.decorator_list]
            continue
        if isinstance(node, ast.stmt) and not inside and node.lineno not in reached:
            continue
        if isinstance(node, ast.ClassDef):
            if any(last_word(base) in words for base in node.bases):
                yield Kind(module, node), NO_FLAGS, f"{short(module)}.{node.name}"
            todo += [(part, True) for part in (*node.body, *node.decorator_list)]
            continue
        if _exports(node) or (isinstance(node, ast.Constant) and node.value in other_devices()):
            continue
        if (isinstance(node, (ast.Name, ast.Attribute)) and last_word(node) in words and isinstance(node.ctx, ast.Load)) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value and node.value.rpartition(":")[2] in words
        ):
            yield None, NO_FLAGS, f"{short(module)}:{getattr(node, 'lineno', 0)}"
        if not (inside and isinstance(node, ast.Attribute)):  # `Base.method` in a class body makes no object of Base
            todo += [(child, inside) for child in ast.iter_child_nodes(node)]


def _node_of(value: Value) -> ast.AST | None:
    return value.node if isinstance(value, (Class, Function)) else None


def _exports(node: ast.AST) -> bool:
    return isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and any(
        last_word(target) == "__all__" for target in getattr(node, "targets", [getattr(node, "target", None)])
    )


def short(module: str) -> str:
    """The module's name as a chain shows it."""
    return ".".join(module.split(".")[-2:])
