"""What an exception out of a provider means: a status and a reason. No device is touched here.

Types decide first. Words are searched only in the errors that libraries raise for everything (RuntimeError, OSError and the
like), never in a ValueError or TypeError, whose text may speak of anything.
"""

from __future__ import annotations

import re
import subprocess
import types

from harness.contracts import Inputs
from harness.errors import Missing, Unsupported

_CLEAR = (ValueError, TypeError, NotImplementedError, AssertionError)
_BUILD_KINDS = {"CompilationError", "InterpreterError", "OutOfResources", "PTXASError", "BackendCompilerFailed", "InductorError"}
_LONGEST = 8000
_TOOLS = r"(?:ninja|nvcc|hipcc|ptxas|c\+\+|g\+\+|gcc|clang\+\+)"


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_OUT_OF_MEMORY = _words(
    r"out[ _]?of[ _]?memory",
    r"can(?:'t|not) allocate memory",
    "not enough memory: you tried",
    "_alloc_failed",
    "memoryallocation",
    "hsa_status_error_out_of_resources",
)
_DEVICE = _words(
    r"\b(?:cuda|hip) error\b",
    r"triton error \[",
    "(?:cuda|hip)error[a-z]",
    "illegal (?:memory access|address|instruction)",
    "device-side assert",
    "unspecified launch failure",
    "misaligned address",
    "memory access fault",
    "hsa_status_error",
    "hw exception by gpu",
)
# what ROCm's runtime prints before it ends the process: there a fault of the GPU is no exception
_LAST_WORDS = _words(r"memory access fault by gpu.*", r"hw exception by gpu.*", r"aborting with error ?: ?hsa_status_error.*", r"---> \[hip error\].*")
_BUILD = _words(
    "ninja build failed",
    r"\[aiter\] build \[\w+\] under .* failed",
    "error building extension",
    "ninja is required to load",
    "could not find nvcc",
    "nvcc not found",
    "(?:cuda|rocm)_home environment variable is not set",
    "nvcc fatal",
    "compilation (?:failed|error)",
    "failed to compile",
    r"jit compil\w* (?:failed|error)",
    "(?:nvrtc|hiprtc)_error",
    "passmanager::run failed",
    rf"no such file or directory: '(?:[^']*/)?{_TOOLS}'",
)
_UNREGISTERED = _words(r"could not run '\w+::", r"no such operator \w+::", r"could not find schema for \w+::", "does not exist! ensure that it is registered")
# a call that does not fit the function called, or a None inside the library: no word about the input, so not a refusal
_UNCLEAR = _words(
    "unexpected keyword argument", r"missing \d+ required", r"takes (?:from )?\d+ (?:to \d+ )?positional", "'nonetype'", "mismatched number of arguments"
)


def classify(error: BaseException) -> tuple[str, str]:
    """(status, reason) of an exception. After some of them the device context is unusable: see `poisons`."""
    kind, text = type(error).__name__, words_of(error)
    if isinstance(error, Unsupported):
        return "unsupported", "declined"
    if isinstance(error, Missing):
        return "missing", "unbound"
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or (_vague(error) and _OUT_OF_MEMORY.search(text)):
        return "out-of-memory", "allocation"
    if poisons(error):
        return "crash", "device error"
    named = {base.__name__ for base in type(error).__mro__}
    # AITER once left a failed build by SystemExit
    worded = (_vague(error) or isinstance(error, SystemExit)) and _BUILD.search(text)
    if isinstance(error, subprocess.CalledProcessError) or named & _BUILD_KINDS or worded:
        return "build-failed", kind
    if reason := _missing(error, text):
        return "missing", reason
    clear = isinstance(error, (*_CLEAR, RuntimeError)) and not isinstance(error, RecursionError)
    if clear and not (isinstance(error, TypeError) and _UNCLEAR.search(text)):
        return "refused", kind
    return "crash", kind


def _missing(error: BaseException, text: str) -> str:
    """Why a symbol is not there, or an empty string."""
    kind = type(error).__name__
    if isinstance(error, TypeError):
        return "None" if "'NoneType' object is not callable" in text else ""
    if isinstance(error, AttributeError):
        owner = error.obj
        if type(owner).__name__ == "_OpNamespace":
            return "unregistered"
        if isinstance(owner, Inputs):  # the provider asks for what the contract does not give: its own mistake
            return ""
        # an attribute of a value (None, a tensor, a list) is a mistake inside the library, not a symbol that is not there
        plain = type(owner).__module__ in ("builtins", "torch") and not isinstance(owner, (types.ModuleType, type))
        return "" if plain and error.name is not None else kind
    if isinstance(error, (NameError, ImportError)):
        return "" if isinstance(error, UnboundLocalError) else kind
    return "unregistered" if isinstance(error, RuntimeError) and _UNREGISTERED.search(text) else ""


def poisons(error: BaseException) -> bool:
    """Whether the device context may be unusable after this error."""
    return type(error).__name__ == "AcceleratorError" or (_vague(error) and bool(_DEVICE.search(words_of(error))))


def device_death(log: str) -> tuple[str, str] | None:
    """(status, reason) of a process that ended or fell silent after its GPU runtime printed why, or None where it printed nothing."""
    said = _LAST_WORDS.search(log)
    if said is None:
        return None
    return ("out-of-memory", "allocation") if _OUT_OF_MEMORY.search(said[0]) else ("crash", "device error")


def _vague(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, (*_CLEAR, LookupError, NameError, AttributeError, ImportError, RecursionError))


def words_of(error: BaseException) -> str:
    """The beginning of the exception's text, whatever its own __str__ does, as any encoding can hold it."""
    try:
        text = str(error)[:_LONGEST]
    except Exception as broken:
        text = f"(its text cannot be had: {type(broken).__name__})"
    return text.encode(errors="backslashreplace").decode()
