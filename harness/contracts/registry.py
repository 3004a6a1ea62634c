"""The ops this process knows: `@contract` declares one, `ops()` lists them. Built-in families load at first use."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.contracts.axes import Axes, Axis, Case
from harness.contracts.expected import Expected
from harness.contracts.inputs import Draw, Inputs
from harness.contracts.relations import DETERMINISM, STORAGE, Relation
from harness.errors import UsageError, unknown

FAMILIES = ("sampling", "speculative", "attention", "mla", "sparse", "merging")
Semantics = Mapping[str, str]


@dataclass(frozen=True)
class Work:
    """The least work the op needs: `flops` multiply-adds counted as two, `bytes` read once and written once."""

    flops: int
    bytes: int


class Contract(Protocol):
    """What the class under `@contract` provides. See docs/add-an-op.md.

    axes, semantics (choice -> accepted words, the first is the default), outputs (names, the first is required of every
    provider) and, optionally, mutates (inputs an implementation overwrites) are class attributes. Optional: `impossible(case)`,
    why values that each axis takes do not go together (heads that kv heads do not divide), or None; `relations` (word -> Relation),
    laws between calls: an op that has any, or an empty dict, gets those that hold for every op besides, and the axis `relation`.
    """

    axes: tuple[Axis, ...]
    outputs: tuple[str, ...]

    def inputs(self, case: Case, draw: Draw) -> Inputs: ...
    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Expected]: ...
    def work(self, case: Case) -> Work: ...


@dataclass(frozen=True)
class Op:
    """A declared op: `impl` is the contract object, the rest is read from it once."""

    name: str
    family: str
    impl: Any
    axes: Axes
    outputs: tuple[str, ...]
    semantics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mutates: tuple[str, ...] = ()
    summary: str = ""
    relations: Mapping[str, Relation] = field(default_factory=dict)

    def relation(self, case: Case) -> Relation | None:
        """The law that this case is about, or None for a plain call."""
        return self.relations.get(case.point.get("relation", ""))

    def resolve(self, declared: Semantics) -> dict[str, str]:
        """Every choice of the op: what the provider declared, else the default. Raises UsageError for an unknown choice."""
        for choice, word in declared.items():
            if word not in self.semantics.get(choice, ()):
                known = ", ".join(f"{name}: {'|'.join(options)}" for name, options in self.semantics.items())
                raise UsageError(f"op {self.name!r} has no semantics {choice}={word!r}; it has {known or 'none'}")
        return {choice: declared.get(choice, options[0]) for choice, options in self.semantics.items()}


_ops: dict[str, Op] = {}
_loaded = False


def contract(family: str) -> Any:
    """Class decorator: declares the class, named in lower case with underscores, as an op of `family`."""

    def declare(cls: type) -> type:
        name = getattr(cls, "name", cls.__name__)
        if name in _ops:
            raise UsageError(f"op {name!r} is declared twice: {cls.__module__} and {type(_ops[name].impl).__module__}")
        impl: Any = cls()
        relations = _relations(impl)
        axes = Axes(name, (*impl.axes, *_axis(relations)), _impossible(impl, relations))
        paragraph = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        summary = paragraph.split(". ")[0].rstrip(".") + "." if paragraph else ""
        mutates = tuple(getattr(impl, "mutates", ()))
        _ops[name] = Op(name, family, impl, axes, tuple(impl.outputs), getattr(impl, "semantics", {}), mutates, summary, relations)
        return cls

    return declare


def _relations(impl: Any) -> Mapping[str, Relation]:
    """Those that hold for every op, then the contract's own; none where it declares no `relations`."""
    own: Mapping[str, Relation] | None = getattr(impl, "relations", None)
    if own is None:
        return {}
    general = {word: law for word, law in DETERMINISM.items() if law.how != "replay" or not getattr(impl, "mutates", ())}
    return {**general, "storage": STORAGE, **own}


def _axis(relations: Mapping[str, Relation]) -> list[Axis]:
    doc = "a law between calls that the case is about (docs/relations.md); direct: one call"
    return [Axis("relation", doc, words=("direct", *relations), default="direct", silent=True)] if relations else []


def _impossible(impl: Any, relations: Mapping[str, Relation]) -> Callable[[Case], str | None]:
    """Why there is no such case: the contract's own reason, or that of a relation which says nothing of it."""
    own: Callable[[Case], str | None] = getattr(impl, "impossible", lambda case: None)

    def impossible(case: Case) -> str | None:
        why = own(case)
        word = case.point.get("relation")
        return why or (relations[word].unfit(case) if word else None)

    return impossible


def ops() -> Mapping[str, Op]:
    """Every declared op by name, in order of declaration."""
    global _loaded
    if not _loaded:
        _loaded = True
        for family in FAMILIES:
            import_all(f"harness.contracts.{family}")
    return _ops


def import_all(name: str) -> None:
    """Imports a package and its modules, which declare what they have."""
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{name}.{module.name}")


def op(name: str) -> Op:
    """The op with this name. Raises UsageError with the nearest names."""
    known = ops()
    if name not in known:
        raise unknown("op", name, known)
    return known[name]


def make_inputs(case: Case, device: str, seed: int = 0) -> Inputs:
    """The case's inputs on a torch device: bit-equal on every device for one seed."""
    return op(case.op).impl.inputs(case, Draw(f"{case.op}:{case.id}", seed, device))
