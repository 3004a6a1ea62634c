"""How a prepared provider is called on a device beside the ordinary way: on a stream of its own, and replayed from a graph, with other lengths too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.contracts import Inputs
from harness.machine.graphs import capture
from harness.machine.memory import Scratch

Launch = Callable[[Any, Scratch], Any]
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


class Replayed:
    """Captures the call and replays it twice: the second replay's outputs are returned; `replays` holds what each gave, as it gave it."""

    def __init__(self) -> None:
        self.replays: list[Any] = []
        self.failed = False

    def __call__(self, made: Any, scratch: Scratch) -> Any:
        self.failed = True  # a capture that breaks off leaves a context that nobody should go on with
        torch.cuda.empty_cache()  # the private memory of earlier graphs, which other workers may need
        graph, returned = capture(made.run)

        def replay() -> Any:
            for tensor in scratch.outputs.values():  # what a replay leaves unwritten must not look like an earlier result
                tensor.view(torch.uint8).fill_(0xFF if tensor.is_floating_point() else 0x5A)
            graph.replay()
            torch.cuda.synchronize()
            return copied(dict(scratch.outputs) if returned is None else returned)

        self.replayed(made, replay)
        self.failed = False
        return None if returned is None else self.replays[-1]

    def replayed(self, made: Any, replay: Callable[[], Any]) -> None:
        """What is done with the captured graph."""
        self.replays = [replay(), replay()]


class Refilled(Replayed):
    """Captures the call with the provider's buffers refilled from the inputs `captured` and replays it so, which gives `first`; then as
    Replayed does, the buffers refilled from `given`."""

    def __init__(self, captured: Inputs, given: Inputs) -> None:
        super().__init__()
        self.captured, self.given = captured, given
        self.first: Any = None

    def __call__(self, made: Any, scratch: Scratch) -> Any:
        made.refill(self.captured)
        return super().__call__(made, scratch)

    def replayed(self, made: Any, replay: Callable[[], Any]) -> None:
        self.first = replay()
        made.refill(self.given)
        super().replayed(made, replay)


def copied(returned: Any) -> Any:
    """What a provider returned, in memory of its own."""
    if isinstance(returned, torch.Tensor):
        return returned.clone()
    if isinstance(returned, dict):
        return {name: copied(value) for name, value in returned.items()}
    return tuple(copied(value) for value in returned) if isinstance(returned, (tuple, list)) else returned
