"""The reviewed facts of the scenarios and the configuration of a package, read from TOML and checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError, unknown

_PLATFORM = {"reference", "why", "none", "absent", "never", "twin", "answers", "values", "without", "device"}
_CONFIG = {"package", "scope", "all", "leave", "scenarios", "env_readers", "env_fields", "idioms", "flag", "reference", "registry", "library"}


@dataclass(frozen=True)
class Scenario:
    """A platform with AITER on or off; see the head of scenarios.toml for the fields."""

    name: str
    platform: str
    why: str
    reference: str
    env: Mapping[str, str]
    answers: Mapping[str, bool]
    values: Mapping[str, Any]
    absent: frozenset[str]
    never: frozenset[str]
    twin: Mapping[str, str]
    registered: Mapping[str, frozenset[str]]
    device: str = ""


@dataclass(frozen=True)
class ServerFlag:
    """A server flag: how a user gives it, by which attribute names the code reads it, and what it is by itself, a platform."""

    option: str
    names: tuple[str, ...]
    default: Mapping[str, tuple[Any, ...]]
    foreign: Mapping[str, tuple[Any, ...]]

    def told(self, value: object, platform: str) -> frozenset[str] | None:
        """What a user must give for the flag to have the value: nothing by itself, the option, or None: nobody has it there."""
        if value in self.default.get(platform, ()):
            return frozenset()
        return None if value in self.foreign.get(platform, ()) else frozenset({f"{self.option} {value}"})


@dataclass(frozen=True)
class Config:
    """How one package is read; see sglang.toml."""

    package: str
    scope: tuple[str, ...]
    all: tuple[str, ...]
    leave: tuple[str, ...]
    scenarios: tuple[str, ...]
    reference: bool = True
    registry: str = ""
    library: bool = False
    env_readers: Mapping[str, str] = field(default_factory=dict)
    env_fields: tuple[str, ...] = ()
    idioms: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, ServerFlag] = field(default_factory=dict)

    def flag_of(self, attribute: str) -> str | None:
        """The flag that an attribute of this name reads."""
        return next((name for name, flag in self.flags.items() if attribute in flag.names), None)

    def words(self, idiom: str) -> frozenset[str]:
        return frozenset(self.idioms.get(idiom, ()))


def load_scenarios(path: Path) -> dict[str, Scenario]:
    """The scenarios of a facts file by name. Raises UsageError naming file and place."""
    data = _toml(path)
    platforms = data.get("platform", {})
    found = {}
    for raw in data.get("scenario", []):
        name = raw.get("name", "?")
        facts = platforms.get(raw.get("platform"))
        if facts is None:
            raise UsageError(f"{path}: scenario {name!r} names no platform of the file (platform = {', '.join(sorted(platforms))})")
        odd = set(facts) - _PLATFORM
        if odd:
            raise UsageError(f"{path}: platform {raw['platform']!r} has an unknown field {sorted(odd)[0]!r}; known: {', '.join(sorted(_PLATFORM))}")
        values = {**facts.get("values", {}), **dict.fromkeys(facts.get("none", ()))}
        found[name] = Scenario(
            name=name,
            platform=raw["platform"],
            why=raw.get("why", ""),
            reference=facts.get("reference", ""),
            env=raw.get("env", {}),
            answers=facts.get("answers", {}),
            values=values,
            absent=frozenset(facts.get("absent", ())) | frozenset(raw.get("absent", ())),
            never=frozenset(facts.get("never", ())),
            twin=facts.get("twin", {}),
            registered={package: frozenset(lists["has"]) for package, lists in facts.get("without", {}).items()},
            device=facts.get("device", ""),
        )
    if not found:
        raise UsageError(f"{path} has no [[scenario]]")
    return found


def scenarios_of(platforms: list[str], scenarios: Mapping[str, Scenario], config: Config) -> list[Scenario]:
    """The scenarios that the names ask for: a name is a scenario or a platform; none asks for those of the configuration."""
    wanted = []
    for name in platforms or config.scenarios:
        here = [s for s in scenarios.values() if name in (s.name, s.platform)] if platforms else [scenarios[name]]
        if not here:
            raise unknown("scenario", name, {*scenarios, *(s.platform for s in scenarios.values())})
        wanted += [s for s in here if s not in wanted]
    return wanted


def load_config(path: Path) -> Config:
    """The configuration of one package. Raises UsageError naming file and field."""
    data = _toml(path)
    odd = set(data) - _CONFIG
    if odd or not data.get("package") or not data.get("scope"):
        raise UsageError(f"{path}: needs package and scope, and knows {', '.join(sorted(_CONFIG))}" + (f", not {sorted(odd)[0]}" if odd else ""))
    flags = {
        name: ServerFlag(raw["option"], tuple(raw["names"]), _tuples(raw["default"]), _tuples(raw.get("foreign", {})))
        for name, raw in data.get("flag", {}).items()
    }
    return Config(
        package=data["package"],
        scope=tuple(data["scope"]),
        all=tuple(data.get("all", data["scope"])),
        leave=tuple(data.get("leave", ())),
        scenarios=tuple(data.get("scenarios", ())),
        reference=data.get("reference", True),
        library=data.get("library", False),
        registry=data.get("registry", ""),
        env_readers=data.get("env_readers", {}),
        env_fields=tuple(data.get("env_fields", ())),
        idioms=data.get("idioms", {}),
        flags=flags,
    )


def _tuples(raw: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {platform: tuple(values) for platform, values in raw.items()}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
