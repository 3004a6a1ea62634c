"""What a trace says of the paths that were taken: time by family, generic work where a fast family exists, names that nobody knows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from harness.served.traces.tally import Summed, Tally
from harness.speed.names import plain_name
from harness.store.families import Families, Family

# who else may do the same: kernels of plain attention serve MLA too
_INSTEAD = {"attention prefill": ("attention prefill", "mla"), "attention decode": ("attention decode", "attention prefill", "mla"), "mla": ("mla",)}


@dataclass
class Row:
    """A family's kernels in a trace: microseconds, launches, and by plain name the sums."""

    family: Family
    us: float = 0.0
    count: int = 0
    kernels: dict[str, Summed] = field(default_factory=dict)


@dataclass
class Observed:
    """A trace by families, the longest first; `unclassified` by name, the longest first."""

    platform: str
    us: float
    rows: list[Row]
    unclassified: list[tuple[str, Summed]]

    @property
    def classified(self) -> float:
        """Share of the device time in kernels of a known family."""
        return sum(row.us for row in self.rows) / self.us if self.us else 0.0

    def on_generic_paths(self) -> list[Row]:
        """Rows of generic kernels, whether or not the platform has others."""
        return [row for row in self.rows if row.family.path == "generic"]

    def generic(self, families: Families) -> list[tuple[Row, list[str]]]:
        """Rows on a generic path where the platform has fast families for the same thing, with their names."""
        found = []
        for row in self.on_generic_paths():
            if self.platform:
                does = _INSTEAD.get(row.family.does, (row.family.does,))
                fast = [family.name for one in does for family in families.fast_for(one, self.platform)]
                if fast:
                    found.append((row, fast))
        return found


def observe(tally: Tally, families: Families) -> Observed:
    """Classifies what was summed."""
    rows: dict[str, Row] = {}
    unknown: dict[str, Summed] = defaultdict(Summed)
    for name, summed in tally.kernels.items():
        family = families.of(name)
        row = rows.setdefault(family.name, Row(family)) if family else None
        if row is not None:
            row.us += summed.us
            row.count += summed.count
        _add((row.kernels if row is not None else unknown).setdefault(plain_name(name), Summed()), summed)
    ordered = sorted(rows.values(), key=lambda row: -row.us)
    return Observed(tally.platform, tally.us, ordered, sorted(unknown.items(), key=lambda item: -item[1].us))


def _add(total: Summed, part: Summed) -> None:
    total.us += part.us
    total.count += part.count
    total.grids.update(part.grids)
    total.shapes.update(part.shapes)
