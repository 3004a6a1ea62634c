"""Stand-ins for packages that a library imports at its top and its kernels never touch, where they are not installed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

from harness.errors import Unsupported

# SGLang up to 0.5.20 takes decode_jpeg from it in srt/utils/common.py
UNTOUCHED = {"torchvision": ("io",)}


class _Name:
    """A name of an absent package: it can be imported, not used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise Unsupported(f"reached {self._name}, which is not installed here")


class _Absent(ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self.__name__}.{name}")


def stand_in() -> None:
    """Puts stand-ins for the packages that are absent into this process."""
    for package, parts in UNTOUCHED.items():
        if importlib.util.find_spec(package) is None:
            for name in (package, *(f"{package}.{part}" for part in parts)):
                module = sys.modules[name] = _Absent(name)
                module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
