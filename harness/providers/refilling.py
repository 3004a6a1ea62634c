"""What a provider's `refill(x)` is made of: buffers of the longest call, overwritten in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def overwrite(buffers: Iterable[Any], values: Iterable[Any]) -> None:
    """Copies each tensor into the leading corner of its buffer (None: there is none); what lies beyond stays, as in a server's buffers."""
    for buffer, value in zip(buffers, values, strict=True):
        if buffer is not None:
            buffer[tuple(slice(size) for size in value.shape)].copy_(value)
