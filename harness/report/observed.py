"""Tables of a trace: time by family, generic paths, unknown names, and two traces side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tabulate import tabulate

_KERNELS = 3  # names shown of a family
_NAME = 60  # characters of a name that are shown

Line = Mapping[str, Any]


def families(lines: Sequence[Line], total: float) -> str:
    """A line a family: what it does, its path, share of the device time, milliseconds, launches and its longest kernels."""
    rows = []
    for one in lines:
        us = one["us"]
        rows.append([one["does"], one["family"], one["path"], f"{100 * us / total:.1f} %", f"{us / 1000:.3f}", one["launches"], _names(one)])
    headers = ["does", "family", "path", "share", "ms", "launches", "kernels"]
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, colalign=("left", "left", "left", "right", "right", "right", "left"))


def _names(line: Line) -> str:
    names = line["kernels"]
    shown = [name if len(name) <= _NAME else name[: _NAME - 3] + "..." for name in names[:_KERNELS]]
    return ", ".join(shown) + (f" and {len(names) - _KERNELS} more" if len(names) > _KERNELS else "")


def unclassified(lines: Sequence[Line], total: float, most: int = 20) -> str:
    """Kernels of no known family, the longest first."""
    rows = [[f"{100 * one['us'] / total:.1f} %", f"{one['us'] / 1000:.3f}", one["launches"], one["kernel"]] for one in lines[:most]]
    more = f"\n... and {len(lines) - most} more" if len(lines) > most else ""
    return tabulate(rows, headers=["share", "ms", "launches", "unclassified"], tablefmt="simple", disable_numparse=True) + more


def beside(lines: Sequence[Line]) -> str:
    """Two traces by family: shares, and microseconds a launch."""
    rows = []
    for one in lines:
        then, now = one["us_a_launch_then"], one["us_a_launch"]
        change = f"{now / then:.2f}" if then and now else ("new" if now else "gone")
        rows.append([one["family"], f"{100 * one['share_then']:.1f} %", f"{100 * one['share']:.1f} %", f"{then:.2f}", f"{now:.2f}", change])
    headers = ["family", "share then", "now", "us a launch then", "now", "ratio"]
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)
