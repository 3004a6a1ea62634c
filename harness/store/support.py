"""Support maps: how each value of an axis ends on one provider and device, kept as a baseline and compared with the next probe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.store.files import write_whole

SCHEMA = 1
_RANK = {"pass": 2, "refused": 1, "unsupported": 1}  # anything else is worse: it takes the process or the answer with it


class SupportMap(msgspec.Struct):
    """How a provider's cells ended along some axes.

    statuses   by the values of the axes, written as in a case id and joined by commas: `status`, or `status: reason`
    case       the case whose axes were varied; device: the facts of the device; versions: of the libraries
    """

    op: str
    provider: str
    axes: list[str]
    case: str
    statuses: dict[str, str]
    device: dict[str, str] = {}
    platform: str = ""
    versions: dict[str, str] = {}
    schema: int = SCHEMA


class Change(msgspec.Struct):
    """A value that ended otherwise than the baseline says. `worse`: it is refused where it passed, or dies where it was refused."""

    value: str
    before: str
    now: str
    worse: bool


def device_folder(facts: Mapping[str, str]) -> str:
    """A device's name as a folder: `amd-instinct-mi300x`, or its architecture where it has no name."""
    text = facts.get("name") or facts.get("arch") or "unknown"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unknown"


def place_of(folder: Path, map_: SupportMap) -> Path:
    """Where the baseline of a map lies: `DEVICE/support/PROVIDER.OP.AXES.json`."""
    return folder / device_folder(map_.device) / "support" / f"{map_.provider}.{map_.op}.{'+'.join(map_.axes)}.json"


def load(path: Path) -> SupportMap | None:
    """The baseline of this path, or None without one. Raises UsageError for a file that is none."""
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=SupportMap)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} is not a support map ({error}); probe again with --accept to replace it") from error


def save(path: Path, map_: SupportMap) -> None:
    """Writes a baseline whole or not at all, a value a line. Raises UsageError where the path is not writable."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(map_), indent=1).decode() + "\n")


def changes(before: SupportMap, now: SupportMap) -> list[Change]:
    """The values of both maps that ended differently, by status; a reason alone is no change."""
    found = []
    for value, word in now.statuses.items():
        old = before.statuses.get(value)
        if old is not None and _status(old) != _status(word):
            found.append(Change(value, old, word, worse=_rank(word) < _rank(old)))
    return found


def refreshed(before: SupportMap | None, now: SupportMap, found: Iterable[Change]) -> SupportMap:
    """The ratchet: the new map, but a value that got worse keeps what it had; values that were not probed stay as they were."""
    if before is None:
        return now
    kept = {change.value: change.before for change in found if change.worse}
    merged: dict[str, Any] = {**before.statuses, **now.statuses, **kept}
    return msgspec.structs.replace(now, statuses=merged)


def _status(word: str) -> str:
    return word.partition(":")[0]


def _rank(word: str) -> int:
    return _RANK.get(_status(word), 0)
