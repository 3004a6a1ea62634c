"""top_k_renorm and top_p_renorm: filter probability rows and renormalise what is left."""

from __future__ import annotations

from abc import ABC, abstractmethod

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real
from harness.contracts.expected import Filtered
from harness.contracts.inputs import Draw, Inputs, dtype_of
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.sampling import filters
from harness.contracts.sampling.distributions import BATCH, DTYPE, FORM, VALUES, VOCAB, column, per_row, probs

TIES = {"ties": ("all", "exactly-k")}


class _Renorm(ABC):
    outputs = ("probs",)
    semantics = TIES

    @abstractmethod
    def support(self, x: Inputs, ties: str) -> filters.Support: ...

    @abstractmethod
    def keep_row(self, x: Inputs, row: int, ties: str) -> list[int]: ...

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Filtered]:
        s = self.support(x, semantics["ties"])
        return {"probs": Filtered(x.probs.double(), s.required, s.allowed, s.kept)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        out = torch.zeros(x.probs.shape, dtype=torch.float64)
        for row, p in enumerate(x.probs.double().tolist()):
            kept = self.keep_row(x, row, semantics["ties"])
            for i in kept:
                out[row, i] = p[i] / sum(p[j] for j in kept)
        return {"probs": out}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab
        return Work(3 * elements, elements * (dtype_of(case.dtype).itemsize + 4))


@contract("sampling")
class top_k_renorm(_Renorm):
    """Keep the k most probable tokens of each row, set the rest to 0 and renormalise; k <= 0 and k >= vocab keep everything.

    probs [batch, vocab] -> probs [batch, vocab]. top_k int, or int32 [batch].
    """

    axes = (BATCH, VOCAB, number("k", "k", "tokens kept"), FORM, DTYPE, VALUES)

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        k = per_row(case.form, case.k, case.batch, (1, case.vocab, 2, case.vocab + 1), torch.int32, draw.device)
        return Inputs(case, draw.device, probs=probs(draw, case.batch, case.vocab, case.values, dtype_of(case.dtype)), top_k=k)

    def support(self, x: Inputs, ties: str) -> filters.Support:
        return filters.top_k(x.probs, column(x.top_k, x.case.batch, torch.int64, x.device), ties)

    def keep_row(self, x: Inputs, row: int, ties: str) -> list[int]:
        k = int(x.top_k[row]) if isinstance(x.top_k, torch.Tensor) else x.top_k
        return filters.kept_by_rank(x.probs[row].double().tolist(), k, 2.0, ties)


@contract("sampling")
class top_p_renorm(_Renorm):
    """Keep the smallest set of most probable tokens whose mass reaches top_p (at least one), set the rest to 0 and renormalise.

    probs [batch, vocab] -> probs [batch, vocab]. top_p float, or fp32 [batch], in [0, 1]; 1 keeps everything.
    """

    axes = (BATCH, VOCAB, real("p", "p", "mass kept"), FORM, DTYPE, VALUES)

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        p = per_row(case.form, case.p, case.batch, (1.0, 0.5, 0.0), torch.float32, draw.device)
        return Inputs(case, draw.device, probs=probs(draw, case.batch, case.vocab, case.values, dtype_of(case.dtype)), top_p=p)

    def support(self, x: Inputs, ties: str) -> filters.Support:
        return filters.top_p(x.probs, column(x.top_p, x.case.batch, torch.float64, x.device), ties)

    def keep_row(self, x: Inputs, row: int, ties: str) -> list[int]:
        p = float(x.top_p[row]) if isinstance(x.top_p, torch.Tensor) else x.top_p
        return filters.kept_by_rank(x.probs[row].double().tolist(), 0, p, ties)
