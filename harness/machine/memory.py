"""Poisoned and guarded memory: what a provider allocates is filled with a pattern and stands between guard bytes.

A NaN of all one bits is what a float holds before it is written; no arithmetic produces it. Integers hold 0x5a bytes.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

GUARD = 1 << 16
_FENCE = 0xA5
_aten = torch.ops.aten
_ALLOCATIONS = {
    _aten.empty.memory_format,
    _aten.empty_strided.default,
    _aten.empty_like.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
}


def _poison(dtype: torch.dtype) -> int:
    return 0xFF if dtype.is_floating_point else (0x01 if dtype == torch.bool else 0x5A)


class _Block(NamedTuple):
    memory: torch.Tensor
    end: int

    def overwritten(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.memory[:GUARD] != _FENCE, self.memory[self.end :] != _FENCE


class Scratch:
    """The memory of one cell: outputs a phased provider asks for, workspaces, and every allocation it makes by itself."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.outputs: dict[str, torch.Tensor] = {}
        self.strayed = ""  # what an interpreted kernel read or wrote beside its tensors, in words
        self.launched: list[str] = []  # kernels that Triton's interpreter ran, in order
        self._blocks: list[_Block] = []

    def empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """A poisoned, guarded, contiguous tensor, 256-byte aligned."""
        with _disable_current_modes():
            return self.fenced(torch.empty(shape, dtype=dtype, device="meta"))

    def output(self, name: str, *shape: int, dtype: torch.dtype | None = None, like: torch.Tensor | None = None) -> torch.Tensor:
        """The output buffer `name`: `like` gives the shape (if none is given) and the dtype (if none is given)."""
        if like is not None:
            shape, dtype = shape or tuple(like.shape), dtype or like.dtype
        if dtype is None:
            raise TypeError(f"output {name!r} needs a dtype, or like=")
        self.outputs[name] = self.empty(*shape, dtype=dtype)
        return self.outputs[name]

    def workspace(self, nbytes: int) -> torch.Tensor:
        """A zeroed, guarded uint8 workspace."""
        return self.empty(nbytes, dtype=torch.uint8).zero_()

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A guarded contiguous copy of an input that the op overwrites."""
        return self.empty(*tensor.shape, dtype=tensor.dtype).copy_(tensor)

    def fenced(self, like: torch.Tensor) -> torch.Tensor:
        """Memory of the size, strides and dtype of `like` (meta or real), poisoned between fences."""
        size = like.element_size()
        span = 1 + sum((n - 1) * stride for n, stride in zip(like.shape, like.stride(), strict=True)) if like.numel() else 0
        nbytes = -(-span * size // 16) * 16
        block = torch.empty(nbytes + 2 * GUARD, dtype=torch.uint8, device=self.device)
        block.fill_(_poison(like.dtype))
        block[:GUARD] = _FENCE
        block[GUARD + span * size :] = _FENCE
        self._blocks.append(_Block(block, GUARD + span * size))
        body = block[GUARD : GUARD + nbytes].view(like.dtype)
        return body.as_strided(like.shape, like.stride())

    def spans(self) -> dict[int, tuple[int, int]]:
        """The addresses of every buffer, without its fences, by the address of its block."""
        return {block.memory.data_ptr(): (block.memory.data_ptr() + GUARD, block.memory.data_ptr() + block.end) for block in self._blocks}

    def trespassed(self) -> str:
        """Which fence was overwritten, or what was touched beside all buffers, in words, or an empty string."""
        if self.strayed or not self._blocks:
            return self.strayed
        broken = torch.stack([before.any() | after.any() for before, after in (block.overwritten() for block in self._blocks)])
        if not bool(broken.any()):
            return ""
        block = self._blocks[int(torch.nonzero(broken)[0])]
        before, after = block.overwritten()
        return f"guard bytes around a buffer of {block.end - GUARD} bytes were overwritten: {int(before.sum())} before it, {int(after.sum())} after it"

    def unwritten(self, tensor: torch.Tensor) -> torch.Tensor:
        """bool mask of elements that still hold the poison."""
        raw = tensor.detach().resolve_neg().contiguous().view(-1).view(torch.uint8).view(*tensor.shape, tensor.element_size())
        return (raw == _poison(tensor.dtype)).all(-1)


class Guarded(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """While active, every uninitialised allocation on the scratch's device comes from the scratch."""

    def __init__(self, scratch: Scratch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.scratch = scratch
        self._type = torch.device(scratch.device).type

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch wraps the method below so that dynamo leaves it alone, which imports dynamo; where dynamo is off, that is for nothing."""
        return os.environ.get("TORCHDYNAMO_DISABLE") != "1"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _ALLOCATIONS and made.device.type == self._type and made.layout == torch.strided and made.numel() and not made.is_pinned():
            return self.scratch.fenced(made)
        return made
