"""The tiny cells that mutants are run on: cells.txt, a cell id a line, chosen from the presets by `python -m harness.faults.mutants.cells`.

Chosen are, the quickest first, the cells that execute a line no quicker one does, or give a provider a value of an axis that it has
not had (of numbers the least, the greatest and one that is no power of two); of the tiniest also those that give it two such values
together for the first time.
What the ledger knows to deviate does not pass and is not taken.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.errors import UsageError
from harness.faults.mutants.server import Traced

LISTED = Path(__file__).with_name("cells.txt")
_QUICK = 0.8  # seconds of processor time, above which a cell is not taken
_TINY = 0.15  # below this the values of any two axes are shown together
_PRESETS = ("smoke",)


def cells() -> list[str]:
    """The ids of the cells, in order. Raises UsageError where the list cannot be read."""
    try:
        return [line for line in LISTED.read_text().splitlines() if line]
    except OSError as error:
        raise UsageError(f"cannot read the cells of the mutants, {LISTED}: {error}") from error


def candidates(libraries: Iterable[str]) -> list[str]:
    """The ids of the cells that the presets have for providers of the libraries and that can run on a CPU, beside those listed now."""
    from harness.contracts import ops
    from harness.providers import providers_of
    from harness.selection import DEFAULT_CASES, cell, preset_cases, standing

    found = dict.fromkeys(cells())
    for name in ops():
        for provider in providers_of(name):
            platform, status, _ = standing(provider, "cpu")
            if status or provider.library.name not in libraries:
                continue
            for case in [case for preset in _PRESETS for case in preset_cases(DEFAULT_CASES, preset, name)]:
                if not cell(provider, case, platform).status:
                    found[f"{name}[{provider.name}-{case.id}]"] = None
    return list(found)


def choose(traces: Iterable[Traced]) -> list[str]:
    """The cells that show something a quicker one does not."""
    from harness.selection import find_cell

    quick = sorted((t for t in traces if t.status == "pass" and t.seconds <= _QUICK), key=lambda trace: trace.seconds)
    found = {trace.cell: find_cell(trace.cell) for trace in quick}
    numbers: dict[object, set[float]] = {}
    for provider, case in found.values():
        for axis, value in case.point.items():
            if _numeric(value):
                numbers.setdefault((provider.op, provider.name, axis), set()).add(value)
    seen: set[object] = set()
    chosen = []
    for trace in quick:
        provider, case = found[trace.cell]
        shown: set[object] = {(file, line) for file, lines in trace.lines.items() for line in lines}
        every = [(provider.op, provider.name, axis, value) for axis, value in case.point.items()]
        told = [value for value in every if not _numeric(value[3]) or value[3] in (min(numbers[value[:3]]), max(numbers[value[:3]]))]
        shown.update(told)
        shown.update((*value[:3], "no power of two") for value in every if isinstance(value[3], int) and value[3] & (value[3] - 1))
        if trace.seconds < _TINY:
            shown.update(itertools.combinations(told, 2))
        if not shown <= seen:
            chosen.append(trace.cell)
            seen |= shown
    return sorted(chosen)


def _numeric(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def main() -> int:
    """Runs all candidates over two processes and writes the list anew."""
    from harness.faults.mutants.process import LIBRARIES, Server
    from harness.faults.mutants.runner import over

    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(contextlib.closing(Server())) for _ in range(2)]
        traces = over(servers, candidates(LIBRARIES), Server.trace)
    chosen = choose(traces)
    LISTED.write_text("\n".join(chosen) + "\n")
    took = {trace.cell: trace.seconds for trace in traces}
    print(f"{len(chosen)} of {len(traces)} cells, {sum(took[name] for name in chosen):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
