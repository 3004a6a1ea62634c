"""The ops this process knows: `@contract` declares one, `ops()` lists them. Built-in families load at first use."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.contracts.axes import Axes, Axis, Case
from harness.contracts.expected import Expected
from harness.contracts.inputs import Draw, Inputs
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
    why values that each axis takes do not go together (heads that kv heads do not divide), or None.
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
        axes = Axes(name, impl.axes, getattr(impl, "impossible", None))
        paragraph = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        summary = paragraph.split(". ")[0].rstrip(".") + "." if paragraph else ""
        _ops[name] = Op(name, family, impl, axes, tuple(impl.outputs), getattr(impl, "semantics", {}), tuple(getattr(impl, "mutates", ())), summary)
        return cls

    return declare


def ops() -> Mapping[str, Op]:
    """Every declared op by name, in order of declaration."""
    global _loaded
    if not _loaded:
        _loaded = True
        for family in FAMILIES:
            package = importlib.import_module(f"harness.contracts.{family}")
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{package.__name__}.{module.name}")
    return _ops


def op(name: str) -> Op:
    """The op with this name. Raises UsageError with the nearest names."""
    known = ops()
    if name not in known:
        raise unknown("op", name, known)
    return known[name]


def make_inputs(case: Case, device: str, seed: int = 0) -> Inputs:
    """The case's inputs on a torch device: bit-equal on every device for one seed."""
    return op(case.op).impl.inputs(case, Draw(f"{case.op}:{case.id}", seed, device))
