"""SGLang's `Sampler` with each of its sampling back ends, as providers of served_sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.offline.routes.linking import Undescribed
from harness.providers.registry import implements
from harness.served.sampling.driving import Step
from harness.served.sampling.layer import layer

LINKED = "the layer is linked out of SGLang's installed sources, which do not import without a server; torch.compile is off"
HASHED = "on a CPU the hash of a seed is the harness's own: SGLang's asks for sgl_kernel there"
_TIMES = 64  # copies of the requests in one call
_LOGITS = 1 << 23  # of one call, so that it stays within bounded memory


@contextlib.contextmanager
def described() -> Iterator[None]:
    """What the layer reaches and nobody described is no fault of it."""
    try:
        yield
    except Undescribed as error:
        raise Unsupported(f"this SGLang's sampling layer cannot be driven here: {error}") from error


class Served:
    """One step of the server, with every request in the batch many times, made again until each is drawn from as often as asked."""

    backend = "pytorch"

    def prepare(self, x: Any, scratch: Any) -> None:
        self.x = x
        self.times = max(1, min(_TIMES, x.draws, _LOGITS // max(1, x.logits.numel())))
        with described():
            made = layer(self.backend, x.case.mode == "seeded", x.device)
            self.step = Step(made, x, self.times)

    def _draws(self) -> Any:
        import torch

        return torch.cat([self.step.sample(first) for first in range(0, self.x.draws, self.times)], 1)[:, : self.x.draws]

    def run(self) -> Any:
        import torch

        with described():
            return self._draws() if self.x.case.mode == "free" else torch.stack((self._draws(), self._draws()), -1)


@implements(
    "served_sample",
    library="sglang",
    name="served_sampler_pytorch",
    platforms={"cuda", "rocm", "cpu"},
    notes=(LINKED, HASHED),
    promises=("repeat", "process", "slots", "alone"),
)
class ServedPytorch(Served):
    """--sampling-backend pytorch: the default on ROCm and on a CPU, and with --enable-deterministic-inference."""


def _unseeded(case: Case) -> str | None:
    return "with seeds SGLang's server takes its pytorch back end" if case.mode == "seeded" else None


@implements(
    "served_sample",
    library="sglang",
    name="served_sampler_flashinfer",
    platforms={"cuda"},
    semantics={"ties_k": "all", "ties_p": "all", "order": "own"},
    accepts=_unseeded,
    notes=(LINKED,),
    promises=(),
)
class ServedFlashInfer(Served):
    """--sampling-backend flashinfer: the default on CUDA where FlashInfer is there."""

    backend = "flashinfer"
