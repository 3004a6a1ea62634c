"""What a bisect found, in words: a line a version as it is tried, then the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.words import plural


def step(version: str, said: str, how: str) -> str:
    """One version that was tried: `how` is `good`, `bad` or `skipped`."""
    return f"{how:<8} {version:<16} {said}"


def change(record: Mapping[str, Any]) -> str:
    """The change: the first version after it, the last before it, and both verdicts."""
    first, last, word = record["first"], record["last"], "bad" if record["older"] == "good" else "good"
    details = {one["version"]: one for one in record["steps"]}
    lines = [f"{record['package']} {first} is the first {word} version: {details[first]['said']}"]
    if between := record["between"]:
        lines[0] = f"the change lies in {record['package']} {_either([*between, first])}; {plural(len(between), 'version')} of them cannot be tried"
        lines.append(f"after:  {first} {details[first]['said']}")
    lines.append(f"before: {last} {details[last]['said']}")
    lines += [f"detail of {version}: {details[version]['detail']}" for version in (first, last) if details[version]["detail"]]
    return "\n".join(lines)


def _either(versions: Sequence[str]) -> str:
    return f"{', '.join(versions[:-1])} or {versions[-1]}"
