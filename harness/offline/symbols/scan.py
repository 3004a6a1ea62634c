"""One scan: the hits of a package in one scenario, each with its place, its failure, the chain that leads there and the flags it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from harness.offline.symbols import passing, uses
from harness.offline.symbols.chains import Callers, Way
from harness.offline.symbols.facts import Config, Scenario
from harness.offline.symbols.frames import NO_FLAGS, Flags, Use
from harness.offline.symbols.tree import Tree
from harness.offline.symbols.world import World


@dataclass(frozen=True, order=True)
class Hit:
    """A use that fails in some scenarios and works in the reference.

    file, line     where; `line` moves between versions and is no part of the hit's identity
    function       `Class.method`, or `<module>` for an import at the top of the module
    symbol         the global, `module:name`, or the dotted path of another package
    failure        NameError, TypeError, AttributeError, ImportError, unregistered operator, silently greedy, no kernel
    needs          server flags that the path needs and no server has by itself: the explicit-flag tier; empty otherwise
    chain          callers, outermost first
    """

    file: str
    function: str
    symbol: str
    failure: str
    line: int = 0
    needs: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two hits of two versions the same hit."""
        return self.file, self.function, self.symbol, self.failure

    @property
    def tier(self) -> str:
        return "explicit-flag" if self.needs else "default"


class Scan:
    """The scenario's world and the reference's, over one tree."""

    def __init__(self, tree: Tree, scenario: Scenario, reference: Scenario | None, config: Config) -> None:
        self.tree, self.config, self.scenario = tree, config, scenario
        self.world = World(tree, scenario, config)
        self.other = World(tree, reference, config) if reference is not None and config.reference else None
        self.callers = Callers(self.world)
        self.others = Callers(self.other) if self.other is not None else None

    def hits(self, modules: list[str]) -> list[Hit]:
        """The hits in these modules, in order."""
        found: list[Hit] = []
        for module in modules:
            lacking = self.world.lacking(module)
            if lacking and self._differs(lacking[1]):
                found.append(self._hit(module, "<module>", Use(lacking[0], 0, lacking[1], "ImportError", frozenset(), False, ""), frozenset(), ()))
                continue  # nothing else of this module can run
            found += self._at_the_top(module)
            for place in uses.suspects(self.world, module):
                found += self._of(place)
        return sorted([*found, *self._stopped(modules)])

    def _stopped(self, modules: list[str]) -> list[Hit]:
        """The modules whose import ends in ImportError, and with it that of a module that is loaded by name, or what a function outside these modules does."""
        stops, found, inside = self.world.stops.all, {}, set(modules)
        for module in sorted(stops):
            last, chain = self.world.stops.origin(module)
            if last not in inside or last in found or (self.other is not None and last in self.other.stops.all):
                continue
            way = Way((), NO_FLAGS) if self.config.loaded and module.startswith(self.config.loaded) else self.callers.way_to_import(module, inside)
            if way is not None:
                use = Use(stops[last].line, 0, stops[last].target, "ImportError", way.flags, False, "")
                found[last] = self._hit(last, "<module>", use, way.flags, (*way.chain, *chain))
        return list(found.values())

    def _of(self, place: uses.Place) -> list[Hit]:
        """The hits of one function: uses that no handler takes, on a way that the scenario reaches, with what its callers pass."""
        met = [use for use in uses.run(self.world, place).uses.values() if not use.caught]
        way = self.callers.way(place) if met else None
        failing = self._failing(met, place) if way is not None else []
        if way is None or not failing:
            return []
        given = passing.arguments(self.callers, place)
        if given is None:
            return []
        if given:
            failing = self._failing(uses.run(self.world, place, given).uses.values(), place)
        return [self._hit(place.module, place.qualname, use, use.flags | way.flags, way.chain) for use in failing]

    def _at_the_top(self, module: str) -> list[Hit]:
        """The names that code at the top of a module, which the reference does not run or runs well, finds unbound."""
        elsewhere = set(self.other.names(module).record.uses) if self.other is not None else set()
        met = self.world.names(module).record.uses if not self.world.names(module).fails else {}
        failing = [use for key, use in sorted(met.items()) if use.failure == "NameError" and not use.caught and key not in elsewhere]
        return [self._hit(module, "<module>", use, NO_FLAGS, ()) for use in failing]

    def _failing(self, met: Iterable[Use], place: uses.Place) -> list[Use]:
        return [use for use in sorted(met) if not use.caught and (self._differs(use.symbol) or self._is_only_here(use, place))]

    def _is_only_here(self, use: Use, place: uses.Place) -> bool:
        """Whether the reference does not come to a use that would fail there too: its function, or its way in it, is this platform's own."""
        if self.other is None or self.others is None:
            return True
        there = uses.run(self.other, place).seen
        word = use.symbol.rpartition(":" if ":" in use.symbol else ".")[2]
        if not any(seen.line == use.line for seen in there.get(word, ())):
            return True
        return place.node.lineno not in {p.node.lineno for p in uses.places(self.other, place.module)} or self.others.way(place) is None

    def _differs(self, symbol: str) -> bool:
        return self.other is None or uses.works_in(self.other, symbol)

    def _hit(self, module: str, function: str, use: Use, needs: Flags, chain: tuple[str, ...]) -> Hit:
        return Hit(self.tree.file(module), function, use.symbol, use.failure, use.line, tuple(sorted(needs)), chain, (self.scenario.name,))


def merged(lists: list[list[Hit]]) -> list[Hit]:
    """The hits of several scenarios as one list: the same use once, with every scenario that has it; the one that needs fewest flags speaks."""
    kept: dict[tuple[object, ...], Hit] = {}
    for hit in (hit for hits in lists for hit in hits):
        key = (*hit.key, hit.line)
        known = kept.get(key)
        if known is None:
            kept[key] = hit
        else:
            better = min(known, hit, key=lambda h: len(h.needs))
            kept[key] = replace(better, scenarios=tuple(dict.fromkeys((*known.scenarios, *hit.scenarios))))
    return sorted(kept.values(), key=lambda hit: (hit.file, hit.line, hit.symbol))
