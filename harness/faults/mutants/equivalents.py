"""The reviewed list of mutants that cannot change a result, each with the reason why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness import toml
from harness.errors import UsageError

LISTED = Path(__file__).with_name("equivalents.toml")


class Equivalents:
    """Mutant keys and reasons, of `[[equivalent]]` tables with `keys` and `why`. Raises UsageError for a broken file or a key listed twice."""

    def __init__(self, path: Path = LISTED) -> None:
        data = toml.read(path, "the equivalent mutants")
        if set(data) - {"equivalent"}:
            raise UsageError(f"{path}: holds [[equivalent]] tables alone, not {', '.join(sorted(set(data) - {'equivalent'}))}")
        self.reasons: dict[str, str] = {}
        for number, table in enumerate(data.get("equivalent", []), 1):
            toml.check(f"{path} entry {number}", table, {"keys": list[str], "why": str}, required=("keys", "why"))
            for key in table["keys"]:
                if key in self.reasons:
                    raise UsageError(f"{path} entry {number}: {key!r} is listed twice")
                self.reasons[key] = table["why"]

    def unmatched(self, keys: Iterable[str]) -> list[str]:
        """What is listed and no mutant has for its key: the library has changed, or the entry is misspelt."""
        return sorted(self.reasons.keys() - set(keys))
