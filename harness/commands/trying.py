"""One cell under one version of a library, in a process of its own: `run --cell` with that version at the front of PYTHONPATH. What ran is
kept, so that a bisect that was broken off goes on from it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.errors import UsageError
from harness.machine.platforms import worker_environment
from harness.offline.codegen.keeping import digest_of
from harness.offline.versions import Index, Untestable
from harness.providers import LIBRARIES, versions
from harness.selection import Cell
from harness.session import Session
from harness.store.files import write_whole
from harness.store.results import Result, encode, read

_HARNESS = Path(harness.__file__).resolve().parent
_STAND_IN = "harness.commands.stand_in"
_ABSENT = re.compile(r"[Nn]o module (?:named )?'?([\w.]+)'?")
_NOT_HERE = ("absent", "unsupported", "error")
_UNCALLED = ("missing", "crash", "refused")  # of which the reason may be that the package does not import here


@dataclass(frozen=True)
class Trial:
    """How a cell is run: `options` of `kernel-parity run` beyond the cell and where the result goes."""

    cell: Cell
    index: Index
    machine: str
    seed: int = 0
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    fresh: bool = False

    def result(self, version: str) -> tuple[Result, bool]:
        """The cell's result under that version, and whether it was kept from an earlier bisect. Raises Untestable where the version cannot
        be installed, does not import here, or leaves the cell without a verdict."""
        path = self._kept / f"{version}.jsonl"
        found = None if self.fresh else self._stands(path)
        kept = found is not None
        if found is None:
            found = self._run(version, self.index.install(version))
            write_whole(path, encode(found) + b"\n")
        if found.status in _NOT_HERE:
            raise Untestable(f"{found.status}: {(found.detail or found.reason).splitlines()[0][:300]}")
        if found.status in _UNCALLED:
            self._imports(version, found)
        return found, kept

    @functools.cached_property
    def module(self) -> str:
        """The import package of the distribution whose versions are tried."""
        named = {library.distribution: library.module for library in (*LIBRARIES.values(), self.cell.provider.library)}
        return named.get(self.index.package, self.index.package.replace("-", "_"))

    @functools.cached_property
    def _kept(self) -> Path:
        """The folder of the results of this cell, run so, by this harness."""
        contents = [digest_of(Path(name)) if name.endswith(".py") and Path(name).is_file() else name for name in self.plugins]
        said = [self.cell.id, self.index.package, self.machine, str(self.seed), *contents, *self.options, digest_of(_HARNESS)]
        return self.index.root / "results" / hashlib.blake2b("\0".join(said).encode(), digest_size=12).hexdigest()

    def _stands(self, path: Path) -> Result | None:
        """A kept result, if everything but the version that is tried was then as it is now."""
        try:
            (found,) = read(path)
        except (UsageError, ValueError):  # none, or a torn file
            return None
        others = {name: version for name, version in versions().items() if name != self._library}
        same = {name: version for name, version in found.versions.items() if name != self._library} == others
        return found if same and found.device == self._device else None

    @functools.cached_property
    def _device(self) -> dict[str, str]:
        with Session(self.machine) as session:
            return session.hello()[0]

    @functools.cached_property
    def _library(self) -> str:
        """The name by which results speak of the package; empty where they do not."""
        return next((name for name, library in LIBRARIES.items() if library.distribution == self.index.package), "")

    def _environment(self, installed: Path) -> dict[str, str]:
        given = os.environ.get("PYTHONPATH")
        path = os.pathsep.join(filter(None, [str(installed), str(_HARNESS.parent), given]))
        # without the folder it is typed in, which may hold another copy of the package
        return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}

    def _run(self, version: str, installed: Path) -> Result:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.jsonl"
            command = [sys.executable, "-m", "harness", "run", "--cell", self.cell.id, "--ledger", "none", "--json", "--workers=1", f"--results={path}"]
            command += [f"--platform={self.machine}", f"--seed={self.seed}", *(f"--plugin={name}" for name in (*self.plugins, _STAND_IN)), *self.options]
            done = subprocess.run(command, capture_output=True, text=True, env=self._environment(installed), stdin=subprocess.DEVNULL)
            rows = list(read(path)) if path.is_file() else []
        if not rows or done.returncode not in (0, 1):
            raise Untestable((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300])
        ran = rows[-1].versions.get(self._library, version)
        if self._library and ran != version:
            raise Untestable(f"what ran was {self.index.package} {ran or 'of no version'}, not this one")
        return rows[-1]

    def _imports(self, version: str, found: Result) -> None:
        """Raises Untestable where what the cell ended with says only that something else is not installed here."""
        absent = _foreign(found.detail, self.module)
        if not absent:
            code = f"import {_STAND_IN}, {self.module}"
            environment = {**self._environment(self.index.install(version)), **worker_environment(self.machine)}
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
            said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            absent = _foreign(said, self.module) if done.returncode else ""
            if done.returncode and not absent:
                raise Untestable(f"{self.module} does not import here: {said[:300]}")
        if absent:
            raise Untestable(f"needs {absent}, which is not installed here")


def _foreign(said: str, module: str) -> str:
    """The module that was not found and is no part of the package, or an empty string."""
    return next((name for name in _ABSENT.findall(said) if name.partition(".")[0] != module), "")


def timing_options(against: str, runs: int) -> Sequence[str]:
    """What `run` is told besides, so that its result holds what is compared."""
    return {"status": (), "kernels": ("--timing", "--runs=1"), "time": ("--timing", f"--runs={runs}")}[against]
