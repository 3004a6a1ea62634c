"""Providers: which library implements which op, where, and with which semantics. `@implements` declares one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from harness.contracts import Case, op
from harness.contracts.inputs import FLAVOURS, flavour_of
from harness.contracts.registry import import_all
from harness.errors import UsageError
from harness.providers import launched
from harness.providers.libraries import LIBRARIES, PROMISES, Library

PLATFORMS = ("cuda", "rocm", "interpret", "cpu")
PACKAGES = ("torch_eager", "torch_sdpa", "sglang_triton", "sglang_torch", "flashinfer", "sgl_kernel", "aiter")
SERVED = ("harness.served.sampling",)  # SGLang's own layers, driven


@dataclass(frozen=True)
class Provider:
    """One library's implementation of one op.

    make       returns, for a case, an object with `prepare(x, scratch)` and `run()`; where `run` reads lengths from the device alone, also
               `refill(x)`, which overwrites lengths and page lists in place with those of `x`, as a server does before it replays a graph
    platforms  where it runs; `interpret` is Triton's interpreter, `cpu` plain PyTorch
    semantics  the op's choices this implementation makes
    accepts    None, or a function of the case: a reason (str) why the library does not take it by its own documentation, or None
    notes      said in every row (for example how the interpreter goes round a device check)
    gate       None, or a function of the case and the architecture ("" where it is not known): the check of the library's own dispatch
               that refuses the case there, or None
    promises   relations that hold to the bit: `repeat`, `slots`, `alone`, `process`; the others are held to error budgets
    kernels    None, or a function of the case and the architecture: patterns (regular expressions) of kernels that must run, each of
               them; without it kernels.toml says
    never      patterns of kernels that must not run
    variant    another call of a kernel that some provider of the op calls already: not run in `smoke` and `nightly` unless it is named
    """

    op: str
    name: str
    library: Library
    platforms: frozenset[str]
    semantics: Mapping[str, str]
    make: Callable[[], Any]
    accepts: Callable[[Case], str | None] | None
    notes: tuple[str, ...]
    source: str
    doc: str
    gate: Callable[[Case, str], str | None] | None = None
    kernels: Callable[[Case, str], tuple[str, ...]] | None = None
    never: tuple[str, ...] = ()
    promises: frozenset[str] = frozenset()
    variant: bool = False

    def gated(self, case: Case, arch: str = "") -> str | None:
        """The check of the library's dispatch that refuses this case on the architecture, or None."""
        return self.gate(case, arch) if self.gate else None

    def expected_kernels(self, case: Case, arch: str) -> tuple[str, ...]:
        """Patterns of kernels of which a profile must hold each; empty where nothing is known."""
        return self.kernels(case, arch) if self.kernels else launched.must(self.name, self.op, arch)

    def semantics_on(self, platform: str) -> Mapping[str, str]:
        """The semantics there: without a device there is no tf32."""
        if platform in ("interpret", "cpu") and "fp32_dot" in self.semantics:
            return {**self.semantics, "fp32_dot": "ieee"}
        return self.semantics

    def declines(self, case: Case, platform: str, arch: str = "") -> str | None:
        """Why the case is not run on that platform, or on a device of that arch where it is known: it cannot be judged there, or
        the library's documentation excludes it."""
        if platform == "interpret" and "bf16" in case.point.values():
            return "Triton's interpreter has no bf16 arithmetic"
        if platform == "interpret" and not FLAVOURS["e4m3fnuz"].isdisjoint(case.point.values()):
            return "Triton's interpreter does not read e4m3fnuz"
        # torch computes with either flavour by conversion; a kernel with the device's own
        if platform in ("cuda", "rocm") and arch and self.library.name != "torch":
            foreign = [flavour for flavour, words in FLAVOURS.items() if flavour != flavour_of(arch) and not words.isdisjoint(case.point.values())]
            if foreign:
                return f"{foreign[0]} is not the fp8 of {arch}, which is {flavour_of(arch)}"
        return self.why_not(case)

    def why_not(self, case: Case) -> str | None:
        """The documented reason why the library does not take this case, or why this provider cannot show its law, or None. Raises
        UsageError where `accepts` itself fails."""
        try:
            reason = self.accepts(case) if self.accepts else None
        except Exception as error:
            raise UsageError(f"accepts of provider {self.name!r} fails on {case}: {type(error).__name__}: {error} (declared in {self.source})") from error
        law = op(self.op).relation(case)
        if not reason and law and law.how == "refilled" and not hasattr(self.make, "refill"):
            return "it has no refill(x), which overwrites the lengths that a captured call reads: its plan or its bounds are the host's"
        return str(reason) if reason else None


class _Simple:
    """A one-function provider in the form of a phased one."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x = x

    def run(self) -> Any:
        return self.function(self.x)


_providers: dict[tuple[str, str], Provider] = {}
_loaded = False


def implements(
    op_name: str,
    *,
    library: str,
    platforms: Collection[str],
    name: str | None = None,
    semantics: Mapping[str, str] | None = None,
    accepts: Callable[[Case], str | None] | None = None,
    notes: tuple[str, ...] = (),
    gate: Callable[[Case, str], str | None] | None = None,
    kernels: Callable[[Case, str], tuple[str, ...]] | None = None,
    never: tuple[str, ...] = (),
    promises: Collection[str] | None = None,
    variant: bool = False,
) -> Callable[[Any], Any]:
    """Declares a function `f(x) -> outputs`, or a class with `prepare(x, scratch)` and `run()`, as a provider of `op_name`.

    Outputs are returned in the contract's order (one tensor, a tuple, or a dict by name; None for an output the library
    does not give). An op that works in place mutates `x`'s tensors and returns None. The library is imported inside the
    function. Default name: the library's; default promises: those of the library. Raises UsageError for an unknown op, library,
    platform, promise or semantics.
    """
    unknown_platforms = set(platforms) - set(PLATFORMS)
    if unknown_platforms or not platforms:
        raise UsageError(f"provider of {op_name!r}: platforms are {', '.join(PLATFORMS)}, not {sorted(unknown_platforms)}")
    if unknown_promises := sorted(set(promises or ()) - set(PROMISES)):
        raise UsageError(f"provider of {op_name!r}: promises are {', '.join(PROMISES)}, not {unknown_promises}")
    known = LIBRARIES.get(library) or Library(library, library, library)

    def declare(made: Any) -> Any:
        simple = not inspect.isclass(made)
        provider = Provider(
            op=op(op_name).name,
            name=name or library,
            library=known,
            platforms=frozenset(platforms),
            semantics=op(op_name).resolve(semantics or {}),
            make=(lambda: _Simple(made)) if simple else made,
            accepts=accepts,
            notes=notes,
            source=f"{made.__module__}:{made.__qualname__}",
            doc=(made.__doc__ or "").strip().split("\n")[0],
            gate=gate,
            kernels=kernels,
            never=never or launched.never(name or library, op_name),
            promises=frozenset(known.promises if promises is None else promises),
            variant=variant,
        )
        key = (provider.op, provider.name)
        if key in _providers and _providers[key].source != provider.source:
            raise UsageError(f"provider {provider.name!r} of {provider.op!r} is declared twice: {_providers[key].source} and {provider.source}")
        _providers[key] = provider
        return made

    return declare


def providers() -> Mapping[tuple[str, str], Provider]:
    """Every declared provider by (op, name), in order of declaration."""
    global _loaded
    if not _loaded:
        _loaded = True
        for name in PACKAGES:
            import_all(f"harness.providers.{name}")
        for name in SERVED:
            import_all(name)
    return _providers


def providers_of(op_name: str) -> list[Provider]:
    """The providers of one op."""
    return [provider for provider in providers().values() if provider.op == op_name]
