"""Which mutants there are: every place of every function that the cells reach, and a fair draw from them."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.faults.mutants.planting import source_of
from harness.faults.mutants.server import Timed, Traced
from harness.faults.mutants.sites import Function, Mutant, functions, mutants

# parts of the paths of what chooses, registers and logs, and computes nothing
_AROUND = (
    "environ.py",
    "common.py",
    "runtime_context.py",
    "platforms/",
    "fused_op.py",
    "logging.py",
    "plugins/",
    "/lang/",
    "cake_kernels/",
    "__init__.py",
    "orchestrator.py",
    "/utils",
)
_CHOOSERS = (".execute", "._check")  # ends of the names of functions that do the same


@dataclass(frozen=True)
class Reaching:
    """A cell with the lines of a file that it executes."""

    timed: Timed
    lines: frozenset[int] = field(repr=False)


@dataclass(frozen=True)
class Target:
    """A function that some cells reach: its mutants, by whether a cell executes their statement.

    cells   the cells that execute a line of it and pass as they are, the quickest first; of a PyTorch function those that launch kernels too
    """

    name: str
    file: str
    kernel: bool
    reached: tuple[Mutant, ...] = field(repr=False)
    unreached: tuple[Mutant, ...] = field(repr=False)
    cells: tuple[Reaching, ...] = field(repr=False)

    def cells_of(self, mutant: Mutant) -> list[Timed]:
        """The cells that execute the mutant's statement, the quickest first."""
        first, last = mutant.statement
        return [cell.timed for cell in self.cells if any(first <= line <= last for line in cell.lines)]


def targets(traces: Iterable[Traced], libraries: Sequence[str]) -> list[Target]:
    """The kernels that the cells launch, and of cells that launch none the functions they call."""
    passing = sorted((trace for trace in traces if trace.status == "pass"), key=lambda trace: trace.seconds)
    files = sorted({file for trace in passing for file in trace.lines})
    known = {file: list(functions(source_of(file))) for file in files}
    launching = {trace.cell for trace in passing if any(f.kernel and _meets(f, trace.lines[file]) for file in trace.lines for f in known[file])}
    found = []
    for file in files:
        module = _module(file, libraries)
        for function in known[file]:
            cells = tuple(
                Reaching(Timed(trace.cell, trace.seconds), trace.lines[file])
                for trace in passing
                if file in trace.lines and _meets(function, trace.lines[file])
            )
            own = frozenset(cell for cell in cells if function.kernel or cell.timed.name not in launching)
            if own and (function.kernel or not (function.name.endswith(_CHOOSERS) or any(part in file for part in _AROUND))):
                beside = frozenset().union(*(trace.lines.get(file, frozenset()) for trace in passing))
                found.append(_target(function, module, file, cells, own, beside))
    return [target for target in found if target.reached]


def _target(function: Function, module: str, file: str, cells: tuple[Reaching, ...], own: frozenset[Reaching], beside: frozenset[int]) -> Target:
    """`own`: the cells that make it a target; `beside`: the lines that any cell executes. What only cells that launch kernels execute is
    the kernels' wrapper, and no target."""
    lines = frozenset().union(*(cell.lines for cell in own))
    every = mutants(source_of(file), module, file, function)
    every = [m for m in every if not any(line in beside - lines for line in range(m.statement[0], m.statement[1] + 1))]
    met = [any(line in lines for line in range(mutant.statement[0], mutant.statement[1] + 1)) for mutant in every]
    return Target(
        f"{module}:{function.name}",
        file,
        function.kernel,
        tuple(mutant for mutant, here in zip(every, met, strict=True) if here),
        tuple(mutant for mutant, here in zip(every, met, strict=True) if not here),
        cells,
    )


def _meets(function: Function, lines: Iterable[int]) -> bool:
    """Whether a line of the body is among those executed (the head is executed when the function is made)."""
    first, last = function.node.body[0].lineno, function.node.end_lineno or 0
    return any(first <= line <= last for line in lines)


def _module(file: str, libraries: Sequence[str]) -> str:
    for library in libraries:
        spec = importlib.util.find_spec(library)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if Path(file).is_relative_to(folder):
                inside = Path(file).relative_to(Path(folder).parent).with_suffix("")
                return ".".join(inside.parts).removesuffix(".__init__")
    return Path(file).stem


def draw(population: Mapping[str, Sequence[Mutant]], count: int | None, seed: int) -> list[Mutant]:
    """`count` mutants (None: all), spread evenly: the functions in turn, and of each its operators in turn."""
    random_ = random.Random(seed)
    decks = {name: _deck(population[name], random_) for name in sorted(population)}
    names = list(decks)
    random_.shuffle(names)
    drawn: list[Mutant] = []
    while any(decks.values()) and (count is None or len(drawn) < count):
        for name in names:
            if decks[name] and (count is None or len(drawn) < count):
                drawn.append(decks[name].pop())
    return drawn


def _deck(found: Sequence[Mutant], random_: random.Random) -> list[Mutant]:
    """The mutants of a function in the order in which they are drawn from the end: a random one of each operator in turn."""
    piles: dict[str, list[Mutant]] = {}
    for mutant in sorted(found, key=lambda mutant: mutant.key):
        piles.setdefault(mutant.operator, []).append(mutant)
    order = sorted(piles)
    random_.shuffle(order)
    for pile in piles.values():
        random_.shuffle(pile)
    deck = []
    while any(piles.values()):
        deck += [piles[name].pop() for name in order if piles[name]]
    return deck[::-1]
