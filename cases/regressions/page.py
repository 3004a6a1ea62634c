"""Writes the table of docs/bugs.md from the rows beside this file and from the planted faults: `python cases/regressions/page.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import regressions
from harness.faults import FAULTS
from harness.store.files import write_whole

CASES = Path(__file__).resolve().parent.parent
PAGE = CASES.parent / "docs" / "bugs.md"
BEGIN, END = "<!-- from cases/regressions: python cases/regressions/page.py -->\n", "<!-- end -->\n"
TITLES = {
    "missing": "Missing ops and kernels",
    "slow": "Silent slow paths",
    "numerics": "Wrong numbers",
    "sampler": "Wrong tokens",
    "crash": "Crashes, hangs, faults",
    "version": "Slower between versions",
}


def planted(bug: regressions.Bug) -> list[str]:
    """The planted faults that stand for a bug, by name without `fault_`."""
    return [name.removeprefix("fault_") for name, fault in FAULTS.items() if not named(getattr(fault, "bug", "")).isdisjoint(bug.names)]


def named(said: str | tuple[str, ...]) -> set[str]:
    """The bug ids that a fault gives, as text with commas or as a tuple."""
    return {part.strip() for part in (said.split(",") if isinstance(said, str) else said)}


def cases(bug: regressions.Bug) -> str:
    """The smallest case, and how many more there are of each size."""
    every = [case for listed in bug.cases.values() for case in listed]
    if not every:
        return "none"
    counts = ", ".join(f"{len(listed)} {size}" for size, listed in bug.cases.items())
    return f"`{every[0].op}[{every[0].id}]` ({counts})"


def table() -> str:
    """The page's tables, one a class, as Markdown."""
    lines: list[str] = []
    for kind, title in TITLES.items():
        lines += [f"### {title}", "", "| bug | was wrong | cases | planted faults | check | not judged here |", "| --- | --- | --- | --- | --- | --- |"]
        for bug in regressions.bugs(CASES):
            if bug.kind == kind:
                also = f" ({', '.join(bug.also)})" if bug.also else ""
                faults = ", ".join(f"`{name}`" for name in planted(bug))
                lines.append(f"| [{bug.id}]({bug.link}){also} | {bug.wrong} | {cases(bug)} | {faults} | {', '.join(bug.check)} | {bug.left} |")
        lines.append("")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with its tables as they are now."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    write_whole(PAGE, written(PAGE.read_text()))
    sys.exit(0)
