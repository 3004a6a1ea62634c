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


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """A UsageError for a name nobody declared, with the nearest known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:5]
    return UsageError(f"unknown {kind} {name!r}; nearest: {', '.join(near) or 'none known'} (kernel-parity list {kind}s)")
