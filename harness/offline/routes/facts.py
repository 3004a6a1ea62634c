"""cases/routes.toml: how SGLang knows the models, what is installed on a target, which backends are its fast path, which departures are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from harness import toml
from harness.contracts.models import Model
from harness.errors import UsageError
from harness.offline.routes.dispatch import Served
from harness.offline.targets import Target

_SECTIONS: dict[str, Any] = {
    "installed": dict[str, dict[str, bool]],
    "assumed": dict[str, list[str]],
    "answers": dict[str, list[str]],
    "fast": dict[str, dict[str, Any]],
    "models": dict[str, dict[str, str]],
    "known": list[dict[str, Any]],
}
_MODEL: dict[str, Any] = dict.fromkeys(("architecture", "model_type", "kind", "loader", "source"), str)
_KNOWN: dict[str, Any] = {"targets": list[str], "model": str, "tp": list[int], "backend": str, "why": str, "versions": str, "link": str}


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
    data = toml.read(path)
    toml.check(str(path), data, _SECTIONS, _SECTIONS.keys() - {"known"})
    toml.check(f"{path} [assumed]", data["assumed"], {"absent": list[str]})
    toml.check(f"{path} [answers]", data["answers"], {"none": list[str]})
    for name, entry in data["fast"].items():
        toml.check(f"{path} [fast.{name}]", entry, {**dict.fromkeys(entry, list[str]), "why": str})
    for name, entry in data["models"].items():
        toml.check(f"{path} [models.{name}]", entry, _MODEL, ("architecture", "model_type", "source"))
    return Facts(
        path=path,
        installed=data["installed"],
        absent=tuple(data["assumed"].get("absent", ())),
        none=tuple(data["answers"].get("none", ())),
        fast=data["fast"],
        models=data["models"],
        known=tuple(_known(path, number, entry) for number, entry in enumerate(data.get("known", []), 1)),
    )


def _known(path: Path, number: int, entry: Mapping[str, Any]) -> Known:
    place = f"{path} known {number}"
    lists = {name: entry[name] if isinstance(entry[name], list) else [entry[name]] for name in ("targets", "tp") if name in entry}
    entry = {**entry, **lists}
    toml.check(place, entry, _KNOWN, ("targets", "model", "tp", "backend", "why"))
    try:
        SpecifierSet(entry.get("versions", ""))
    except InvalidSpecifier as error:
        raise UsageError(f"{place}: {error}") from error
    return Known(**{**entry, "targets": tuple(entry["targets"]), "tp": tuple(entry["tp"]), "place": place})
