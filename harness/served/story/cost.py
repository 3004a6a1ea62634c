"""What the cure costs and gains: times of this machine's kernels, taken here or not given at all."""

from __future__ import annotations

from dataclasses import dataclass

HEADS, PADDED = 12, 16
SHAPE = {"batch": 64, "length": 4096, "page": 64, "dtype": "bf16"}
GENERIC = "sglang_triton"
EXTRA = 100 * (PADDED - HEADS) / HEADS  # per cent more to compute


@dataclass(frozen=True)
class Timed:
    """Microseconds of one MLA decode: `name` with so many heads, `padded` where 12 were brought to 16 and cut again within the time."""

    name: str
    heads: int
    padded: bool
    us: float


def told(timed: list[Timed], device: str) -> list[str]:
    """The times as lines, each against the generic kernel's; the fastest way for 12 heads last."""
    base = next((one.us for one in timed if one.name == GENERIC and one.heads == HEADS and not one.padded), None)
    lines = [f"MLA decode, {SHAPE['batch']} requests of {SHAPE['length']} tokens, {SHAPE['dtype']}, measured on {device}:"]
    for one in sorted(timed, key=lambda one: one.us):
        shape = f"{HEADS} padded to {PADDED}" if one.padded else f"{one.heads} heads"
        beside = f", {one.us / base:.2f} of {GENERIC} at {HEADS} heads" if base else ""
        lines.append(f"  {one.name:<24} {shape:<16} {one.us:9.1f} us{beside}")
    return lines
