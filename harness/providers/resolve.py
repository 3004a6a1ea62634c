"""Symbols that moved between library versions, arguments that were renamed, and code taken out of an installed source."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from harness.errors import Missing

# what a module's own code raises where it does not fit its surroundings, a second import of one that failed too (KeyError); not
# RuntimeError, which is what devices and compilers raise
_BROKEN = (AttributeError, KeyError, NameError, OSError, TypeError, ValueError)


def resolve(*places: str) -> Any:
    """The first of `package.module:attribute` that exists and is not None.

    Raises Missing naming every place tried, with what each lacked.
    """
    tried = []
    for place in places:
        module_name, _, attribute = place.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            tried.append(f"{place} (no module {error.name})")
            continue
        except ImportError as error:
            tried.append(f"{place} (import fails: {error})")
            continue
        except _BROKEN as error:
            tried.append(f"{place} (import fails: {type(error).__name__}: {error})")
            continue
        try:
            value = getattr(module, attribute)
        except AttributeError:
            tried.append(f"{place} (no such name)")
            continue
        if value is not None:
            return value
        tried.append(f"{place} (bound to None)")
    raise Missing("unbound: " + "; ".join(tried))


def call(function: Any, /, *args: Any, optional: dict[str, Any] | None = None, **named: Any) -> Any:
    """Calls `function` with the positional and named arguments, and those of `optional` its signature has.

    For arguments that newer or older versions of a library do not take.
    """
    if optional:
        known = inspect.signature(function).parameters
        named |= {name: value for name, value in optional.items() if name in known}
    return function(*args, **named)
