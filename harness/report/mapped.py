"""A support map in words: values that ended alike in runs, and what changed."""

from __future__ import annotations

import re
from typing import Any

from tabulate import tabulate

Row = dict[str, Any]


def ran(rows: list[Row]) -> bool:
    """Whether any value ran; one that is declined or whose library is absent did not."""
    return any(row["status"] not in ("absent", "unsupported") for row in rows)


def in_words(report: Row) -> str:
    """The map in words: values that ended alike in runs, then what changed."""
    title = f"{report['provider']}.{report['op']}"
    if report["status"] != "probed":
        return f"{title}: {report['status']}: {report['why']}"
    rows: list[Row] = report["values"]
    groups: dict[tuple[str, bool, str], list[Row]] = {}
    for row in rows:
        gated = "gate" in row and row["status"] != "unsupported"
        groups.setdefault((row["said"], gated, "" if gated else _reason(row, report["axes"])), []).append(row)
    table = []
    for (said, gated, reason), members in groups.items():
        first = members[0]
        why = reason if reason and len(members) > 1 else first["detail"]
        if gated:
            why = "the gate tables say so" if said != "pass" else "passes, though the gate tables refuse it"
        table.append(
            {",".join(report["axes"]): runs([row["value"] for row in members]), "ends": said, "why": "" if said == "pass" and not gated else why[:110]}
        )
    lines = [
        f"{title} on {report['device'].get('name') or report['platform']}, case {report['case']}",
        tabulate(table, headers="keys", maxcolwidths=[60, 40, 110]),
    ]
    lines += [f"changed: {change['value']}: {change['before']} -> {change['now']}" for change in report["changed"]]
    if report["written"]:
        lines.append(f"wrote {report['written']}")
    elif not ran(rows):
        lines.append("no value ran: there is nothing to keep as a baseline")
    elif not report["baseline"]:
        lines.append("no baseline yet (--accept writes it)")
    return "\n".join(lines)


def _reason(row: Row, axes: list[str]) -> str:
    """The reason of a row that was refused or declined, without its own values (`these heads` for `12 heads`), so that equal ones share a line."""
    if row["status"] not in ("unsupported", "refused"):
        return ""
    text: str = row["detail"]
    for name, value in zip(axes, row["value"].split(","), strict=True):
        text = re.sub(rf"(?<![\w.]){re.escape(value)} {re.escape(name)}\b", f"these {name}", text)
    return text


def runs(values: list[str]) -> str:
    """Ascending numbers as runs, anything else as it is; of several axes the first by runs, for each value of the others."""
    if all("," in value for value in values):
        firsts: dict[str, list[str]] = {}
        for first, _, rest in (value.partition(",") for value in values):
            firsts.setdefault(rest, []).append(first)
        return "; ".join(f"{runs(listed)} at {rest}" for rest, listed in firsts.items())
    if not all(re.fullmatch(r"-?\d+", value) for value in values):
        return ", ".join(values)
    spans: list[list[int]] = []
    for number in map(int, values):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}..{high}" for low, high in spans)
