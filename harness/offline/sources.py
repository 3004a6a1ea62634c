"""Where the sources of a package lie: installed here, in a folder, or in a wheel of the package index that is never installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.+!-]+)")
# an index may hold wheels for other interpreters than this one; sources are read, never run, so any of them serves
_TAGS = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 17)] + ["--platform=manylinux2014_x86_64", "--platform=any"]
# of a wheel, the files kept: what is read, and the sources that a library compiles when it is used, since it may ask whether they are there
_KEPT = (".py", ".pyi", ".json", ".toml", ".cu", ".cuh", ".h", ".hpp", ".cpp", "METADATA", "RECORD")
_WHEELS = "wheels"  # of the cache folder; another name where more is kept of a wheel than before


@dataclass(frozen=True)
class Source:
    """The sources of one package: `root` is the folder that holds the import package `package`; `label` names them to a reader."""

    package: str
    version: str
    root: Path

    @property
    def label(self) -> str:
        """`sglang 0.5.23`, or the path where no version is known."""
        return f"{self.package} {self.version}" if self.version else str(self.root / self.package)


def find_source(spec: str, package: str = "sglang") -> Source:
    """The sources that `spec` names: `sglang` (installed here), `sglang==0.5.16` (from the package index, kept in a cache), or a path.

    A path is the package's folder, a folder that holds it (also as `python/<package>`), or a wheel. `package` is the import package to
    look for in a path. Raises UsageError, one line, where there is nothing of the kind.
    """
    pinned = _PINNED.fullmatch(spec)
    if pinned:
        name, version = pinned["name"], pinned["version"]
        import_name = name.replace("-", "_")
        installed = _installed(import_name)
        return installed if installed and installed.version == version else Source(import_name, version, _from_index(name, version))
    path = Path(spec)
    if os.sep not in spec and not path.exists():
        found = _installed(spec)
        if found is None:
            name = re.split(r"[^\w.-]", spec)[0] or package
            raise UsageError(f"{spec!r} is neither installed here nor a path; name a version to read it from the package index: {name}==VERSION")
        return found
    if path.suffix == ".whl" and path.is_file():
        return _wheel(path, package)
    inside = (path, path / "python")  # a checkout is often named as its package
    for root in (path.parent, *inside) if (path / "__init__.py").is_file() else (*inside, path.parent):
        if (root / package).is_dir() and (root != path.parent or path.name == package):
            return Source(package, "", root.resolve())
    raise UsageError(f"no package {package!r} in {spec!r}: give its folder, a checkout, a wheel, or {package}==VERSION")


def cache_folder() -> Path:
    """Where sources and other content-addressed results are kept: KERNEL_PARITY_CACHE, or kernel-parity in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("KERNEL_PARITY_CACHE") or Path(base) / "kernel-parity")


def _wheel(path: Path, package: str) -> Source:
    root = _unpacked(path)
    if not (root / package).is_dir():
        raise UsageError(f"no package {package!r} in the wheel {path}: give a wheel of {package}, or {package}==VERSION")
    return Source(package, path.name.split("-")[1] if path.name.count("-") >= 4 else "", root)


def _installed(package: str) -> Source | None:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        return None
    names = importlib.metadata.packages_distributions().get(package, [])
    version = importlib.metadata.version(names[0]) if names else ""
    return Source(package, version, Path(next(iter(spec.submodule_search_locations))).parent)


def _from_index(name: str, version: str) -> Path:
    kept = cache_folder() / _WHEELS / f"{name}-{version}"
    if kept.is_dir():
        return kept
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, f"{name}=={version}"]
        for tags in ([], ["--python-version=3.12", *_TAGS]):
            tried = subprocess.run([*command, *tags], capture_output=True, text=True)
            if tried.returncode == 0:
                return _unpacked(next(Path(folder).glob("*.whl")), kept)
    reason = (tried.stderr.strip().splitlines() or ["pip failed"])[-1]
    raise UsageError(f"cannot get {name}=={version} from the package index ({reason}); check the version and the network, or give a path")


def _unpacked(wheel: Path, target: Path | None = None) -> Path:
    """Unpacks the readable part of a wheel, whole or not at all."""
    stat = wheel.stat()
    target = target or cache_folder() / _WHEELS / f"{wheel.stem}-{stat.st_size}-{stat.st_mtime_ns}"
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=target.parent)
    except OSError as error:
        raise UsageError(f"cannot write to {target.parent}: {error.strerror}; give another folder in KERNEL_PARITY_CACHE") from error
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith(_KEPT)])
        os.rename(folder, target)
    except zipfile.BadZipFile:
        raise UsageError(f"{wheel} is not a wheel: it cannot be read as a zip file") from None
    except OSError as error:
        if not target.is_dir():  # another process may have unpacked it first
            raise UsageError(f"cannot unpack {wheel.name} to {target.parent}: {error.strerror}; give another folder in KERNEL_PARITY_CACHE") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target
