"""Import statements: what they bind, and which of them end the path in ImportError."""

from __future__ import annotations

import ast

from harness.offline.symbols.failing import failing
from harness.offline.symbols.frames import Frame
from harness.offline.symbols.values import UNBOUND, Module, Ref, one


def plain(frame: Frame, node: ast.Import) -> None:
    for alias in node.names:
        if not _found(frame, node, alias.name):
            return
        top = alias.name.split(".")[0]
        named = alias.name if alias.asname else top
        frame.set(alias.asname or top, one(Module(named)) if top == frame.world.tree.package else frame.world.external(named))


def from_module(frame: Frame, node: ast.ImportFrom) -> None:
    source = frame.world.tree.absolute(frame.module, node.module, node.level)
    if source == "__future__" or not _found(frame, node, source):
        return
    inside = source.split(".")[0] == frame.world.tree.package
    for alias in node.names:
        if alias.name == "*":
            _import_all(frame, source, inside)
        elif not inside:
            frame.set(alias.asname or alias.name, frame.world.external(f"{source}.{alias.name}"))
        elif frame.catching and frame.world.resolved(one(Ref(source, alias.name))) == UNBOUND:
            frame.stop("ImportError")
            return
        else:
            frame.set(alias.asname or alias.name, one(Ref(source, alias.name)))


def _found(frame: Frame, node: ast.stmt, module: str) -> bool:
    """Whether the import goes through; where it does not, the path ends in ImportError."""
    world = frame.world
    good = world.present(module)
    if good and module in world.tree.paths:
        stopped = world.stops.plain if frame.locals is None else world.stops.all
        good = module not in stopped and not (frame.catching and world.names(module).fails)  # the second is asked only where somebody would notice
    if not good:
        if frame.record is not None:
            frame.record.reach(module.rpartition(".")[2], node, frame)
        failing(frame, node, module, "ImportError")
        frame.stop("ImportError")
    return good


def _import_all(frame: Frame, source: str, inside: bool) -> None:
    if not inside:
        frame.world.modules[frame.module].dynamic = True  # names of another package that cannot be listed from here
        return
    names = frame.world.names(source)
    if names.fails:
        frame.stop("ImportError")
        return
    listed = _listed(frame.world.tree.syntax(source))
    for name, state in list(names.env.items()):
        if "." not in name and (name in listed if listed is not None else not name.startswith("_")):
            frame.set(name, one(Ref(source, name)) if state != UNBOUND else UNBOUND)
    if names.dynamic and not names.answers:
        frame.world.modules[frame.module].dynamic = True


def _listed(tree: ast.Module | None) -> set[str] | None:
    """The names of a plain `__all__`, or None."""
    for node in tree.body if tree else ():
        if (
            isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
            and isinstance(node.value, (ast.List, ast.Tuple))
        ):
            return {element.value for element in node.value.elts if isinstance(element, ast.Constant) and isinstance(element.value, str)}
    return None
