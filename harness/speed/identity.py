"""Which kernels ran: against those of the baseline, and against what the provider must and must not launch. Needs no time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.speed.names import family, plain_name

FAST, GENERIC, UNKNOWN = "fast", "generic", ""
Path = Callable[[str], str]  # of a kernel's name: fast, generic, either, or empty for a name of no known family


@dataclass(frozen=True)
class Identity:
    """The kernels of a cell, as families of names (`speed/names.py`), each once.

    now, then  those that ran, and those of the baseline; empty where they are not known
    lacking    must-have patterns that no kernel fits
    unwanted   kernels that must not run and did
    generic    a generic kernel came, and either a fast one went or the baseline had no generic one
    unknown    kernels that the baseline does not have and no reviewed family takes in
    """

    now: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    generic: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def other(self) -> bool:
        """Whether other kernels ran than the baseline has, in whatever order."""
        return bool(self.now and self.then) and set(self.now) != set(self.then)


def identify(names: Iterable[str], then: Sequence[str], path: Path, *, must: Iterable[str] = (), never: Iterable[str] = ()) -> Identity:
    """What the names that a profiler showed say; without any name nothing is said. `then`: families of the baseline."""
    shown = list(dict.fromkeys(names))
    if not shown:
        return Identity(then=tuple(then))
    now = {family(name): path(name) for name in shown}
    came, went = now.keys() - set(then), set(then) - now.keys()
    had = {path(name) for name in then}
    generic = bool(then) and any(now[name] == GENERIC for name in came) and (GENERIC not in had or any(path(name) == FAST for name in went))
    return Identity(
        now=tuple(now),
        then=tuple(then),
        lacking=tuple(pattern for pattern in must if not any(_fits(pattern, name) for name in shown)),
        unwanted=tuple(dict.fromkeys(family(name) for name in shown if any(re.search(pattern, plain_name(name)) for pattern in never))),
        generic=generic,
        unknown=tuple(name for name in now if name in came and now[name] == UNKNOWN),
    )


def _fits(pattern: str, name: str) -> bool:
    """Whether a pattern is found in a name, plain or, as AITER's tables have them, mangled."""
    return bool(re.search(pattern, plain_name(name)) or re.search(pattern, name))
