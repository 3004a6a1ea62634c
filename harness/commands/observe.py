"""`kernel-parity observe`: a profiler trace of a live server, read without a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from harness.errors import UsageError
from harness.report import observed as report
from harness.selection import cases_folder
from harness.served.traces import Observed, Tally, launches, observe, tally
from harness.served.traces.observed import Row
from harness.store.families import Families, load_families

PLATFORMS = ("cuda", "rocm")


def read_trace(*, trace: str, against: str | None, platform: str | None, cases_dir: str | None, as_json: bool) -> int:
    """Reads and prints; returns the exit code: 1 where generic kernels do what the platform has a fast family for.

    Raises UsageError, once it has printed, where generic kernels were held against nothing because nothing says which platform it is.
    """
    families = load_families(cases_folder(cases_dir) / "kernels.toml")
    now = _observed(trace, platform, families)
    then = _observed(against, platform, families) if against else None
    found = now.generic(families)
    if as_json:
        click.echo(json.dumps(_told(now, found, then)))
    else:
        click.echo(_shown(now, found, then))
    if not now.platform and (generic := now.on_generic_paths()):
        share = 100 * sum(_share(row.us, now) for row in generic)
        names = ", ".join(row.family.name for row in generic)
        raise UsageError(f"{trace} names no platform, so {names} ({share:.1f} % of the device time) stand against nothing; give --platform cuda or rocm")
    return 1 if found else 0


def _observed(path: str, platform: str | None, families: Families) -> Observed:
    if platform is not None and platform not in PLATFORMS:
        raise UsageError(f"unknown platform {platform!r}; it is one of {', '.join(PLATFORMS)}")
    into = Tally()
    tally(launches(Path(path), into), into)
    into.platform = platform or into.platform
    return observe(into, families)


def _line(row: Row) -> dict[str, Any]:
    names = sorted(row.kernels, key=lambda name: -row.kernels[name].us)
    return {"does": row.family.does, "family": row.family.name, "path": row.family.path, "us": round(row.us, 3), "launches": row.count, "kernels": names}


def _unknown(now: Observed) -> list[dict[str, Any]]:
    return [{"kernel": name, "us": round(summed.us, 3), "launches": summed.count} for name, summed in now.unclassified]


def _shapes(row: Row) -> str:
    """The commonest grids and input shapes of a row's longest kernel."""
    longest = max(row.kernels.values(), key=lambda summed: summed.us)
    grids = [f"grid {'x'.join(map(str, grid))} ({count})" for grid, count in longest.grids.most_common(3)]
    return ", ".join(grids + [f"inputs {shape} ({count})" for shape, count in longest.shapes.most_common(3)])


def _told(now: Observed, found: list[tuple[Row, list[str]]], then: Observed | None) -> dict[str, Any]:
    told = {
        "platform": now.platform,
        "us": round(now.us, 3),
        "classified": round(now.classified, 6),
        "families": [_line(row) for row in now.rows],
        "unclassified": _unknown(now),
        "generic": [{**_line(row), "fast": fast, "seen": _shapes(row)} for row, fast in found],
    }
    return told | ({"against": _beside(now, then)} if then else {})


def _share(us: float, whole: Observed) -> float:
    return us / whole.us if whole.us else 0.0


def _beside(now: Observed, then: Observed) -> list[dict[str, Any]]:
    """Both traces by family."""
    ours, theirs = ({row.family.name: row for row in one.rows} for one in (now, then))
    lines = []
    for name in dict.fromkeys([*ours, *theirs]):
        mine, its = ours.get(name), theirs.get(name)
        lines.append(
            {
                "family": name,
                "share_then": _share(its.us if its else 0.0, then),
                "share": _share(mine.us if mine else 0.0, now),
                "us_a_launch_then": its.us / its.count if its else 0.0,
                "us_a_launch": mine.us / mine.count if mine else 0.0,
            }
        )
    return sorted(lines, key=lambda line: -max(line["share"], line["share_then"]))


def _shown(now: Observed, found: list[tuple[Row, list[str]]], then: Observed | None) -> str:
    parts = [report.families([_line(row) for row in now.rows], now.us or 1.0)] if now.rows else []
    if now.unclassified:
        parts.append(report.unclassified(_unknown(now), now.us or 1.0))
    where = now.platform or "a platform that the trace does not name (--platform cuda or rocm)"
    count = sum(row.count for row in now.rows) + sum(summed.count for _, summed in now.unclassified)
    parts.append(f"{count} launches, {now.us / 1000:.3f} ms on {where}; {100 * now.classified:.1f} % of the time in known families")
    for row, fast in found:
        share = f"{100 * _share(row.us, now):.1f} % of the device time"
        parts.append(f"generic: {row.family.name} ({row.family.does}) takes {share}; {now.platform} has {', '.join(fast)}. Seen: {_shapes(row) or 'no shapes'}")
    if then:
        parts.append(report.beside(_beside(now, then)))
    return "\n\n".join(parts)
