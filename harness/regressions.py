"""Public bugs, each with the smallest cases that show it: `cases/regressions/*.toml`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import toml
from harness.contracts import Case, op
from harness.errors import UsageError

# preset -> the sizes of the cases that it takes in
SIZES = {"regressions": ("small",), "smoke": ("small",), "pr": ("small", "real"), "nightly": ("small", "real", "large")}
CLASSES = ("missing", "slow", "numerics", "sampler", "crash", "version")
_BUG = {"id": str, "also": list[str], "link": str, "kind": str, "wrong": str, "right": str, "check": list[str], "left": str, "case": list[dict[str, Any]]}
_CASE = {"op": str, "size": str, "axes": dict[str, Any]}


@dataclass(frozen=True)
class Bug:
    """A public bug.

    also   other threads of the same bug; kind one of CLASSES; wrong, right what was seen and what belongs there
    check  what catches it here; left what of it cannot be judged here, and why
    cases  size -> its cases
    """

    id: str
    link: str
    kind: str
    wrong: str
    right: str
    check: tuple[str, ...]
    also: tuple[str, ...]
    left: str
    cases: dict[str, tuple[Case, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of all its threads."""
        return (self.id, *self.also)


@functools.lru_cache(maxsize=8)
def bugs(folder: Path) -> tuple[Bug, ...]:
    """Every bug of a cases folder, in order of the files; none without regressions/. Raises UsageError for a broken file."""
    return tuple(itertools.chain.from_iterable(_read(path) for path in sorted((folder / "regressions").glob("*.toml"))))


def preset_of(folder: Path, preset: str, op_name: str) -> list[str]:
    """Case ids of an op that the regressions add to a preset."""
    sizes = SIZES.get(preset, ())
    return [case.id for bug in bugs(folder) for size in sizes for case in bug.cases.get(size, ()) if case.op == op_name]


def notes(folder: Path, op_name: str, case_id: str) -> list[str]:
    """The bugs that a case is kept for, in words."""
    kept = [bug for bug in bugs(folder) if any((case.op, case.id) == (op_name, case_id) for cases in bug.cases.values() for case in cases)]
    return [f"kept for {bug.id}: {bug.wrong} ({bug.link})" for bug in kept]


def _read(path: Path) -> Iterator[Bug]:
    tables = toml.read(path)
    toml.check(str(path), tables, {"bug": list[dict[str, Any]]}, ("bug",))
    for number, table in enumerate(tables["bug"], 1):
        place = f"{path} bug {number} ({table.get('id', 'no id')})"
        toml.check(place, table, _BUG, ("id", "link", "kind", "wrong", "right"))
        if table["kind"] not in CLASSES:
            raise UsageError(f"{place}: kind is one of {', '.join(CLASSES)}, not {table['kind']!r}")
        if not (table.get("case") and table.get("check")) and not table.get("left"):
            raise UsageError(f"{place}: needs a case and its check, or `left`: what cannot be judged and why")
        yield Bug(
            **{name: table[name] for name in ("id", "link", "kind", "wrong", "right")},
            check=tuple(table.get("check", ())),
            also=tuple(table.get("also", ())),
            left=table.get("left", ""),
            cases=_cases(place, table.get("case", [])),
        )


def _cases(place: str, rows: list[dict[str, Any]]) -> dict[str, tuple[Case, ...]]:
    """size -> cases: every combination of the axes' values, a list standing for each of its own."""
    found: dict[str, list[Case]] = {}
    for row in rows:
        toml.check(place, row, _CASE, ("op", "axes"))
        size = row.get("size", "small")
        if size not in SIZES["nightly"]:
            raise UsageError(f"{place}: size is one of {', '.join(SIZES['nightly'])}, not {size!r}")
        lists = [values if isinstance(values, list) else [values] for values in row["axes"].values()]
        try:
            found.setdefault(size, []).extend(op(row["op"]).axes.case(**dict(zip(row["axes"], values, strict=True))) for values in itertools.product(*lists))
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
    return {size: tuple(cases) for size, cases in found.items()}
