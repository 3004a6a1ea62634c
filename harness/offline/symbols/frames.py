"""The state of an evaluation: names, the explicit flags that the path needs, and what was met on the way."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from harness.offline.symbols.values import UNBOUND, Class, State, joined, met

if TYPE_CHECKING:
    from harness.offline.symbols.world import World

Flags = frozenset[str]
NO_FLAGS: Flags = frozenset()


class Path(NamedTuple):
    """One way through the code: the names known on it, and the server flags it needs that a server does not set by itself.

    alike    local names by the expression that has the same truth: what a test tells of one it tells of the other
    """

    env: dict[str, State]
    flags: Flags
    alike: dict[str, str] = {}


class Use(NamedTuple):
    """A use that fails: where, of which global (`module:name`), how, on paths that need `flags`; `caught` if a handler takes the error."""

    line: int
    column: int
    symbol: str
    failure: str
    flags: Flags
    caught: bool
    text: str


class Seen(NamedTuple):
    """Where a word was reached: as a name that holds `held`, or as an attribute of something that is `base`; both None in an import."""

    line: int
    flags: Flags
    held: State | None = None
    base: State | None = None


@dataclass
class Record:
    """What the evaluation of one function met: uses that fail; every name and attribute reached, and what calls pass, by word."""

    uses: dict[tuple[int, int, str], Use] = field(default_factory=dict)
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    passed: dict[str, list[tuple[list[State], dict[str, State]]]] = field(default_factory=dict)
    ran: set[ast.AST] = field(default_factory=set)
    returns: bool = True

    def reach(self, word: str, node: ast.expr | ast.stmt, frame: Frame, held: State | None = None, base: State | None = None) -> None:
        self.seen.setdefault(word, []).append(Seen(node.lineno, frame.path.flags if frame.path else NO_FLAGS, held, base))


@dataclass
class Frame:
    """One scope under evaluation. `path` is None once the code returned, raised or cannot be reached."""

    world: World
    module: str
    path: Path | None
    locals: frozenset[str] | None = None
    owner: Class | None = None
    record: Record | None = None
    catching: tuple[frozenset[str], ...] = ()
    raised: list[tuple[str, Path]] = field(default_factory=list)
    returned: list[State] = field(default_factory=list)
    exits: list[Path] = field(default_factory=list)

    def at(self, path: Path | None) -> Frame:
        """The same scope on another path; raises and returns go to the same lists."""
        return replace(self, path=path)

    def set(self, name: str, state: State) -> None:
        if self.path is not None:
            self.path.env[name] = state
            start = name + "."
            stale = [key for key in self.path.env if key.startswith(start)]
            for key in stale:
                del self.path.env[key]
            for other in [other for other, text in self.path.alike.items() if name in (other, text) or text.startswith(start)]:
                del self.path.alike[other]

    def merge(self, paths: list[Path | None]) -> Path | None:
        """What holds after any of the paths; flags are needed only where every path needs some."""
        live = [path for path in paths if path is not None]
        if len(live) <= 1:
            return live[0] if live else None
        env: dict[str, State] = {}
        for name in set().union(*(path.env for path in live)):
            states = [path.env[name] for path in live if name in path.env]
            if len(states) == len(live):
                env[name] = joined(*states) if self.locals is None else met(*states)
            elif self.locals is None:
                env[name] = joined(UNBOUND, *states)
            elif name in self.locals:
                env[name] = met(*states)
        alike = {name: text for name, text in live[0].alike.items() if all(path.alike.get(name) == text for path in live[1:])}
        return Path(env, min((path.flags for path in live), key=lambda flags: (len(flags), sorted(flags))), alike)

    def stop(self, error: str = "") -> None:
        """Ends the path; with an error, a handler around it may go on from here."""
        if self.path is not None and error:
            self.raised.append((error, self.path))
        self.path = None


def forked(path: Path, narrowed: dict[str, State] | None = None, flags: Flags = NO_FLAGS) -> Path:
    """A copy of the path with further knowledge."""
    return Path({**path.env, **(narrowed or {})}, path.flags | flags, dict(path.alike))
