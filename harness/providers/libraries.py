"""The libraries under test: their distribution and import names, whether they are installed, and their version."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """A library: `name` as providers say it, `module` to import, `distribution` to ask for its version."""

    name: str
    module: str
    distribution: str

    def installed(self) -> bool:
        """Whether the import package is found, without importing it."""
        return _found(self.module)

    def version(self) -> str:
        """The installed version, or an empty string."""
        return _version(self.distribution) if self.installed() else ""


LIBRARIES = {
    library.name: library
    for library in (
        Library("torch", "torch", "torch"),
        Library("triton", "triton", "triton"),
        Library("sglang", "sglang", "sglang"),
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
