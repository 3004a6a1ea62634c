"""What an exception out of a provider means: a status and a reason. No device is touched here."""

from __future__ import annotations

import subprocess

from harness.errors import Missing, Unsupported

_UNREGISTERED = ("could not run", "no attribute", "not implemented for", "is not registered", "no such operator")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "alloc failed")
_BUILD = ("ninja", "nvcc", "hipcc", "error building extension", "compilation failed", "jit compil")
_BUILD_KINDS = ("CompilationError", "OutOfResources", "PTXASError")
_DEVICE = ("cuda error", "hip error", "cudaerror", "illegal memory access", "device-side assert", "unspecified launch failure", "misaligned address")


def classify(error: BaseException) -> tuple[str, str]:
    """(status, reason) of an exception. A device error leaves the context unusable: see `poisons`."""
    kind, text = type(error).__name__, str(error).lower()
    if isinstance(error, Unsupported):
        return "unsupported", "declined"
    if isinstance(error, Missing):
        return "missing", "unbound"
    if poisons(error):
        return "crash", "device error"
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or any(mark in text for mark in _OUT_OF_MEMORY):
        return "out-of-memory", kind
    if isinstance(error, subprocess.CalledProcessError) or kind in _BUILD_KINDS or any(mark in text for mark in _BUILD):
        return "build-failed", kind
    if isinstance(error, UnboundLocalError):
        return "crash", kind
    if isinstance(error, (NameError, AttributeError, ImportError)):
        return "missing", kind
    if isinstance(error, TypeError) and "'nonetype' object is not callable" in text:
        return "missing", "None"
    if isinstance(error, NotImplementedError) and any(mark in text for mark in _UNREGISTERED):
        return "missing", "unregistered"
    if isinstance(error, (ValueError, NotImplementedError, AssertionError, RuntimeError, TypeError)):
        return "refused", kind
    return "crash", kind


def poisons(error: BaseException) -> bool:
    """Whether the device context cannot be used after this error."""
    text = str(error).lower()
    return type(error).__name__ == "AcceleratorError" or (any(mark in text for mark in _DEVICE) and "out of memory" not in text)
