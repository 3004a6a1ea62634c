"""The targets of cases/targets.toml: what torch and Triton would say of a device that is not here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from harness.errors import UsageError

_TYPES: dict[str, type] = {"str": str, "int": int, "tuple[int, int]": list, "tuple[str, ...]": list}


@dataclass(frozen=True)
class Target:
    """One described device; sizes in bytes, `memory_gib` in GiB. The fields are explained at the head of the file."""

    id: str
    vendor: str
    name: str
    arch: str
    capability: tuple[int, int]
    warp: int
    units: int
    shared_limit: int
    memory_gib: int
    fp8: str
    matrix: tuple[str, ...]
    source: str
    hip: str = ""
    cuda: str = ""
    gcn: str = ""


def load_targets(path: Path) -> Mapping[str, Target]:
    """The targets of a targets.toml by id. Raises UsageError, one line, for an unreadable file, an unknown or a missing field."""
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    return {name: _target(path, name, entry) for name, entry in data.items()}


def choose(targets: Mapping[str, Target], names: tuple[str, ...]) -> list[Target]:
    """The targets of those names (each may be a comma list), all when there are none. Raises UsageError with the known names."""
    wanted = [part.strip() for name in names for part in name.split(",") if part.strip()]
    for name in wanted:
        if name not in targets:
            raise UsageError(f"unknown target {name!r}; targets.toml describes {', '.join(targets)}")
    return [targets[name] for name in dict.fromkeys(wanted or targets)]


def _target(path: Path, name: str, entry: Any) -> Target:
    known = {field.name: field for field in fields(Target) if field.name != "id"}
    if not isinstance(entry, dict):
        raise UsageError(f"{path}: target {name!r} is not a table; write [{name}]")
    extra = sorted(entry.keys() - known.keys())
    if extra:
        raise UsageError(f"{path}: target {name!r} has an unknown field {extra[0]!r}; known: {', '.join(known)}")
    for field in known.values():
        if field.name not in entry:
            if field.default is MISSING:
                raise UsageError(f"{path}: target {name!r} needs {field.name}")
        elif type(entry[field.name]) is not _TYPES[str(field.type)]:
            raise UsageError(f"{path}: target {name!r}: {field.name} is {entry[field.name]!r}, not of type {_TYPES[str(field.type)].__name__}")
    if bool(entry.get("hip")) == bool(entry.get("cuda")):
        raise UsageError(f"{path}: target {name!r} gives the version of hip or of cuda, exactly one")
    facts: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Target(id=name, **facts)
