"""What the stand-in's functions do: they take layouts, plans and gates as AITER's sources do, and compute by PyTorch.

A check of AITER's that aborts ends the process here too (or raises Aborted when AITER_STANDIN_ABORT=raise, for tests in one process);
what would be a wild read on a device is an abort as well.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from standin import attending, latent, planning, sampling

ENTRIES = {**attending.ENTRIES, **latent.ENTRIES, **planning.ENTRIES, **sampling.ENTRIES}


class Aborted(BaseException):
    """Stands for the end of the process."""


class Machine:
    """The facts and the architecture that the stand-in plays."""

    facts: dict[str, Any] = {}
    arch = ""


def begin(facts: str, arch: str) -> None:
    """Called by the generated package when it is imported."""
    Machine.facts, Machine.arch = json.loads(Path(facts).read_text()), arch


def abort(why: str) -> Any:
    """As AITER_CHECK outside of a throwing entry point."""
    print(f"[AITER] {why}", file=sys.stderr, flush=True)
    if os.environ.get("AITER_STANDIN_ABORT") == "raise":
        raise Aborted(why)
    os.abort()


def refuse(native: str, why: str) -> Any:
    """A failed check of a C++ entry point: it aborts or raises as the facts say."""
    row = Machine.facts["native"][native]
    if row["refusal"] == "abort":
        return abort(f"{native} ({row['file']}): {why}")
    raise RuntimeError(f"{native} ({row['file']}): {why}")


def call(place: str, given: dict[str, Any]) -> Any:
    """A call of the generated function `module:name` with its arguments by name."""
    return ENTRIES[place.split(":")[1]](given)


_library: list[torch.library.Library] = []


def register(name: str, function: Any, schema: str) -> None:
    """Registers torch.ops.aiter.NAME."""
    library = torch.library.Library("aiter", "FRAGMENT")
    library.define(schema)
    library.impl(name, function, "CompositeExplicitAutograd")
    _library.append(library)
