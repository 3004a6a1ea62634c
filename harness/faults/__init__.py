"""Planted faults: the shelf of wrong providers that the checks must catch. Not loaded by default: `--plugin harness.faults`."""

from harness.faults import answering, drawing, dying, raising, relating, waiting, writing  # noqa: F401  # importing declares them
from harness.faults.shelf import FAULTS, Fault

__all__ = ["FAULTS", "Fault"]
