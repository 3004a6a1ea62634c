"""Planted faults: the shelf of wrong providers that the checks must catch. Not loaded by default: `--plugin harness.faults`.

A plugin adds its own with `@fault`: docs/selftest.md.
"""

from harness.faults import (  # noqa: F401  # importing declares them
    answering,
    attending,
    controls,
    drawing,
    dying,
    filtering,
    gating,
    hiding,
    latent,
    oracles,
    raising,
    relating,
    sampling,
    served,
    waiting,
    writing,
)
from harness.faults.shelf import FAULTS, Fault, eager, fault, right

__all__ = ["FAULTS", "Fault", "eager", "fault", "right"]
