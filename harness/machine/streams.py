"""How a prepared provider is called on a device beside the ordinary way: on a stream of its own, and replayed from a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.machine.graphs import capture
from harness.machine.memory import Scratch

Launch = Callable[[Any, Scratch], Any]
Step = Callable[[Any], None]
_BUSY = 100_000_000  # cycles that the default stream is kept at work, some 50 ms


def plainly(made: Any, scratch: Scratch) -> Any:
    """One call."""
    return made.run()


def beside(made: Any, scratch: Scratch) -> Any:
    """One call on another stream while the default one is at work: what is launched on the wrong stream comes too late to be read."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda._sleep(_BUSY)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        returned = copied(made.run())
        written = {name: tensor.clone() for name, tensor in scratch.outputs.items()}
    stream.synchronize()
    scratch.outputs.update(written)
    return returned


def as_it_is(made: Any) -> None:
    """No step: the provider is left as it is."""


class Replayed:
    """Captures the call and replays it twice: the second replay's outputs are returned; `replays` holds what each gave, as it gave it.

    `before` and `between` are called with the provider before the capture, and between it and the replays.
    """

    def __init__(self, before: Step = as_it_is, between: Step = as_it_is) -> None:
        self.before, self.between = before, between
        self.replays: list[Any] = []
        self.failed = False

    def __call__(self, made: Any, scratch: Scratch) -> Any:
        self.before(made)
        self.failed = True  # a capture that breaks off leaves a context that nobody should go on with
        graph, returned = capture(made.run)
        for tensor in scratch.outputs.values():  # what a replay leaves unwritten must not look like the warm-up's result
            tensor.view(torch.uint8).fill_(0xFF if tensor.is_floating_point() else 0x5A)
        self.between(made)
        for _ in range(2):
            graph.replay()
            torch.cuda.synchronize()
            self.replays.append(copied(dict(scratch.outputs) if returned is None else returned))
        self.failed = False
        return None if returned is None else self.replays[-1]


def refilled(captured: Any, replayed: Any) -> Replayed:
    """Captures the call with its buffers refilled from the inputs `captured`, and replays it with those of `replayed`."""
    return Replayed(lambda made: made.refill(captured), lambda made: made.refill(replayed))


def copied(returned: Any) -> Any:
    """What a provider returned, in memory of its own."""
    if isinstance(returned, torch.Tensor):
        return returned.clone()
    if isinstance(returned, dict):
        return {name: copied(value) for name, value in returned.items()}
    return tuple(copied(value) for value in returned) if isinstance(returned, (tuple, list)) else returned
