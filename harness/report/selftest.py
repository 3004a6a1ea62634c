"""A selftest's record as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

from harness.words import plural

_MOST = 30  # survivors shown; the record has all


def selftest(record: Mapping[str, Any]) -> str:
    """Caught and planted by check, killed and mutants by kernel, alarms and clean cells, and the rules of others; what was missed first."""
    parts = [*_missed(record), _table(_checks(record), ["check", "planted", "caught"])]
    if record["kernels"]:
        rows = [[name, line["mutants"], line["killed"]] for name, line in record["kernels"].items()]
        parts.append(_table([*rows, ["all", record["mutants"], record["killed"]]], ["kernel", "mutants", "killed"]))
        parts += _survivors(record["survivors"])
    rivals = [[rule, *(line[key] for key in ("caught", "missed", "cannot_judge", "alarms", "clean"))] for rule, line in record["rivals"].items()]
    ours = ["this project", record["caught"], record["planted"] - record["caught"], 0, record["false_alarms"], record["clean"]]
    parts.append(_table([ours, *rivals], ["rule", "caught", "let pass", "cannot judge", "alarms", "clean cells"]))
    parts.append(_last(record))
    return "\n\n".join(parts)


def _table(rows: list[list[Any]], heads: list[str]) -> str:
    return tabulate(rows, headers=heads, tablefmt="simple", disable_numparse=True)


def _checks(record: Mapping[str, Any]) -> list[list[Any]]:
    rows = [[check, line["planted"], line["caught"]] for check, line in record["checks"].items() if line["planted"]]
    return [*rows, ["all", record["planted"], record["caught"]]]


def _missed(record: Mapping[str, Any]) -> list[str]:
    said = []
    for fault in record["faults"]:
        if not fault["caught"]:
            wanted = fault["wanted"] or (f"a finding of {fault['check']}" if fault["check"] else "any finding")
            first = str(fault["detail"]).split("\n")[0][:200]
            said.append(f"MISSED {fault['fault']} ({fault['op']}): wanted {wanted}, got {fault['got']} after {plural(fault['cells'], 'cell')}\n    {first}")
    for kind in ("alarms", "errors"):
        said += [
            f"{kind.upper()[:-1]} {cell['cell']} seed {cell['seed']}: {cell['status']} {cell['reason']}\n    {str(cell['detail'])[:300]}"
            for cell in record[kind]
        ]
    return said


def _survivors(survivors: list[Mapping[str, Any]]) -> list[str]:
    lines = [f"survived: {m['kernel']} {m['operator']}, {m['file']}:{m['line']}\n    {m['before']}\n    {m['after']}" for m in survivors[:_MOST]]
    return lines + ([f"... and {len(survivors) - _MOST} more (--json)"] if len(survivors) > _MOST else [])


def _last(record: Mapping[str, Any]) -> str:
    rate = record["false_alarm_rate_upper_95"]
    killed = f"{record['killed']} of {plural(record['mutants'], 'mutant')} killed ({record['equivalent']} more are equivalent), " if record["mutants"] else ""
    bounded = f" (rate below {100 * rate:.2g} % at 95 %)" if record["clean"] else ""
    return (
        f"{'passed' if record['passed'] else 'FAILED'}: {record['caught']} of {plural(record['planted'], 'fault')} caught, {killed}"
        f"{plural(record['false_alarms'], 'alarm')} in {plural(record['clean'], 'clean cell')}{bounded}; "
        f"seed {record['seed']}, {record['seconds']:.0f} s"
    )
