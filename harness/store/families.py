"""Families of device kernels, read from their reviewed file: which path a name belongs to."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from harness import toml
from harness.errors import UsageError
from harness.speed.names import plain_name

DOES = (
    "attention prefill",
    "attention decode",
    "attention merge",
    "attention metadata",
    "mla",
    "sparse attention",
    "kv cache",
    "sampling",
    "speculative",
    "other",
)
PATHS = ("fast", "generic", "either")
_FIELDS = {"does": str, "path": str, "platforms": list[str], "patterns": list[str], "source": str}


@dataclass(frozen=True)
class Family:
    """One way to do a thing; see the head of cases/kernels.toml for the words."""

    name: str
    does: str
    path: str
    platforms: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]


class Families:
    """All of a file."""

    def __init__(self, families: list[Family]) -> None:
        self.families = families
        self.of = functools.lru_cache(maxsize=1 << 16)(self._of)  # a trace says few names many times

    def _of(self, name: str) -> Family | None:
        """The family of a kernel by the name that a profiler shows, or None: unclassified. The pattern that takes most of the plain
        name decides, of equal ones the first."""
        plain = plain_name(name)
        best, length = None, -1
        for family in self.families:
            for pattern in family.patterns:
                found = pattern.search(plain)
                if found and len(found[0]) > length:
                    best, length = family, len(found[0])
        return best

    def fast_for(self, does: str, platform: str) -> list[Family]:
        """The fast families that do a thing on a platform."""
        return [family for family in self.families if family.does == does and family.path == "fast" and (not family.platforms or platform in family.platforms)]


def load_families(path: Path) -> Families:
    """Reads the file. Raises UsageError naming file, table and field for the first mistake."""
    families = []
    for name, table in toml.read(path, "the kernel families").items():
        place = f"{path} [{name}]"
        toml.check(place, table, _FIELDS, required=("does", "path", "patterns", "source"))
        for field, words in (("does", DOES), ("path", PATHS)):
            if table[field] not in words:
                raise UsageError(f"{place}: {field} is one of {', '.join(words)}, not {table[field]!r}")
        try:
            patterns = tuple(map(re.compile, table["patterns"]))
        except re.error as error:
            raise UsageError(f"{place}: pattern {error.pattern!r} is no regular expression: {error}") from error
        families.append(Family(name, table["does"], table["path"], tuple(table.get("platforms", ())), patterns))
    return Families(families)
