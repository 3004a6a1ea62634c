"""Rates of the regression rule and of the rules of others as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

_HOST = "host-bound eager"


def replayed(record: Mapping[str, Any]) -> str:
    """A table a group of cells, and one over machine starts; below each what stands behind it."""
    parts = [f"{record['runs']} runs a cell, {record['draws']} draws, seed {record['seed']}; a share is of all cells and draws"]
    for name, group in record["groups"].items():
        parts += [f"{name}: {len(group['cells'])} cells", _table(group["rules"]), _behind(group)]
    starts = {
        f"{name}, {'all cells together' if word == 'together' else 'each cell by itself'}": rates
        for name, group in record["groups"].items()
        if name != _HOST
        for word, rates in group["starts"].items()
    }
    if starts:
        parts += ["this project, baseline of 3 machine starts, measured on a fourth, each shifted by up to 0.9 %", _table(starts)]
    if _HOST in record["groups"]:
        parts.append("host-bound (plain calls under 500 us that vary by over 6.3 % within a run) cells are never judged by this project; the rates show why")
    return "\n\n".join(parts)


def _table(rules: Mapping[str, Any]) -> str:
    first = next(iter(rules.values()))["rates"]
    heads = ["rule", "false alarms", "at most", *(f"+{100 * float(slowed):g} %" for slowed in first if float(slowed))]
    rows = [[name, *_cells(rates["rates"])] for name, rates in rules.items()]
    return tabulate(rows, headers=heads, tablefmt="simple", disable_numparse=True, colalign=("left", *("right",) * (len(heads) - 1)))


def _cells(rates: Mapping[str, Any]) -> list[str]:
    return [_share(rates["0"]["rate"]), _share(rates["0"]["bound"]), *(_share(one["rate"]) for slowed, one in rates.items() if float(slowed))]


def _share(rate: float) -> str:
    """A rate in percent, to two digits of what is near 0 or near 100."""
    percent = 100 * rate
    return f"{percent:.3f} %" if 0 < percent < 1 else f"{percent:.2f} %" if 99 < percent < 100 else f"{percent:.3g} %"


def _behind(group: Mapping[str, Any]) -> str:
    ours = next(iter(group["rules"].values()))
    said = [f"at most: 95 % bound from {ours['independent_runs']} independent runs, not from {ours['replays']} replays; "]
    said.append(f"{_share(ours['reruns'])} of unchanged measurements are run again")
    if "jackknife" in group:
        ranges = [
            f"{f'+{100 * float(slowed):g} %' if float(slowed) else 'false alarms'} {_share(low)} to {_share(high)}"
            for slowed, (low, high) in group["jackknife"].items()
        ]
        said.append("\nthis project with any one cell left out: " + ", ".join(ranges))
    return "".join(said)
