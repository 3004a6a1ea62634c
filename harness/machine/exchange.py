"""What goes to a provider and comes back: inputs in words and as hashes, outputs by name, and what cannot be read as either."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import torch

from harness.contracts import Inputs, Op, fingerprint
from harness.machine.classify import classify, poisons, words_of
from harness.machine.memory import Scratch


class Unreadable(Exception):
    """What a provider returned cannot be taken for the contract's outputs."""


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """A contract's own code over what a provider returned: where it fails the provider returned something else."""
    try:
        yield
    except Exception as error:
        if poisons(error) or classify(error)[0] == "out-of-memory":
            raise
        raise Unreadable(f"{what} cannot be read: {type(error).__name__}: {words_of(error)}\n{last_frame(error)}") from error


def prints(x: Inputs) -> dict[str, int]:
    """A hash of every input tensor, by name."""
    named = list(x.tensors())
    if not named:
        return {}
    values = torch.stack([fingerprint(tensor) for _, tensor in named]).tolist()
    return dict(zip((name for name, _ in named), values, strict=True))


def collect(declared: Op, returned: Any, x: Inputs, scratch: Scratch) -> dict[str, Any]:
    """What a provider returned, by output name: a tensor or tuple in the contract's order (None for an output it does not give),
    a dict of those it gives, or None for buffers and inputs it wrote."""
    if returned is None:
        written = {name: getattr(x, name) for name in declared.outputs if name in declared.mutates}
        return {**written, **scratch.outputs}
    if isinstance(returned, dict):
        if unknown := sorted(map(str, returned.keys() - set(declared.outputs))):
            raise Unreadable(f"returned {', '.join(unknown)}; the contract's outputs are {', '.join(declared.outputs)}")
        return returned
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    if len(values) != len(declared.outputs):
        raise Unreadable(f"returned {len(values)} outputs, not the contract's {len(declared.outputs)} ({', '.join(declared.outputs)})")
    return dict(zip(declared.outputs, values, strict=True))


def describe(x: Inputs) -> dict[str, str]:
    """The call's arguments in words: dtype and shape of tensors, scalars as they are."""
    said = {}
    for name, value in x.__dict__.items():
        if isinstance(value, torch.Tensor):
            said[name] = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        elif isinstance(value, (int, float, str, bool)) and name != "device":
            said[name] = repr(value)
    return said


def last_frame(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"raised at {frames[-1].filename.split('site-packages/')[-1]}:{frames[-1].lineno}" if frames else ""
