"""Whether a mention of a word means a certain function, method or class, by what the name held or the attribute was asked of."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.offline.symbols.frames import Seen
from harness.offline.symbols.uses import Place
from harness.offline.symbols.values import Class, Const, External, Function, Instance, Module, Nothing, Partial, Unbound, Value

if TYPE_CHECKING:
    from harness.offline.symbols.world import World


@dataclass(frozen=True)
class Kind:
    """A class as a node of the search."""

    module: str
    node: ast.ClassDef


@dataclass(frozen=True)
class Slot:
    """An attribute that objects of a class keep a function in."""

    module: str
    node: ast.ClassDef
    name: str


Node = Place | Kind | Slot


def means(world: World, seen: Seen, target: Node) -> bool:
    """Whether the mention may be of the target; one of something unknown may."""
    if seen.held is not None:
        return not seen.held or any(_may_be(value, target.node) for value in seen.held)
    if seen.base is None:
        return True
    if isinstance(target, Slot):
        return not seen.base or any(_is_kin(world, value, target) for value in seen.base)
    if isinstance(target, Place) and target.owner is not None:
        return not seen.base or any(_may_have(world, value, target) for value in seen.base)
    return not seen.base or not all(isinstance(value, (Instance, Class, Const, Nothing)) for value in seen.base)


def _may_be(value: Value, node: ast.AST) -> bool:
    """Whether a value that a name holds may be the function or class."""
    if isinstance(value, (Class, Function)):
        return value.node is node
    if isinstance(value, Partial):
        return value.function.node is node
    return not isinstance(value, (Const, Nothing, Unbound, Module)) and not (isinstance(value, External) and value.path)


def _may_have(world: World, value: Value, target: Place) -> bool:
    """Whether the attribute of that name, of such a value, may be the method: of its class, or of one that takes it over."""
    if isinstance(value, (Const, Nothing, Module)) or (isinstance(value, External) and value.path):
        return False
    cls = value.cls if isinstance(value, Instance) else value if isinstance(value, Class) else None
    if cls is None or target.owner is None:
        return True
    own = next((kind.node for kind in world.lineage(cls) if kind and _defines(kind.node, target.node.name)), None)
    if own is None or own is target.owner:
        return True  # none of its own: the class is mixed into one that has it
    return any(kind is not None and kind.node is cls.node for kind in world.lineage(Class(target.module, target.owner)))


def has_its_own(world: World, module: str, target: Place) -> bool:
    """Whether a module speaks of its own method of that name where it does not say whose: a class there has it, and none is of the target's class."""
    syntax = world.tree.syntax(module)
    classes = [node for node in syntax.body if isinstance(node, ast.ClassDef)] if syntax and module != target.module else []
    if not any(_defines(node, target.node.name) for node in classes):
        return False
    return not any(kind is not None and kind.node is target.owner for node in classes for kind in world.lineage(Class(module, node))) and not any(
        isinstance(value, Class) and value.node is target.owner for value in world.lookup(module, target.owner.name if target.owner else "")
    )


def _is_kin(world: World, value: Value, slot: Slot) -> bool:
    """Whether the value may be an object of the slot's class: of one that it inherits from, or that inherits from it."""
    cls = value.cls if isinstance(value, Instance) else None
    if cls is None:
        return not isinstance(value, (Const, Nothing, Module, Class)) and not (isinstance(value, External) and value.path)
    pairs = ((cls, slot.node), (Class(slot.module, slot.node), cls.node))
    return any(kind is not None and kind.node is node for one_of, node in pairs for kind in world.lineage(one_of))


def _defines(node: ast.ClassDef, name: str) -> bool:
    return any(getattr(part, "name", "") == name for part in node.body)
