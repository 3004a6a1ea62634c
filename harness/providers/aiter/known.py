"""The facts of AITER that lie beside this module: which commit the installed sources are nearest to, and its gate tables."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "facts"
ARCHES = ("gfx942", "gfx950")

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a gate table says of one point: the kernel it leads to, or the place of the check that refuses it and what that does."""

    kernel: str = ""
    refused: str = ""
    aborts: bool = False


class Facts:
    """The facts of one commit."""

    def __init__(self, path: Path) -> None:
        self.data: Row = json.loads(path.read_text())
        self.label = self.data["version"] or self.data["commit"][:10]
        self._aborting = {row["file"] for row in self.data["native"].values() if row["refusal"] == "abort"}

    def parameters(self, place: str) -> list[Row]:
        """The parameters of `module:function`. Raises KeyError where this commit has no such function."""
        return list(self.data["functions"][place]["parameters"])

    def look(self, table: str, heads: int, queries: int = 0, **fixed: Any) -> Row | None:
        """The row of a gate table that holds the point, or None outside of the table's grid."""
        for row in self.data["tables"][table]:
            same = all(row.get(name) == value for name, value in fixed.items())
            if same and heads in span(row["heads"]) and (not queries or queries in span(row["queries"])):
                return dict(row)
        return None

    def outcome(self, table: str, heads: int, queries: int = 0, **fixed: Any) -> Outcome:
        """As `look`, in words; an empty outcome where the table does not say."""
        row = self.look(table, heads, queries, **fixed) or {}
        place = row.get("refused", "")
        return Outcome(row.get("kernel", ""), place, place.rpartition(":")[0] in self._aborting)

    def reduces(self, heads: int, dim: int) -> bool:
        """Whether `mla_reduce_v1` is built for so many heads of that value dimension."""
        return [heads, dim] in self.data["tables"]["mla_reduce"]


@functools.lru_cache(maxsize=512)
def span(text: str) -> frozenset[int]:
    """The numbers of `1-15,17`."""
    runs = (part.partition("-") for part in text.split(","))
    return frozenset(n for low, _, high in runs for n in range(int(low), int(high or low) + 1))


@functools.cache
def all_facts() -> tuple[Facts, ...]:
    """Every commit there are facts of, the oldest first."""
    return tuple(Facts(FOLDER / name) for name in ("v0.1.9.post1.json", "e4048607.json"))


@functools.cache
def facts_here() -> Facts:
    """The facts whose `mla_decode_fwd` has the installed one's parameters, read off the installed source; else the newest."""
    installed = importlib.util.find_spec("aiter")
    for place in installed.submodule_search_locations or () if installed else ():
        source = Path(place) / "mla.py"
        for node in ast.parse(source.read_text()).body if source.is_file() else ():
            if isinstance(node, ast.FunctionDef) and node.name == "mla_decode_fwd":
                names = [argument.arg for argument in node.args.args]
                for facts in all_facts():
                    if names == [row["name"] for row in facts.parameters("aiter.mla:mla_decode_fwd")]:
                        return facts
    return all_facts()[-1]
