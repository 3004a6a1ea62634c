"""Torch, imported at first use: declaring ops and collecting cells must not pay for it, and a missing torch is one clear line."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
else:

    class _LazyTorch:
        def __getattr__(self, name: str) -> Any:
            try:
                module = importlib.import_module("torch")
            except ModuleNotFoundError as error:
                from harness.errors import UsageError

                raise UsageError("torch is not installed: install the build for this machine, for example pip install torch") from error
            return getattr(module, name)

    torch = _LazyTorch()

__all__ = ["torch"]
