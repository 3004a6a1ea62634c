"""Modules whose import fails in a scenario: those that import an absent package at their top, and those that import one of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from harness.offline.symbols.world import World

# an import statement that begins a line: no test, no handler and no function is around it
_PLAIN = re.compile(r"^(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w., \t]+))", re.MULTILINE)


class Stop(NamedTuple):
    """The import that stops a module: its line, and the absent package or the stopped module that it names."""

    line: int
    target: str


class Stops:
    """The modules of a world that cannot be imported."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._loads: dict[str, dict[str, int]] = {}
        absent = "|".join(map(re.escape, sorted(world.scenario.absent))) or "$."
        self._needs = re.compile(rf"^(?:import|from)[ \t]+((?:{absent})\b[\w.]*)", re.MULTILINE)
        self._may_need = re.compile(
            rf"^(?:if|elif|else|try|except|finally|with)\b[^\n]*\n(?:(?:[ \t][^\n]*)?\n)*?[ \t]+(?:import|from)[ \t]+(?:{absent})\b", re.MULTILINE
        )

    @cached_property
    def plain(self) -> dict[str, Stop]:
        """Those that text alone tells: the failing imports begin their lines."""
        tree, found = self.world.tree, {}
        for module in self._modules():
            match = self._needs.search(tree.text(module))
            if match is not None:
                found[module] = Stop(_line(tree.text(module), match), match[1])
        return self._with_importers(found)

    @cached_property
    def all(self) -> dict[str, Stop]:
        """Those too whose import under a test, or in a handler, is reached."""
        found = dict(self.plain)
        for module in self._modules():
            if module not in found and self._may_need.search(self.world.tree.text(module)) and self.world.names(module).fails == "ImportError":
                failed = [use for use in self.world.names(module).record.uses.values() if use.failure == "ImportError" and not use.caught]
                if failed:
                    found[module] = Stop(min(failed).line, min(failed).symbol)
        return self._with_importers(found)

    def origin(self, module: str) -> tuple[str, tuple[str, ...]]:
        """The module whose own import of an absent package stops this one, and the modules from this one to it."""
        chain = [module]
        while (target := self.all[chain[-1]].target) in self.all and target not in chain:
            chain.append(target)
        return chain[-1], tuple(".".join(name.split(".")[-2:]) for name in chain[:-1])

    def _modules(self) -> Iterator[str]:
        """Those with the name of an absent package, in order; the index knows no names under three letters."""
        tree = self.world.tree
        named = {module for package in self.world.scenario.absent for module in (tree.mentions(package) if len(package) > 2 else tree.paths)}
        return (module for module in tree.paths if module in named and not tree.left_out(module))

    def _with_importers(self, found: dict[str, Stop]) -> dict[str, Stop]:
        todo = list(found)
        while todo:
            module = todo.pop()
            for other, stop in self._importers(module):
                if other not in found:
                    found[other] = stop
                    todo.append(other)
        return found

    def _importers(self, module: str) -> Iterator[tuple[str, Stop]]:
        tree = self.world.tree
        if tree.is_package(module):
            yield from ((inner, Stop(1, module)) for inner in tree.within([module]) if inner != module)
        for other in tree.mentions(module.rpartition(".")[2]):
            line = self._plainly_loads(other).get(module)
            if line is not None:
                yield other, Stop(line, module)

    def _plainly_loads(self, module: str) -> dict[str, int]:
        """The modules that plain imports of a module load, with their lines."""
        if module not in self._loads:
            text = self.world.tree.text(module)
            self._loads[module] = {loaded: _line(text, match) for match in _PLAIN.finditer(text) for loaded in self._loaded(module, match)}
        return self._loads[module]

    def _loaded(self, module: str, match: re.Match[str]) -> Iterable[str]:
        """The modules of the package that an import statement loads, their folders apart."""
        if match[3]:
            return [part.split()[0] for part in match[3].split(",") if part.split()]
        tree, level = self.world.tree, len(match[1]) - len(match[1].lstrip("."))
        source = tree.absolute(module, match[1].lstrip(".") or None, level)
        names = [part.split()[0] for part in match[2].strip("()").split(",") if part.split()]
        return [source, *(f"{source}.{name}" for name in names if tree.is_package(source) and not re.search(rf"\b{re.escape(name)}\b", tree.text(source)))]


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1
