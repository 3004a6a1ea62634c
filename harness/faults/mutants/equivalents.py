"""The reviewed list of mutants that cannot change a result, each with the reason why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import toml
from harness.errors import UsageError

LISTED = Path(__file__).with_name("equivalents.toml")


class Equivalents:
    """What is listed, with why. Raises UsageError for a broken file or a key listed twice.

    reasons   by mutant key, of `[[equivalent]]` tables with `keys` and `why`
    open      by `module:function`, of `[[open]]` tables with `functions` and `why`: functions whose values the op leaves open
              altogether, such as the mixing of a random number generator; no mutants of them are drawn
    """

    def __init__(self, path: Path = LISTED) -> None:
        data = toml.read(path, "the equivalent mutants")
        if unknown := sorted(set(data) - {"equivalent", "open"}):
            raise UsageError(f"{path}: holds [[equivalent]] and [[open]] tables alone, not {', '.join(unknown)}")
        self.reasons = _listed(path, data, "equivalent", "keys")
        self.open = _listed(path, data, "open", "functions")

    def unmatched(self, keys: Iterable[str]) -> list[str]:
        """What is listed and no mutant has for its key: the library has changed, or the entry is misspelt."""
        return sorted(self.reasons.keys() - set(keys))


def _listed(path: Path, data: dict[str, Any], kind: str, field: str) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for number, table in enumerate(data.get(kind, []), 1):
        place = f"{path} {kind} entry {number}"
        toml.check(place, table, {field: list[str], "why": str}, required=(field, "why"))
        for name in table[field]:
            if name in reasons:
                raise UsageError(f"{place}: {name!r} is listed twice")
            reasons[name] = table["why"]
    return reasons
