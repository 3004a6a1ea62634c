"""The libraries under test: their distribution and import names, whether they are installed, and their version."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from dataclasses import dataclass

PROMISES = ("repeat", "process", "slots", "alone")  # what can be promised to hold to the bit (docs/relations.md)


@dataclass(frozen=True)
class Library:
    """A library: `name` as providers say it, `module` to import, `distribution` to ask for its version; `promises`: what its providers
    promise where they do not say."""

    name: str
    module: str
    distribution: str
    promises: tuple[str, ...] = ("repeat", "process")

    def installed(self) -> bool:
        """Whether the import package is found, without importing it."""
        return _found(self.module)

    def version(self) -> str:
        """The installed version, or an empty string."""
        return _version(self.distribution) if self.installed() else ""


# their programs take rows and requests one by one; planners that share out work over a whole batch (FlashInfer, FlashMLA) do not
ROWS = ("repeat", "process", "slots")

LIBRARIES = {
    library.name: library
    for library in (
        Library("torch", "torch", "torch", ROWS),
        Library("triton", "triton", "triton", ROWS),
        Library("sglang", "sglang", "sglang", ROWS),
        Library("flashinfer", "flashinfer", "flashinfer-python"),
        Library("sgl_kernel", "sgl_kernel", "sglang-kernel"),
        Library("aiter", "aiter", "amd-aiter"),
    )
}


@functools.cache
def _found(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@functools.cache
def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """The installed libraries and their versions."""
    return {name: library.version() for name, library in LIBRARIES.items() if library.installed()}
