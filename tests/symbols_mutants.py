"""Seeded mutants of a package's real sources for test_symbols.py: a binding taken from one platform, or a guard taken away.

The places are those that the scan calls reached: what it does not see at all is not drawn.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from harness.offline.symbols import uses
from harness.offline.symbols.calls import scope
from harness.offline.symbols.conditions import branch
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path
from harness.offline.symbols.scan import Scan
from harness.offline.symbols.tree import statements
from harness.offline.symbols.values import bad, usable


@dataclass(frozen=True)
class Mutant:
    """A changed text of one module, and the global and function in which the fault must be reported."""

    kind: str
    module: str
    text: str
    name: str
    function: str


def mutants(scan: Scan, modules: list[str], seed: int) -> Iterator[Mutant]:
    """Mutants in a random order, bindings for even seeds and guards for odd ones, in functions that the platform reaches by default."""
    draw = random.Random(seed)
    shuffled = list(modules)
    draw.shuffle(shuffled)
    for module in shuffled:
        if scan.world.names(module).fails or scan.tree.syntax(module) is None:
            continue
        found = list(_guards(scan, module) if seed % 2 else _bindings(scan, module))
        draw.shuffle(found)
        yield from found[:1]


def _reached(scan: Scan, place: uses.Place) -> bool:
    way = scan.callers.way(place)
    return way is not None and not way.flags


def _calls(place: uses.Place, name: str) -> bool:
    return name not in scope(place.node) and any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in ast.walk(place.node))


def _bindings(scan: Scan, module: str) -> Iterator[Mutant]:
    """An import at the top that the platform no longer makes, or that is None there."""
    text = scan.tree.text(module)
    lines = text.splitlines()
    syntax = scan.tree.syntax(module)
    assert syntax is not None
    for node in syntax.body:
        if not isinstance(node, ast.ImportFrom) or len(node.names) != 1 or node.module in (None, "__future__", "typing") or node.names[0].name == "*":
            continue
        name = node.names[0].asname or node.names[0].name
        for place in uses.places(scan.world, module):
            seen = uses.run(scan.world, place).seen.get(name) if _calls(place, name) else None
            if seen and not all(s.flags for s in seen) and _reached(scan, place):
                statement = "\n".join(lines[node.lineno - 1 : node.end_lineno]).strip()
                inner = statement.replace("\n", "\n    ")
                for tail in ("", f"\nelse:\n    {name} = None"):
                    changed = [*lines[: node.lineno - 1], f"if is_cuda():\n    {inner}{tail}", *lines[node.end_lineno or 0 :]]
                    where = next(
                        i
                        for i, line in enumerate(changed)
                        if not line.startswith(("from __future__", "#")) and line.startswith(("import ", "from ", "if is_cuda"))
                    )
                    yield Mutant(
                        "binding", module, "\n".join([*changed[:where], "from sglang.srt.utils import is_cuda", *changed[where:]]), name, place.qualname
                    )
                return


def _guards(scan: Scan, module: str) -> Iterator[Mutant]:
    """A test that keeps the platform from a name which fails there, replaced by one that always holds."""
    lines = scan.tree.text(module).splitlines()
    for place in uses.suspects(scan.world, module, scan.other):
        frame = Frame(scan.world, module, Path({}, NO_FLAGS), scope(place.node))
        for node in statements(place.node.body):
            if not isinstance(node, ast.If) or node.test.lineno != node.test.end_lineno:
                continue
            if branch(frame, node.test)[0] is not None:
                continue
            for use in (n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
                name = use.func.id  # type: ignore[attr-defined]
                if name in scope(place.node) or not bad(scan.world.lookup(module, name)):
                    continue
                if scan.other is None or not usable(scan.other.lookup(module, name)) or not _reached(scan, place):
                    continue
                line = lines[node.test.lineno - 1]
                changed = line[: node.test.col_offset] + "True" + line[node.test.end_col_offset :]
                yield Mutant("guard", module, "\n".join([*lines[: node.test.lineno - 1], changed, *lines[node.test.lineno :]]), name, place.qualname)
                return
