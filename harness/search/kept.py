"""The failures of earlier runs, kept in a folder and tried first: hypothesis' database, holding cases by their ids, so that an entry
means the same after the strategies have changed."""

from __future__ import annotations

from pathlib import Path

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, InMemoryExampleDatabase

from harness.contracts import Case, op
from harness.errors import UsageError
from harness.providers import Provider


class Kept:
    """The kept failures; without a folder only those of this process."""

    def __init__(self, folder: Path | None) -> None:
        self._database: ExampleDatabase = InMemoryExampleDatabase() if folder is None else DirectoryBasedExampleDatabase(folder)

    def of(self, provider: Provider) -> list[tuple[Case, int]]:
        """The kept cases of a provider with their seeds, the shortest first; what is no case any more is dropped."""
        found = []
        for entry in sorted(self._database.fetch(_key(provider)), key=lambda entry: (len(entry), entry)):
            try:
                case_id, seed = entry.decode().split(" ")
                found.append((op(provider.op).axes.parse(case_id), int(seed)))
            except (ValueError, UsageError):
                self._database.delete(_key(provider), entry)
        return found

    def keep(self, provider: Provider, case: Case, seed: int) -> None:
        """Keeps a failure."""
        self._database.save(_key(provider), f"{case.id} {seed}".encode())

    def drop(self, provider: Provider, case: Case, seed: int) -> None:
        """Forgets a failure that is none any more."""
        self._database.delete(_key(provider), f"{case.id} {seed}".encode())


def _key(provider: Provider) -> bytes:
    return f"{provider.op}[{provider.name}]".encode()
