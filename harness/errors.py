"""The errors a user can cause or meet, each with the exit code it ends the program with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Bad usage or configuration. The message is one line that names the thing and the remedy. Exit code 2."""

    exit_code = 2


class HarnessError(Exception):
    """The harness itself could not do its work (no worker, no device, full disk). One line. Exit code 3."""

    exit_code = 3


class Missing(Exception):
    """A library is installed but the symbol is unbound, None or not registered. Becomes the status `missing`."""


class Unsupported(Exception):
    """This platform or library version cannot judge the cell; the message says why. Becomes `unsupported`."""


_LISTED = ("op", "provider", "model", "preset", "case")  # what `kernel-parity list` shows


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names most like this one; the first few where none is."""
    names = sorted(known)
    return difflib.get_close_matches(name, names, n=most, cutoff=0.4) or names[:5]


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """A UsageError for a name nobody declared, with the nearest known names, and the command that lists them where there is one."""
    hint = f" (kernel-parity list {kind}s)" if kind in _LISTED else ""
    return UsageError(f"unknown {kind} {name!r}; nearest: {', '.join(nearest(name, known)) or 'none known'}{hint}")
