"""Triton's interpreter made strict: a kernel under it may read and write the tensors it was given, and nothing beside them.

A lane that is masked off in a load without `other` holds what the language leaves open: here infinity, NaN and large numbers in turn, and not
the zeros that the interpreter puts there. A lane outside the tensors is named, reads the same and writes nothing. The programs of a grid have
no order, so where their number is even they run from the last to the first: what one writes beyond its own rows is not always mended by the
program that owns them.

It is also made to know the functions of libdevice that NumPy has under the same name: a device's library, of which Triton's interpreter holds
the names alone. They are NumPy's there, so what a device makes of the last bit is not judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from harness.machine.memory import Scratch

Range = tuple[int, int]
_LIBDEVICE = ("log1p",)


@contextlib.contextmanager
def strict(scratch: Scratch, more: Callable[[], list[torch.Tensor]]) -> Iterator[None]:
    """Watches the kernels that run in the block; the first that strays is said in `scratch.strayed`.

    more   tensors beside a launch's arguments that a kernel may reach, by an address in a table: asked for only when one strays
    """
    try:
        from triton import knobs
        from triton.runtime import interpreter
    except ImportError:
        interpreting = False
    else:
        interpreting = knobs.runtime.interpret
    if not interpreting:
        yield
        return
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    place = builder.set_grid_idx
    load, store, swap, update, arguments = (
        builder.create_masked_load,
        builder.create_masked_store,
        builder.create_atomic_cas,
        builder.create_atomic_rmw,
        executor._init_args_hst,
    )
    fence = _Fence(scratch, more)

    def given(self: Any, args: Any, kwargs: Any) -> Any:
        made = arguments(self, args, kwargs)
        fence.enter(self.fn.__name__, [*made[0], *made[1].values()])
        return made

    def places(self: Any, *index: int) -> None:
        backwards = np.prod(self.grid_dim) % 2 == 0
        place(self, *(size - 1 - at if backwards else at for size, at in zip(self.grid_dim, index, strict=True)))

    def loads(self: Any, ptrs: Any, mask: Any, other: Any, *hints: Any, **named: Any) -> Any:
        inside = fence.inside(ptrs, mask.data, "read")
        if other is None or inside is not mask.data:
            other = interpreter.TensorHandle(_poisoned(ptrs, mask.data, other, interpreter), ptrs.get_element_ty())
        return load(self, ptrs, interpreter.TensorHandle(inside, mask.dtype), other, *hints, **named)

    def stores(self: Any, ptrs: Any, value: Any, mask: Any, *hints: Any, **named: Any) -> Any:
        return store(self, ptrs, value, interpreter.TensorHandle(fence.inside(ptrs, mask.data, "wrote"), mask.dtype), *hints, **named)

    def updates(self: Any, operation: Any, ptr: Any, value: Any, mask: Any, *order: Any) -> Any:
        return update(self, operation, ptr, value, interpreter.TensorHandle(fence.inside(ptr, mask.data, "updated"), mask.dtype), *order)

    def swaps(self: Any, ptr: Any, *rest: Any) -> Any:
        if not fence.inside(ptr, np.ones_like(ptr.data, dtype=bool), "updated").all():
            raise IndexError(scratch.strayed)
        return swap(self, ptr, *rest)

    builder.set_grid_idx, builder.create_masked_load, builder.create_masked_store = places, loads, stores
    builder.create_atomic_cas, builder.create_atomic_rmw, executor._init_args_hst = swaps, updates, given
    try:
        with _libdevice(interpreter), _patched_once(interpreter, lambda: fence.launches):
            yield
    finally:
        builder.set_grid_idx, builder.create_masked_load, builder.create_masked_store = place, load, store
        builder.create_atomic_cas, builder.create_atomic_rmw, executor._init_args_hst = swap, update, arguments


@contextlib.contextmanager
def _patched_once(interpreter: Any, launched: Callable[[], int]) -> Iterator[None]:
    """The interpreter puts its functions into triton.language at every call of one kernel function by another, which takes longer than the call
    itself. Once a launch, for each set of its modules that a function sees, is enough: nothing takes them out before the launch ends.
    """
    patch, tl = interpreter._patch_lang, interpreter.tl
    sees, done = dict[Any, tuple[bool, bool]](), dict[tuple[bool, bool], int]()

    def once(function: Any) -> Any:
        if function not in sees:
            values = [value for value in function.__globals__.values() if value is tl or value is tl.core]
            sees[function] = (tl in values, tl.core in values)
        if done.get(sees[function]) == launched():
            return interpreter._LangPatchScope()
        done[sees[function]] = launched()
        return patch(function)

    interpreter._patch_lang = once
    try:
        yield
    finally:
        interpreter._patch_lang = patch


@contextlib.contextmanager
def _libdevice(interpreter: Any) -> Iterator[None]:
    """NumPy's functions in the place of libdevice's names, of which a call gives None under the interpreter."""
    from triton.language.extra import libdevice

    def of_numpy(name: str) -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            with np.errstate(all="ignore"):
                return interpreter.tl.tensor(interpreter.TensorHandle(getattr(np, name)(x.handle.data), x.handle.dtype), x.type)

        return call

    held = {name: getattr(libdevice, name) for name in _LIBDEVICE}
    for name in held:
        setattr(libdevice, name, of_numpy(name))
    try:
        yield
    finally:
        for name, function in held.items():
            setattr(libdevice, name, function)


def _poisoned(ptrs: Any, mask: Any, other: Any, interpreter: Any) -> Any:
    """What the lanes hold that are not read: `other` where the mask is off and it is given, else poison."""
    dtype = interpreter._get_np_dtype(ptrs.get_element_ty())
    kinds = _poison(dtype)
    poison = kinds[(np.cumsum(~mask) - 1).reshape(mask.shape) % len(kinds)]
    return poison if other is None else np.where(mask, poison, other.data).astype(dtype)


def _poison(dtype: Any) -> Any:
    """Infinity spoils sums, products with zero and maxima, NaN what infinity falls out of, a large number what asks whether a number is finite."""
    if dtype.kind == "f":
        return np.array([np.inf, np.nan, np.finfo(dtype).max / 2], dtype=dtype)
    return np.array([True]) if dtype.kind == "b" else np.frombuffer(b"\x5a" * dtype.itemsize, dtype=dtype)


class _Fence:
    """The memory that a launch may touch."""

    def __init__(self, scratch: Scratch, more: Callable[[], list[torch.Tensor]]) -> None:
        self._scratch, self._more = scratch, more
        self._kernel = ""
        self._given: list[Range] = []
        self.launches = 0

    def enter(self, kernel: str, arguments: list[Any]) -> None:
        """A launch begins."""
        self.launches += 1
        self._kernel = kernel
        self._scratch.launched.append(kernel)
        self._given = self._ranges(_tensors(arguments))

    def _ranges(self, tensors: Iterator[torch.Tensor] | list[torch.Tensor]) -> list[Range]:
        fenced = self._scratch.spans()
        whole = {(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in (tensor.untyped_storage() for tensor in tensors)}
        return [fenced.get(start, (start, end)) for start, end in whole]

    def inside(self, ptrs: Any, mask: Any, did: str) -> Any:
        """The mask without the lanes that lie outside; the mask itself where none does."""
        active = ptrs.data[mask]
        if not active.size:
            return mask
        size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
        low, high = int(active.min()), int(active.max()) + size
        if any(start <= low and high <= end for start, end in self._given):
            return mask
        stray = _outside(ptrs.data, size, self._given) & mask
        if stray.any():  # not by an address from a table either
            stray &= _outside(ptrs.data, size, self._ranges(self._more()) + list(self._scratch.spans().values()))
        if not stray.any():
            return mask
        if not self._scratch.strayed:
            self._scratch.strayed = f"kernel {self._kernel} {did} {int(stray.sum())} of {active.size} elements outside the tensors it was given"
        return mask & ~stray


def _outside(addresses: Any, size: int, ranges: list[Range]) -> Any:
    stray = np.ones(addresses.shape, dtype=bool)
    for start, end in ranges:
        stray &= (addresses < start) | (addresses + np.uint64(size) > end)
    return stray


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)
        elif isinstance(base := getattr(value, "base", None), torch.Tensor):  # a descriptor, or a tensor seen as another dtype
            yield base
