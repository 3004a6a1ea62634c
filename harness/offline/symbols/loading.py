"""Modules whose import fails in a scenario, and the way to them: who imports them where nobody takes the error."""

from __future__ import annotations

from collections.abc import Iterator

from harness.offline.symbols import uses
from harness.offline.symbols.chains import Callers, Way
from harness.offline.symbols.frames import NO_FLAGS, Flags, Record, Seen, Use
from harness.offline.symbols.tree import statements


def stopped(callers: Callers, module: str) -> tuple[Use, Way] | None:
    """The import of an absent package that stops a module which something imports all the same, with the way there; None as a rule."""
    names = callers.world.names(module)
    failed = [use for use in names.record.uses.values() if use.failure == "ImportError" and not use.caught and ":" not in use.symbol]
    way = _way(callers, module) if names.fails == "ImportError" and failed else None
    return (min(failed), way) if way is not None else None


def _way(callers: Callers, module: str) -> Way | None:
    """From a module that a server loads, or a function that is registered, to the import of the module; the one that needs the fewest flags."""
    todo: list[tuple[str, Way]] = [(module, Way((), NO_FLAGS))]
    done, found = {module}, []
    while todo:
        name, way = todo.pop(0)
        if not name.startswith(callers.world.config.loaded):
            for source, flags, chain in _importers(callers, name):
                further = Way((*chain, *way.chain), way.flags | flags)
                if source is None:
                    found.append(further)
                elif source not in done:
                    done.add(source)
                    todo.append((source, further))
        elif not way.flags:
            return way
    return min(found, key=lambda way: (len(way.flags), len(way.chain)), default=None)


def _importers(callers: Callers, module: str) -> Iterator[tuple[str | None, Flags, tuple[str, ...]]]:
    """The modules that import it at their top, and (as None) the registered functions that do, with the flags that these need."""
    world = callers.world
    for other in world.tree.mentions(module.rpartition(".")[2]):
        lines = _lines(callers, other, module) if other != module else []
        if not lines:
            continue
        seen = _uncaught(world.names(other).record, module)
        if seen:
            yield other, NO_FLAGS, (f"{'.'.join(other.split('.')[-2:])}:{seen[0].line}",)
        for place in uses.places(world, other) if not world.names(other).fails else ():
            if any(place.node.lineno < line <= (place.node.end_lineno or 0) for line in lines):
                yield from _from_function(callers, place, module)


def _from_function(callers: Callers, place: uses.Place, module: str) -> Iterator[tuple[None, Flags, tuple[str, ...]]]:
    """By a function that the package registers itself; deeper in the code, what chooses a kernel is more than the scan can follow."""
    seen = _uncaught(uses.run(callers.world, place), module)
    entries = [flags for source, flags, _ in callers.edges(place) if source is None] if seen else []
    if entries:
        flags = min(entries, key=len) | min((s.flags for s in seen), key=len)
        yield None, flags, (f"{'.'.join(place.module.split('.')[-2:])}.{place.qualname}:{seen[0].line}",)


def _lines(callers: Callers, other: str, module: str) -> list[int]:
    """The lines of a module's import statements that may be of `module`: they end in its last word, or name something inside it."""
    tree = callers.world.tree
    word, syntax = module.rpartition(".")[2], tree.syntax(other)
    return [
        node.lineno
        for node in statements(syntax.body if syntax else [])
        if (named := getattr(node, "names", None))
        and word in f"{getattr(node, 'module', '') or ''}.{'.'.join(getattr(a, 'name', '') for a in named)}".split(".")
    ]


def _uncaught(record: Record, module: str) -> list[Seen]:
    return [seen for seen in record.imports.get(module, ()) if not seen.caught]
