"""Versions of a package on an index, each installed in a folder of its own, without what it depends on, and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.errors import UsageError, nearest
from harness.offline.sources import cache_folder
from harness.store.files import write_whole

_LISTED = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_UNREACHABLE = re.compile(r"establish a new connection|connection broken|max retries|timed out|could not fetch url|name resolution", re.IGNORECASE)
_FULL = "No space left on device"


class Untestable(Exception):
    """A version that cannot be tried here; the message says why."""


@dataclass(frozen=True)
class Index:
    """Where versions of a package come from: pip's own index, as it is configured, another one (`url`), or a folder of wheels alone."""

    package: str
    url: str = ""
    folder: str = ""

    @property
    def root(self) -> Path:
        """The folder of the cache for this index and this Python."""
        said = "\0".join([self.url, str(Path(self.folder).resolve()) if self.folder else "", platform.machine(), *map(str, sys.version_info[:2])])
        return cache_folder() / "bisect" / hashlib.blake2b(said.encode(), digest_size=6).hexdigest()

    def between(self, one: str, other: str) -> list[str]:
        """The versions from one to the other, both among them, oldest first. Raises UsageError where one of them is not on the index."""
        ends = [_version(text) for text in (one, other)]
        known = self._listed(pre=any(end.is_prerelease for end in ends))
        for text, end in zip((one, other), ends, strict=True):
            if end not in known:
                listed = ", ".join(nearest(text, map(str, known.values())))
                raise UsageError(f"{self.package} {text} is not on the index for this Python; nearest: {listed}")
        low, high = sorted(ends)
        return [known[version] for version in sorted(known) if low <= version <= high]

    def _listed(self, *, pre: bool) -> dict[Version, str]:
        """Every version by its order; what was listed last time where the index cannot be reached."""
        command = ["index", "versions", self.package, "--retries=1", *self._options(), *(["--pre"] if pre else [])]
        done = _pip(command)
        kept = self.root / f"{self.package}-versions{'-pre' if pre else ''}.txt"
        found = _LISTED.search(done.stdout)
        if found:
            write_whole(kept, found[1] + "\n")
        elif not kept.is_file():
            reason = "it cannot be reached" if _UNREACHABLE.search(done.stderr) else _last(done.stderr)
            raise UsageError(f"the package index lists no version of {self.package} ({reason}); check the name, the network and --index or --find-links")
        texts = kept.read_text().strip().split(", ")
        return {Version(text): text for text in texts}

    def install(self, version: str) -> Path:
        """The folder with that version, for the front of PYTHONPATH. Raises Untestable where pip cannot install it."""
        target = self.root / "installed" / f"{self.package}-{version}"
        if target.is_dir():
            return target
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=".", dir=target.parent)
        except OSError as error:
            raise UsageError(f"cannot write to {target.parent}: {error.strerror}; give another folder in KERNEL_PARITY_CACHE") from error
        try:
            done = _pip(["install", "--quiet", "--no-deps", f"--target={folder}", *self._options(), f"{self.package}=={version}"])
            if done.returncode:
                self._not_installed(version, done.stderr)
            os.rename(folder, target)
        except OSError as error:
            if not target.is_dir():  # another process may have been first
                raise UsageError(f"cannot install to {target.parent}: {error.strerror}; give another folder in KERNEL_PARITY_CACHE") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return target

    def _not_installed(self, version: str, said: str) -> None:
        if _FULL in said:
            raise UsageError(f"cannot install {self.package} {version}: {_FULL}; make room, or give another folder in KERNEL_PARITY_CACHE")
        if _UNREACHABLE.search(said):
            raise UsageError(f"cannot get {self.package} {version}: the package index cannot be reached; run it again to go on from here")
        raise Untestable(f"cannot be installed: {_last(said)}")

    def _options(self) -> list[str]:
        if self.folder:
            return ["--isolated", "--no-index", f"--find-links={self.folder}"]  # else pip's own settings may name further folders
        return [f"--index-url={self.url}"] if self.url else []


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(f"{text!r} is no version; give one such as 0.5.16") from None


def _pip(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _last(said: str) -> str:
    """The last line that is no warning."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1].removeprefix("ERROR: ")[:300] if lines else "pip failed"
