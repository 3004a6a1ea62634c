"""A CPU that stands for another device: what was made on the host stays there until it is moved, as it would beside a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors  # what `torch.set_default_device` goes by

MAKERS = frozenset(_device_constructors())
_MOVES = (torch.Tensor.copy_, torch.Tensor.__setitem__)  # into a tensor of another device
_LIKE = (torch.as_tensor, torch.asarray)  # a tensor stays where it is


class Here(str):
    """The name of the device that the inputs are on: an argument of this class is told from the word `cpu` in a provider's own text."""


HERE = Here("cpu")


class OnHost(torch.Tensor):
    """What no one has moved to the device of the inputs, and all that was computed from it."""


class Generator(torch.Generator):
    """torch's, which knows whether its numbers are the host's."""

    def __new__(cls, device: str = "cpu") -> Generator:
        made = super().__new__(cls, device)
        made.on_host = not isinstance(device, Here)
        return made


class Elsewhere(TorchFunctionMode):
    """While active, RuntimeError as from a GPU: for an operation on tensors of both, and for random numbers of the one drawn on the other.

    The host's tensors without dimensions go with either, and its indices too, as torch has it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = list(_tensors((args, kwargs)))
        here = any(not isinstance(tensor, OnHost) for tensor in tensors)
        host = any(isinstance(tensor, OnHost) and tensor.dim() for tensor in tensors)
        indexing = func is torch.Tensor.__getitem__ and not isinstance(args[0], OnHost)
        to_host = _to_host(func, args, kwargs)
        if here and host and to_host is None and func not in _MOVES and not indexing:
            raise RuntimeError(f"Expected all tensors to be on the same device, but {func.__name__} got some of the host")
        random = kwargs.get("generator")
        if isinstance(random, Generator) and tensors and random.on_host == here:
            raise RuntimeError(f"Expected a generator of the tensor's device in {func.__name__}")
        return _placed(func(*args, **kwargs), bool(tensors) and not here if to_host is None else to_host)


def _to_host(func: Any, args: Any, kwargs: dict[str, Any]) -> bool | None:
    """Whether the call makes a tensor on the host or moves it there; None where it says nothing of a place."""
    if func is torch.Tensor.cpu:
        return True
    if func in MAKERS:
        if (device := kwargs.get("device")) is None:
            return None if func in _LIKE and isinstance(args[0], torch.Tensor) else True
        return _is_host(device)
    if func is torch.Tensor.to:
        return next((_is_host(value) for value in (*args[1:], *kwargs.values()) if isinstance(value, (str, torch.device, torch.Tensor))), None)
    return None


def _is_host(place: Any) -> bool:
    return isinstance(place, OnHost) or (place == "cpu" and not isinstance(place, Here))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)


def _placed(made: Any, host: bool) -> Any:
    """A result, or several, as of that place."""
    if isinstance(made, (tuple, list)) and any(isinstance(one, torch.Tensor) for one in made[:1]):
        return type(made)(_placed(one, host) for one in made)
    if not isinstance(made, torch.Tensor) or isinstance(made, OnHost) == host:
        return made
    return made.as_subclass(OnHost if host else torch.Tensor)
