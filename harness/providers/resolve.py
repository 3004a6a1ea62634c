"""Symbols that moved between library versions, arguments that were renamed, and code taken out of an installed source."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from harness.errors import Missing


def resolve(*places: str) -> Any:
    """The first of `package.module:attribute` that exists and is not None.

    Raises Missing naming every place tried, with what each lacked.
    """
    tried = []
    for place in places:
        module_name, _, attribute = place.partition(":")
        try:
            value = getattr(importlib.import_module(module_name), attribute)
        except ModuleNotFoundError as error:
            tried.append(f"{place} (no module {error.name})")
        except AttributeError:
            tried.append(f"{place} (no such name)")
        except ImportError as error:
            tried.append(f"{place} (import fails: {error})")
        else:
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
