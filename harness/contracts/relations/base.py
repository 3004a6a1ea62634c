"""What a relation is, and those that hold for every op: they need to know nothing of what its inputs mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case
from harness.contracts.expected import Close
from harness.contracts.inputs import Inputs

Outputs = dict[str, Any]
MARGIN = 16  # elements between rows that lie apart


def same(x: Inputs, outputs: Outputs) -> list[Inputs]:
    """The inputs as they are."""
    return [x]


def only(x: Inputs, called: list[Outputs]) -> Outputs:
    """The outputs of the one varied call as they are."""
    return called[0]


def whole(x: Inputs, outputs: Outputs) -> Outputs:
    """Every output of the plain call."""
    return outputs


def nothing(x: Inputs, called: list[Outputs]) -> Outputs:
    """No output: the varied call is judged by itself alone."""
    return {}


def none_of(x: Inputs, outputs: Outputs) -> Outputs:
    """No output of the plain call, beside `nothing`."""
    return {}


def any_case(case: Case) -> str | None:
    """A relation that fits every case."""
    return None


@dataclass(frozen=True)
class Relation:
    """A law between a plain call and varied ones. Each varied call is judged by its own reference too.

    doc      what is varied, in words that follow `the call with`
    vary     (x, the plain call's outputs) -> inputs of each varied call; a copy of x where only some fields change (`varied`)
    back     (x, outputs of the varied calls) -> outputs to hold against the plain call's; it is applied to error budgets too, so it may
             only choose and arrange elements, unless `slack` is given
    part     (x, outputs) -> what of the plain call's outputs is held against them; empty: the varied calls are judged by themselves alone
    slack    (golden values of the varied calls, their budgets) -> budgets of what `back` makes of them
    promise  the word under which a provider promises equality to the bit (`repeat`, `slots`, ...); else they agree within both budgets
    how      how the varied call is made: as any, on another stream beside other work, or replayed from a captured graph (devices alone; not
             for ops that work in place, which a second replay would do twice); `refilled`: captured with the inputs of `captured`,
             which the provider's `refill` overwrites before the replays; `process`: none is made, two processes' plain calls are compared
    captured x -> the inputs that its buffers hold while a graph is captured (`refilled`)
    off      the varied call has a flag turned off: the results must differ, or the flag is ignored
    unfit    why the law says nothing of a case, or None; there is no such case then
    nbytes   memory that the varied inputs take beyond the plain ones
    """

    doc: str
    vary: Callable[[Any, Outputs], list[Inputs]] = same
    back: Callable[[Any, list[Outputs]], Outputs] = only
    part: Callable[[Any, Outputs], Outputs] = whole
    slack: Callable[[list[dict[str, Close]], list[Outputs]], Outputs] | None = None
    promise: str = ""
    how: str = "call"
    captured: Callable[[Any], Any] = lambda x: x
    off: bool = False
    unfit: Callable[[Case], str | None] = any_case
    nbytes: Callable[[Case], int] = lambda case: 0

    @property
    def on_a_device(self) -> bool:
        """Whether it needs streams and graphs."""
        return self.how in ("stream", "replay", "refilled")


def varied(x: Any, point: Mapping[str, Any] | None = None, /, **fields: Any) -> Any:
    """The inputs with some fields, and some of the case's values, replaced; nothing of the reference that was computed for them is kept."""
    clone = x.copy_with(**fields, case=Case(x.case.op, x.case.id, {**x.case.point, **(point or {})}))
    clone.__dict__.pop("memo", None)
    return clone


def _junk(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Memory in which nothing should be read: NaN, or ones where no float belongs."""
    if like.is_floating_point():
        return torch.full(shape, math.nan, device=like.device).to(like.dtype)
    return torch.ones(shape, dtype=like.dtype, device=like.device)


def _behind(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as the tail of a larger tensor; views into wider ones stay as they are."""
    if tensor.dim() == 0 or not tensor.numel() or not tensor.is_contiguous():
        return tensor
    memory = _junk((len(tensor) + 1, *tensor.shape[1:]), tensor)
    memory[1:].copy_(tensor)
    return memory[1:]


def _offset(x: Inputs, outputs: Outputs) -> list[Inputs]:
    return [varied(x, None, **{name: _behind(value) for name, value in vars(x).items() if isinstance(value, torch.Tensor)})]


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with rows further apart than they are long, as a slice of a fused projection has them."""
    width = tensor[0].numel() if len(tensor) else 0
    if not width:
        return tensor
    memory = _junk((len(tensor), width + MARGIN), tensor)
    memory[:, :width].copy_(tensor.reshape(len(tensor), width))
    return memory[:, :width].view(tensor.shape) if tensor.dim() > 1 else memory[:, 0]


def strided(*names: str) -> Relation:
    """These inputs as views whose rows lie apart, NaN between them."""

    def vary(x: Inputs, outputs: Outputs) -> list[Inputs]:
        return [varied(x, None, **{name: _apart(getattr(x, name)) for name in names})]

    return Relation(f"rows of {' and '.join(names)} further apart in memory than they are long", vary)


STORAGE = Relation("every input tensor the tail of a larger one (a storage offset)", _offset)

DETERMINISM = {
    "repeat": Relation("the same inputs and seed again", promise="repeat"),
    "process": Relation("the same inputs and seed in another process", vary=lambda x, outputs: [], promise="process", how="process"),
    "stream": Relation("the same inputs on another stream while the default one is busy", promise="repeat", how="stream"),
    "replay": Relation("the same inputs, captured in a graph and replayed twice", how="replay"),
}
