"""How long a cell takes on the device: by device events, with a cold last-level cache, between samples of a control kernel."""

from harness.machine.clock.timer import Timer

__all__ = ["Timer"]
