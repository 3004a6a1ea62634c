"""A call captured in a device graph (CUDA's or HIP's, by the same names in torch)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from harness.errors import Unsupported


class NoGraph(Unsupported):
    """The call cannot be captured; the message says why. The device context is not to be trusted any more."""


def capture(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """The graph of a call, warmed up first on a stream of its own, and what the call returned while it was captured.

    Raises NoGraph. What torch's own context manager does first, handing all cached memory back to the driver, is left to the caller: it
    takes milliseconds, and more when the next cell asks for the memory again.
    """
    warm = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(warm):
            graph.capture_begin()
            try:
                returned = call()
            except BaseException:
                with contextlib.suppress(Exception):  # it fails too, with less to say
                    graph.capture_end()
                raise
            graph.capture_end()
    except Exception as error:
        raise NoGraph(f"the call cannot be captured in a graph: {type(error).__name__}: {str(error)[:200]}") from error
    return graph, returned
