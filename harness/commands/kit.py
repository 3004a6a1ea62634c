"""What a repro script has of its own: short stand-ins for the harness's inputs, memory and look-ups. `inline` writes the parts it needs into the script.

Imports nothing of this package, so that the parts stand alone.
"""

from __future__ import annotations
import __future__

import ast
import base64
import importlib
import importlib.util
import io
import math
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Inputs(SimpleNamespace):
    """The call's inputs as attributes."""

    def tensors(self) -> Any:
        """Name and tensor of each input."""
        return [(name, value) for name, value in vars(self).items() if isinstance(value, torch.Tensor)]

    def copy_with(self, **fields: Any) -> Any:
        """The same inputs with some fields replaced."""
        return type(self)(**{**vars(self), **fields})


class Scratch:
    """Poisoned memory between fences of 65,536 bytes."""

    def __init__(self, device: str) -> None:
        self.device, self.outputs, self.blocks = device, {}, []  # type: ignore[var-annotated]

    def empty(self, *shape: int, dtype: Any) -> Any:
        """All bits one where a float belongs, 0x5a bytes elsewhere."""
        block = torch.full((math.prod(shape) * dtype.itemsize + 131072,), 255 if dtype.is_floating_point else 90, dtype=torch.uint8, device=self.device)
        block[:65536] = block[-65536:] = 165
        self.blocks.append(block)
        return block[65536:-65536].view(dtype).view(shape)

    def output(self, name: str, *shape: int, dtype: Any = None, like: Any = None) -> Any:
        """The buffer of an output."""
        self.outputs[name] = self.empty(*(shape or like.shape), dtype=dtype or like.dtype)
        return self.outputs[name]

    def workspace(self, nbytes: int) -> Any:
        """Zeroed bytes."""
        return self.empty(nbytes, dtype=torch.uint8).zero_()

    def copy(self, tensor: Any) -> Any:
        """A copy of an input that the call overwrites."""
        return self.empty(*tensor.shape, dtype=tensor.dtype).copy_(tensor)

    def intact(self) -> bool:
        """Whether every fence stands; says so when not."""
        broken = [block.numel() - 131072 for block in self.blocks if bool((torch.cat((block[:65536], block[-65536:])) != 165).any())]
        return told("memory", f"the call wrote outside buffers of {broken} bytes" if broken else "")


class Poisoned(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """While active, memory that torch leaves uninitialised holds NaN (0x5a bytes where no float belongs)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if (
            func.__name__.split(".")[0] in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
            and made.device.type != "meta"
            and not made.is_pinned()
        ):
            made.untyped_storage().fill_(255 if made.is_floating_point() else 90)
        return made


def followed(ids: Any, weights: Any, valid: Any) -> str:
    """What is wrong with the frequencies of ids [rows, draws], -1 for none, of tokens with weight: a token far from its share."""
    for row in range(len(weights)):
        counts = torch.bincount(ids[row].long() + 1, minlength=weights.shape[1] + 1)[1:] * (weights[row] > 0)
        expected = counts.sum() * weights[row] / weights[row].sum().clamp_min(1e-300)
        deviations = (counts - expected) / (expected * (1 - expected / counts.sum().clamp_min(1)) + 1).sqrt()
        at = int(deviations.abs().argmax())
        if abs(float(deviations[at])) > 7 and (valid is None or bool(valid[row])):
            return f"row {row}: token {at} drawn {int(counts[at])} times in {int(counts.sum())}, expected {expected[at]:.6g}"
    return ""


class Unsupported(SystemExit):
    """The library says that it does not take this case."""

    def __init__(self, why: str) -> None:
        print("unsupported:", why)
        super().__init__(0)


class Missing(LookupError):
    """A name that the library does not have."""


def isolate(module: str, *names: str, given: Any) -> Any:
    """Definitions out of an installed module's source, which is not imported."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise Missing(module)
    space = {"__name__": module, **given}
    for node in ast.parse(Path(spec.origin).read_text()).body:
        bound = {getattr(node, "name", ""), *(getattr(target, "id", "") for target in getattr(node, "targets", ()))}
        if bound & set(names):
            exec(compile(ast.Module([node], []), spec.origin, "exec", flags=__future__.annotations.compiler_flag), space)
    if set(names) - space.keys():
        raise Missing(f"{module}: {set(names) - space.keys()}")
    return SimpleNamespace(**{name: space[name] for name in names})


def resolve(*places: str) -> Any:
    """The first of `module:name` that exists."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            found = None
        if found is not None:
            return found
    raise Missing(f"unbound: {places}")


def unpack(text: str, device: str) -> Any:
    """Data that was written as text."""
    return torch.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), map_location=device, weights_only=True)


def unchanged(x: Any, before: Any) -> bool:
    """Whether the inputs hold the bits they held; names those that do not."""
    changed = [name for name, old in before.items() if not torch.equal(bits(vars(x)[name]), bits(old))]
    return told("input tensors", f"the call changed {changed}" if changed else "")


def bits(tensor: Any) -> Any:
    """The bytes of a tensor."""
    return tensor.reshape(-1).view(torch.uint8)


def named(returned: Any, names: Any, written: Any) -> Any:
    """Outputs by name: a dict, one or several tensors, or None for what was written in place."""
    if isinstance(returned, dict) or returned is None:
        return written if returned is None else returned
    return dict(zip(names, returned if isinstance(returned, (tuple, list)) else (returned,), strict=True))


def shaped(name: str, actual: Any, shape: Any, dtype: Any) -> bool:
    """Whether the output is a tensor of that shape (None: any) and dtype (or `a floating dtype`, `an integer dtype`); says so when not."""
    if not isinstance(actual, torch.Tensor):
        return told(name, f"expected a tensor, got {actual!r}")
    right = actual.is_floating_point() == (dtype == "a floating dtype") if isinstance(dtype, str) else actual.dtype == dtype
    right = right and shape in (None, tuple(actual.shape))
    return told(name, "" if right else f"expected shape {shape}, {dtype}, got {tuple(actual.shape)}, {actual.dtype}")


def told(name: str, wrong: Any) -> bool:
    """Whether a check has nothing to say; prints what it says."""
    if wrong:
        print(f"{name}: {wrong}")
    return not wrong


def compared(name: str, actual: Any, golden: Any, slack: Any = None, undefined: Any = None) -> bool:
    """Whether every element is within an ulp of its dtype and `slack` (None: equal); prints the count and the greatest difference."""
    got, golden = actual.double(), golden.double()
    right = (got == golden) | (got.isnan() & golden.isnan()) if slack is None else got == golden
    gap = (got - golden).abs().masked_fill(right, 0).nan_to_num(math.inf, math.inf)
    info = None if slack is None else torch.finfo(actual.dtype)
    wrong = gap > (0 if info is None else info.eps * golden.abs().nan_to_num(0, 0) + info.smallest_normal + slack.double())
    wrong = wrong if undefined is None else wrong & ~undefined
    if bool(wrong.any()):
        at = tuple(torch.nonzero(wrong & (gap == gap[wrong].max()))[0].tolist())
        print(f"{name}: {int(wrong.sum())} of {wrong.numel()} elements wrong; greatest difference {gap[at]:.3g} at index {at}")
        print(
            *(f"  {word} {value[at]:.9g}, its row {value[at[:-1]].flatten()[:6].tolist()}" for word, value in (("expected", golden), ("actual", got))), sep="\n"
        )
    return not bool(wrong.any())
