"""The reviewed facts of the scenarios and the configuration of a package, read from TOML and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import toml
from harness.errors import UsageError, nearest, unknown

_FACTS: dict[str, Any] = {"platform": dict[str, dict[str, Any]], "scenario": list[dict[str, Any]]}
_SCENARIO: dict[str, Any] = {"name": str, "platform": str, "why": str, "env": dict[str, str], "absent": list[str]}
_PLATFORM: dict[str, Any] = {
    "reference": str,
    "device": str,
    "why": str,
    "none": list[str],
    "absent": list[str],
    "never": list[str],
    "twin": dict[str, str],
    "answers": dict[str, bool],
    "values": dict[str, Any],
    "sets": dict[str, str],
    "without": dict[str, dict[str, Any]],
}
_CONFIG: dict[str, Any] = {
    "package": str,
    "scope": list[str],
    "all": list[str],
    "leave": list[str],
    "scenarios": list[str],
    "reference": bool,
    "library": bool,
    "registry": str,
    "loaded": list[str],
    "env_readers": dict[str, str],
    "env_fields": list[str],
    "idioms": dict[str, Any],
    "flag": dict[str, dict[str, Any]],
}
_IDIOMS: dict[str, Any] = {
    **dict.fromkeys(("lazy_import", "greedy", "draws", "version_checks", "arguments"), list[str]),
    "registries": dict[str, str],
}
_FLAG: dict[str, Any] = {"option": str, "names": list[str], "classes": list[str], "default": dict[str, list[Any]], "foreign": dict[str, list[Any]]}


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
    """A server flag: how a user gives it, by which attribute names the code reads it, and what it is by itself, a platform.

    classes    enumerations whose members are the flag's values, by value or by name
    """

    option: str
    names: tuple[str, ...]
    default: Mapping[str, tuple[Any, ...]]
    foreign: Mapping[str, tuple[Any, ...]]
    classes: tuple[str, ...] = ()

    @property
    def values(self) -> list[Any]:
        """All values that the facts name."""
        return [value for lists in (self.default, self.foreign) for values in lists.values() for value in values]

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off and nothing else."""
        return all(isinstance(value, bool) for value in self.values)

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
    loaded: tuple[str, ...] = ()
    library: bool = False
    env_readers: Mapping[str, str] = field(default_factory=dict)
    env_fields: tuple[str, ...] = ()
    idioms: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, ServerFlag] = field(default_factory=dict)
    place: str = ""

    def flag_of(self, attribute: str) -> str | None:
        """The flag that an attribute of this name reads."""
        return next((name for name, flag in self.flags.items() if attribute in flag.names), None)

    def flag_of_class(self, name: str) -> str | None:
        """The flag whose values are the members of an enumeration."""
        return next((flag for flag, facts in self.flags.items() if name in facts.classes), None)

    def words(self, idiom: str) -> frozenset[str]:
        return frozenset(self.idioms.get(idiom, ()))


def load_scenarios(path: Path) -> dict[str, Scenario]:
    """The scenarios of a facts file by name. Raises UsageError naming file, table and field."""
    data = toml.read(path)
    toml.check(str(path), data, _FACTS)
    platforms = data.get("platform", {})
    for platform, facts in platforms.items():
        toml.check(f"{path} [platform.{platform}]", facts, _PLATFORM)
        for package, lists in facts.get("without", {}).items():
            toml.check(f"{path} [platform.{platform}.without.{package}]", lists, {"has": list[str]}, ("has",))
    found: dict[str, Scenario] = {}
    for number, raw in enumerate(data.get("scenario", []), 1):
        place = f"{path} [[scenario]] {number} ({raw.get('name', '?')})"
        toml.check(place, raw, _SCENARIO, ("name", "platform"))
        if raw["platform"] not in platforms:
            raise UsageError(f"{place} names no platform of the file (platform = {', '.join(sorted(platforms))})")
        if raw["name"] in found:
            raise UsageError(f"{place}: there is one of that name before it")
        found[raw["name"]] = _scenario(raw, platforms[raw["platform"]])
    if not found:
        raise UsageError(f"{path} has no [[scenario]]")
    for scenario in found.values():
        if scenario.reference and scenario.reference not in found:
            near = ", ".join(nearest(scenario.reference, found))
            raise UsageError(f"{path} [platform.{scenario.platform}]: reference names no scenario {scenario.reference!r}; nearest: {near}")
    return found


def _scenario(raw: Mapping[str, Any], facts: Mapping[str, Any]) -> Scenario:
    return Scenario(
        name=raw["name"],
        platform=raw["platform"],
        why=raw.get("why", ""),
        reference=facts.get("reference", ""),
        env={**facts.get("sets", {}), **raw.get("env", {})},
        answers=facts.get("answers", {}),
        values={**facts.get("values", {}), **dict.fromkeys(facts.get("none", ()))},
        absent=frozenset(facts.get("absent", ())) | frozenset(raw.get("absent", ())),
        never=frozenset(facts.get("never", ())),
        twin=facts.get("twin", {}),
        registered={package: frozenset(lists["has"]) for package, lists in facts.get("without", {}).items()},
        device=facts.get("device", ""),
    )


def scenarios_of(platforms: list[str], scenarios: Mapping[str, Scenario], config: Config) -> list[Scenario]:
    """The scenarios that the names ask for: a name is a scenario or a platform; none asks for those of the configuration.

    Raises UsageError for an unknown name, and for one in the configuration itself.
    """
    for name in config.scenarios:
        if name not in scenarios:
            raise UsageError(f"{config.place}: scenarios names no scenario {name!r}; nearest: {', '.join(nearest(name, scenarios))}")
    known = {scenario.platform for scenario in scenarios.values()}
    for name, flag in config.flags.items():
        for platform in (p for p in (*flag.default, *flag.foreign) if p not in known):
            raise UsageError(f"{config.place} [flag.{name}]: no platform {platform!r}; nearest: {', '.join(nearest(platform, known))}")
    wanted: list[Scenario] = []
    for name in platforms or config.scenarios:
        here = [s for s in scenarios.values() if name in (s.name, s.platform)] if platforms else [scenarios[name]]
        if not here:
            raise unknown("scenario", name, {*scenarios, *known})
        wanted += [s for s in here if s not in wanted]
    return wanted


def load_config(path: Path) -> Config:
    """The configuration of one package. Raises UsageError naming file and field."""
    data = toml.read(path)
    toml.check(str(path), data, _CONFIG, ("package", "scope"))
    toml.check(f"{path} [idioms]", data.get("idioms", {}), _IDIOMS)
    for name, raw in data.get("flag", {}).items():
        toml.check(f"{path} [flag.{name}]", raw, _FLAG, ("option", "default"))
    for flag in data.get("idioms", {}).get("registries", {}).values():
        if flag not in data.get("flag", {}):
            raise UsageError(f"{path} [idioms]: registries names no flag {flag!r}; nearest: {', '.join(nearest(flag, data.get('flag', {}))) or 'none'}")
    flags = {
        name: ServerFlag(raw["option"], tuple(raw.get("names", ())), _tuples(raw["default"]), _tuples(raw.get("foreign", {})), tuple(raw.get("classes", ())))
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
        loaded=tuple(data.get("loaded", ())),
        env_readers=data.get("env_readers", {}),
        env_fields=tuple(data.get("env_fields", ())),
        idioms=data.get("idioms", {}),
        flags=flags,
        place=str(path),
    )


def _tuples(raw: Mapping[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {platform: tuple(values) for platform, values in raw.items()}
