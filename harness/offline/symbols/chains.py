"""From the use back to a place that runs: the shortest chain of callers that the scenario reaches, and the server flags it needs."""

from __future__ import annotations

import ast
import heapq
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from harness.offline.symbols import inventory, uses
from harness.offline.symbols.expressions import last_word
from harness.offline.symbols.frames import NO_FLAGS, Flags
from harness.offline.symbols.meaning import Kind, Node, Slot, has_its_own, means
from harness.offline.symbols.mentions import Edge, at_the_top, known_as, short
from harness.offline.symbols.tree import statements
from harness.offline.symbols.uses import Place
from harness.offline.symbols.values import Class
from harness.offline.symbols.world import World

_MOST, _COMMON, _ENOUGH = 60, 4, 4


class Way(NamedTuple):
    """A chain of callers, outermost first, and the flags that it needs."""

    chain: tuple[str, ...]
    flags: Flags


class Callers:
    """Finds ways to functions of one world; everything is worked out once and kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._edges: dict[Node, list[Edge]] = {}
        self._ways: dict[Node, Way | None] = {}
        self._cut: set[Node] = set()
        self._whole: set[Node] = set()
        self._searching: set[Node] = set()
        self._common: dict[str, bool] = {}

    @cached_property
    def _of_other_devices(self) -> frozenset[str]:
        """The functions that the kernel registry names for other devices alone."""
        config, platform = self.world.config, self.world.scenario.platform
        return inventory.targets_elsewhere(inventory.specs(self.world.tree, config.registry), platform) if config.registry else frozenset()

    def way(self, start: Node) -> Way | None:
        """The way that needs the fewest flags, or None: nothing that the scenario reaches leads there."""
        if start not in self._ways:
            self._searching.add(start)
            way, met = self._search(start)
            while (way is None or way.flags) and self._cut & met:
                for node in self._cut & met:  # the first callers lead nowhere: now all of them
                    del self._edges[node]
                    self._whole.add(node)
                self._cut -= met
                way, met = self._search(start)
            self._ways[start] = way
            self._searching.discard(start)
        return self._ways[start]

    def _search(self, start: Node) -> tuple[Way | None, set[Node]]:
        heap: list[tuple[int, int, int, Flags, tuple[str, ...], Node]] = [(0, 0, 0, NO_FLAGS, (), start)]
        done: set[Node] = set()
        count = 0
        while heap:
            _, depth, _, flags, chain, node = heapq.heappop(heap)
            if node in done:
                continue
            done.add(node)
            if len(done) > _MOST:
                return Way(chain, flags), done  # too much leads here to follow it all: taken as reached
            for source, needs, text in self.edges(node):
                further = flags | needs
                if source is None:
                    return Way((text, *chain) if text else chain, further), done
                count += 1
                heapq.heappush(heap, (len(further), depth + 1, count, further, (text, *chain), source))
        return None, done

    def way_to_import(self, module: str, inside: set[str]) -> Way | None:
        """A way to a function, of none of the modules `inside`, that imports the module where it cannot be imported."""
        last = module.rpartition(".")[2]
        outer = module.rpartition(".")[0]
        pattern = re.compile(
            rf"^[ \t]+(?:from|import)[ \t]+(?:{re.escape(module)}\b|{re.escape(outer)}[ \t]+import\b[^\n#]*\b{re.escape(last)}\b)", re.MULTILINE
        )
        for other in self.world.tree.mentions(last):
            if (
                other in inside
                or not other.startswith(self.world.config.all)
                or outer not in self.world.tree.text(other)
                or not pattern.search(self.world.tree.text(other))
                or self.world.names(other).fails
            ):
                continue
            lines = [self.world.tree.text(other).count("\n", 0, match.start()) + 1 for match in pattern.finditer(self.world.tree.text(other))]
            for place in uses.places(self.world, other):
                if any(place.node.lineno < line <= (place.node.end_lineno or 0) for line in lines):
                    uses_here = [use for use in uses.run(self.world, place).uses.values() if use.symbol == module and not use.caught]
                    way = self.way(place) if uses_here else None
                    if way is not None:
                        return Way((*way.chain, f"{short(other)}.{place.qualname}:{uses_here[0].line}"), way.flags | uses_here[0].flags)
        return None

    def all_edges(self, node: Node) -> list[Edge]:
        """Everything that leads to the node."""
        self.edges(node)
        if node in self._cut:
            del self._edges[node]
            self._whole.add(node)
            self._cut.discard(node)
        return self.edges(node)

    def edges(self, node: Node) -> list[Edge]:
        """Who leads to the node, those that need no flag first."""
        if node not in self._edges:
            self._edges[node] = []
            into = self._into(node)
            found, free = [], 0
            for edge in into:
                found.append(edge)
                free += not edge[1]
                if node not in self._whole and (free == _ENOUGH or (edge[0] is None and not edge[1])):
                    self._cut.add(node)
                    break  # it will hardly get better, and each further caller has to be evaluated
            self._edges[node] = sorted(found, key=lambda edge: (len(edge[1]), edge[0] is not None))
        return self._edges[node]

    def _into(self, node: Node) -> Iterator[Edge]:
        if isinstance(node, Slot):
            return (
                edge for module in _nearest_first(node.module, self.world.tree.mentions(node.name)) for edge in self._mentions_in(module, {node.name}, node)
            )
        return self._into_class(node) if isinstance(node, Kind) else self._into_method(node) if node.owner is not None else self._into_function(node)

    def _into_function(self, place: Place) -> Iterator[Edge]:
        for decorator in place.node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            word = ast.unparse(call.func if call else decorator).rpartition(".")[2]
            flag = self.world.config.idioms.get("registries", {}).get(word)
            if flag and call and call.args and isinstance(call.args[0], ast.Constant):
                told = self.world.config.flags[flag].told(call.args[0].value, self.world.scenario.platform)
                if told is not None:
                    yield None, told, ""
                return
            if "regist" in word or word in ("get", "post", "app"):
                yield None, NO_FLAGS, ""
                return
        if self.world.config.library and not place.node.name.startswith("_"):
            yield None, NO_FLAGS, ""
        yield from self._references(place)

    def _into_class(self, kind: Kind) -> Iterator[Edge]:
        init = self._constructor(kind)
        if init is not None and not uses.run(self.world, init).returns:
            return  # its constructor raises here
        if self.world.config.library and not kind.node.name.startswith("_"):
            yield None, NO_FLAGS, ""
        yield from self._references(kind)

    def _constructor(self, kind: Kind) -> Place | None:
        for cls in self.world.lineage(Class(kind.module, kind.node)):
            for node in cls.node.body if cls else ():
                if isinstance(node, ast.FunctionDef) and node.name == "__init__" and cls is not None:
                    return Place(cls.module, f"{cls.node.name}.__init__", node, cls.node)
        return None

    def _into_method(self, place: Place) -> Iterator[Edge]:
        assert place.owner is not None
        kind = Kind(place.module, place.owner)
        made = Way((), NO_FLAGS) if kind in self._searching else self.way(kind)
        if made is None:  # no object of the class is made here: others may have taken the method over
            yield from self._borrowers(place.owner.name, place.node.name)
            return
        for source, needs, text in self._callers_of_method(place, kind):
            yield source, needs | made.flags, text

    def _borrowers(self, owner: str, name: str) -> Iterator[Edge]:
        """The classes that bind `Owner.name` in their bodies."""
        for module in self.world.tree.mentions(owner):
            syntax = self.world.tree.syntax(module) if f"= {owner}.{name}" in self.world.tree.text(module) else None
            for node in syntax.body if syntax else ():
                taken = isinstance(node, ast.ClassDef) and any(isinstance(p, ast.Assign) and ast.unparse(p.value) == f"{owner}.{name}" for p in node.body)
                if taken and isinstance(node, ast.ClassDef) and node.lineno in self.world.names(module).reached:
                    yield Kind(module, node), NO_FLAGS, f"{short(module)}.{node.name}"

    def _callers_of_method(self, place: Place, kind: Kind) -> Iterator[Edge]:
        assert place.owner is not None
        name = place.node.name
        scenario = self.world.scenario
        if name in scenario.never or (name in scenario.twin and self._defines(kind, scenario.twin[name])):
            yield from self._mentions_in(place.module, {name}, place)  # the dispatch does not come here: only its own module may
        elif name.startswith("__") or name in scenario.twin or self._is_common(name) or _is_property(place.node):
            yield kind, NO_FLAGS, f"{short(place.module)}.{place.owner.name}"
        else:
            for module in _nearest_first(place.module, self.world.tree.mentions(name)):
                if not has_its_own(self.world, module, place):
                    yield from self._mentions_in(module, {name}, place)

    def _defines(self, kind: Kind, name: str) -> bool:
        return any(isinstance(node, ast.FunctionDef) and node.name == name for node in kind.node.body)

    def _is_common(self, name: str) -> bool:
        """Whether so many classes have a method of that name that a mention does not tell which is meant."""
        if name not in self._common:
            self._common[name] = self._count_is_common(name)
        return self._common[name]

    def _count_is_common(self, name: str) -> bool:
        pattern = re.compile(rf"^\s+(?:async )?def {re.escape(name)}\b", re.MULTILINE)
        count = 0
        for module in self.world.tree.mentions(name):
            text = self.world.tree.text(module)
            count += len(pattern.findall(text)) if f"def {name}" in text else 0
            if count >= _COMMON:
                return True
        return False

    def _references(self, target: Place | Kind) -> Iterator[Edge]:
        for other in _nearest_first(target.module, self.world.tree.mentions(target.node.name)):
            words = known_as(self.world, other, target.module, target.node.name, target.node)
            if words:
                yield from self._mentions_in(other, words, target)

    def _mentions_in(self, module: str, words: set[str], target: Node) -> Iterator[Edge]:
        """The places of a module that mention the target by one of the words (a method as an attribute or in a string) on a path that is reached."""
        world, attribute = self.world, isinstance(target, Slot) or (isinstance(target, Place) and target.owner is not None)
        any_of = "|".join(map(re.escape, words))
        pattern = re.compile(rf"(?:\.|[\"'])(?:{any_of})\b" if attribute else rf"\b(?:{any_of})\b")
        text = world.tree.text(module)
        lines = [text.count("\n", 0, match.start()) + 1 for match in pattern.finditer(text)]
        syntax = world.tree.syntax(module) if lines else None
        if syntax is None or world.names(module).fails:
            return
        here = [p for p in uses.places(self.world, module) if any(p.node.lineno < line <= (p.node.end_lineno or 0) for line in lines)]
        if any(all(not p.node.lineno < line <= (p.node.end_lineno or 0) for p in here) for line in lines):
            yield from at_the_top(self.world, module, syntax, words, lambda: self._of_other_devices)
        for place in here:
            record = uses.run(world, place)
            fails = {(use.symbol.rpartition(":")[2], use.line) for use in record.uses.values()}  # a use that fails leads nowhere
            seen = (
                [s for word in words for s in record.seen.get(word, ()) if (word, s.line) not in fails and means(world, s, target)] if place != target else []
            )
            if seen:
                best = min(seen, key=lambda s: len(s.flags))
                text = f"{short(module)}.{place.qualname}:{best.line}"
                yield self._kept_in(place, {s.line for s in seen}) or place, best.flags, text

    def _kept_in(self, place: Place, lines: set[int]) -> Slot | None:
        """The attribute that the function puts the target in, where that is all it does with it: whoever calls the attribute comes next."""
        found = [
            target.attr
            for node in statements(place.node.body)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, (ast.Name, ast.Attribute, ast.IfExp))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Attribute) and last_word(target.value) == "self" and lines <= set(range(node.lineno, (node.end_lineno or 0) + 1))
        ]
        few = place.owner is not None and len(found) == 1 and len(self.world.tree.mentions(found[0])) <= _MOST // 4
        return Slot(place.module, place.owner, found[0]) if few and place.owner is not None and self.way(place) is not None else None


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id in ("property", "cached_property") for d in node.decorator_list)


def _nearest_first(module: str, others: list[str]) -> list[str]:
    return sorted(others, key=lambda other: (other != module, other))
