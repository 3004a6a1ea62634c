"""The targets of cases/targets.toml: what torch and Triton would say of a device that is not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from harness import toml
from harness.errors import UsageError

FP8 = ("e4m3fn", "e4m3fnuz")
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
    return {name: _target(path, name, entry) for name, entry in toml.read(path).items()}


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
        raise UsageError(f"{path}: target {name!r} has an {toml.unknown_field(extra[0], known)}")
    for field in known.values():
        if field.name not in entry:
            if field.default is MISSING:
                raise UsageError(f"{path}: target {name!r} needs {field.name}")
        elif type(entry[field.name]) is not _TYPES[str(field.type)]:
            raise UsageError(f"{path}: target {name!r}: {field.name} is {entry[field.name]!r}, not of type {_TYPES[str(field.type)].__name__}")
    if bool(entry.get("hip")) == bool(entry.get("cuda")):
        raise UsageError(f"{path}: target {name!r} gives the version of hip or of cuda, exactly one")
    wrong = _wrong(name, entry)
    if wrong:
        raise UsageError(f"{path}: target {name!r}: {wrong}")
    facts: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Target(id=name, **facts)


def _wrong(name: str, entry: Mapping[str, Any]) -> str:
    """What cannot be in an entry whose fields are all there, in words; empty where nothing is."""
    hip, arch, capability = bool(entry.get("hip")), entry["arch"], entry["capability"]
    if len(capability) != 2 or any(type(part) is not int for part in capability):
        return f"capability is {capability!r}, not two numbers"
    if not entry["matrix"] or any(type(prefix) is not str for prefix in entry["matrix"]):
        return f"matrix is {entry['matrix']!r}, not the beginnings of instructions' names"
    small = [field for field in ("warp", "units", "shared_limit", "memory_gib") if entry[field] < 1]
    if small:
        return f"{small[0]} is {entry[small[0]]}, less than 1"
    if entry["fp8"] not in FP8:
        return f"fp8 is {entry['fp8']!r}; known: {', '.join(FP8)}"
    if name != (arch if hip else f"sm_{arch}") or not (hip or arch == "".join(map(str, capability))):
        return f"arch is {arch!r} and the capability {capability}; a target is called by what it is compiled for, as gfx950 or sm_90"
    if hip and entry.get("gcn", "").partition(":")[0] != arch:
        return f"gcn is {entry.get('gcn', '')!r}; ROCm's name of the device begins with {arch}"
    if entry["vendor"] != ("amd" if hip else "nvidia"):
        return f"vendor is {entry['vendor']!r}, the toolkit {'hip' if hip else 'cuda'}"
    return ""
