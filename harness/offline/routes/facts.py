"""cases/routes.toml: how SGLang knows the models, what is installed on a target, which backends are its fast path, which departures are known."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from harness.contracts.models import Model
from harness.errors import UsageError
from harness.offline.routes.dispatch import Served
from harness.offline.targets import Target

_SECTIONS = {"installed", "assumed", "answers", "fast", "models", "known"}
_MODEL = {"architecture", "model_type", "kind", "loader", "source"}


@dataclass(frozen=True)
class Known:
    """A reviewed departure: these models on these targets at these TPs are off the fast path with `backend`, in these versions of SGLang."""

    targets: tuple[str, ...]
    model: str
    tp: tuple[int, ...]
    backend: str
    why: str
    versions: str = ""
    link: str = ""
    place: str = ""


@dataclass(frozen=True)
class Facts:
    """The file, checked."""

    path: Path
    installed: Mapping[str, Mapping[str, bool]]
    absent: tuple[str, ...]
    none: tuple[str, ...]
    fast: Mapping[str, Mapping[str, Any]]
    models: Mapping[str, Mapping[str, str]]
    known: tuple[Known, ...] = field(default=())

    def served(self, model: Model) -> Served:
        """The model as SGLang knows it. Raises UsageError for a model without an architecture."""
        entry = self.models.get(model.name)
        if entry is None:
            raise UsageError(f"{self.path} has no [models.{model.name}]: say which architecture SGLang knows it by")
        return Served(model, entry["architecture"], entry["model_type"], entry.get("kind", model.kind), self.absent, entry.get("loader", ""))

    def fast_backends(self, target: Target, kind: str) -> list[str]:
        """The backends that are the fast path for that kind of attention on that target. Raises UsageError where none is given."""
        found = self.fast.get(target.id, {}).get(kind)
        if not found:
            raise UsageError(f"{self.path} names no fast path for {kind} attention on {target.id}: add it to [fast.{target.id}]")
        return list(found)


def load_facts(path: Path) -> Facts:
    """Reads the file. Raises UsageError, one line, for anything that is not as described at its head."""
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    extra, lacking = sorted(set(data) - _SECTIONS), sorted(_SECTIONS - set(data) - {"known"})
    if extra or lacking:
        raise UsageError(f"{path}: " + (f"unknown section {extra[0]!r}" if extra else f"the section {lacking[0]!r} is missing"))
    for name, entry in data["models"].items():
        if not isinstance(entry, dict) or set(entry) - _MODEL or {"architecture", "model_type", "source"} - set(entry):
            raise UsageError(f"{path}: [models.{name}] gives architecture, model_type and source, and may give kind and loader; nothing else")
    return Facts(
        path=path,
        installed=data["installed"],
        absent=tuple(data["assumed"].get("absent", ())),
        none=tuple(data["answers"].get("none", ())),
        fast=data["fast"],
        models=data["models"],
        known=tuple(_known(path, number, entry) for number, entry in enumerate(data.get("known", []), 1)),
    )


def _known(path: Path, number: int, entry: Any) -> Known:
    place = f"{path} known {number}"
    names = {part.name for part in fields(Known)} - {"place"}
    if not isinstance(entry, dict) or set(entry) - names or {"targets", "model", "tp", "backend", "why"} - set(entry):
        raise UsageError(f"{place}: gives targets, model, tp, backend and why, and may give versions and link; nothing else")
    lists = {name: tuple(entry[name]) if isinstance(entry[name], list) else (entry[name],) for name in ("targets", "tp")}
    try:
        SpecifierSet(entry.get("versions", ""))
    except InvalidSpecifier as error:
        raise UsageError(f"{place}: {error}") from error
    return Known(**{**entry, **lists, "place": place})
