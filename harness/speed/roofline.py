"""How near a time is to what the device can do at all: the least time its measured ceilings allow, as a share of the time taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

COPIED = 128 << 20  # bytes that the control `copy` reads, and as many that it writes
SIDE = 4096  # of the square bf16 matrices that the control `matmul` multiplies
_BALANCE = 200.0  # flops a byte above which arithmetic is the bound: H100 to MI355X have 200 to 300 of bf16


def control_for(flops: int, moved: int) -> str:
    """The control that is bound by what bounds the work: `matmul` by arithmetic, `copy` by memory."""
    return "matmul" if flops > _BALANCE * moved else "copy"


@dataclass(frozen=True)
class Ceilings:
    """What the control kernels reached on this device: bytes a second of a copy, flops a second of a bf16 matrix product; None where
    that control was not run."""

    bandwidth: float | None = None
    rate: float | None = None

    def least(self, flops: int, moved: int) -> float | None:
        """Microseconds in which the work could be done by the ceiling that bounds it; None where that control was not run."""
        if control_for(flops, moved) == "matmul":
            return None if self.rate is None else 1e6 * flops / self.rate
        return None if self.bandwidth is None else 1e6 * moved / self.bandwidth


def ceilings(controls: Iterable[tuple[str, float]]) -> Ceilings:
    """The ceilings from the controls of a run, by their medians; each with its microseconds."""
    seen: dict[str, list[float]] = {"copy": [], "matmul": []}
    for name, us in controls:
        seen[name].append(us)
    copy, product = (1e-6 * median(values) if values else None for values in seen.values())
    return Ceilings(2 * COPIED / copy if copy else None, 2 * SIDE**3 / product if product else None)


def fraction(us: float, least: float | None) -> float | None:
    """The share of the roofline; above 1 where data stayed in a cache or the product ran in a faster format than bf16."""
    return None if least is None else least / us
