"""Filters of probability rows: top_k_renorm, top_p_renorm, top_k_top_p_filter and min_p_filter."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, real
from harness.contracts.expected import Filtered
from harness.contracts.inputs import Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.rows import neighbours, row_by_row
from harness.contracts.relations.vocabulary import identity, permuted, powered, twice
from harness.contracts.sampling import filters
from harness.contracts.sampling.distributions import BATCH, DTYPE, FORM, VALUES, VOCAB, column, of_row, per_row, probs

TIES = ("all", "exactly-k")
ORDER = ("joint", "top-k-first")
MASS = ("renormalised", "original")
TOP_K = number("k", "k", "tokens kept; 0, negative, or the vocabulary and more: all", least=None, search=(-1, 2048))
TOP_P = real("p", "p", "mass kept; 1: all", search=(0.9, 0.5, 0.1, 0.95, 0.99, 0.999999, 1.0, 1e-6, 0.0))


def k_of(case: Case, device: str) -> torch.Tensor | int | float:
    """top_k in the form of the case: int, or int32 [batch]; `mixed` cycles through k, 1, vocab, 2, vocab + 1."""
    return per_row(case.form, case.k, case.batch, (1, case.vocab, 2, case.vocab + 1), torch.int32, device)


def p_of(case: Case, device: str) -> torch.Tensor | int | float:
    """top_p in the form of the case: float, or fp32 [batch]; `mixed` cycles through p, 1, 0.5, 0.02."""
    return per_row(case.form, case.p, case.batch, (1.0, 0.5, 0.02), torch.float32, device)


_EVERY = {"strided": strided("probs"), "permuted": permuted("probs")}


class Filter(ABC):
    """What the four filters share: one output `probs` of the input's shape, judged by support and then by value."""

    outputs: tuple[str, ...] = ("probs",)
    semantics: dict[str, tuple[str, ...]] = {"ties": TIES}

    @abstractmethod
    def inputs(self, case: Case, draw: Draw) -> Inputs: ...

    @abstractmethod
    def support(self, x: Inputs, semantics: Semantics) -> filters.Support: ...

    @abstractmethod
    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]: ...

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Any]:
        s = self.support(x, semantics)
        return {"probs": Filtered(x.probs.double(), s.required, s.allowed, s.kept, semantics.get("mass") != "original", most=s.most)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Row by row in plain Python."""
        out = torch.zeros(x.probs.shape, dtype=torch.float64)
        for row, p in enumerate(x.probs.double().tolist()):
            kept = self.keep_row(x, row, p, semantics)
            whole = 1.0 if semantics.get("mass") == "original" else sum(p[i] for i in kept)
            for i in kept:
                out[row, i] = p[i] / whole
        return {"probs": out}

    def work(self, case: Case) -> Work:
        elements = case.batch * case.vocab
        return Work(3 * elements, elements * (dtype_of(case.dtype).itemsize + 4))

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        """Served sampling parameters at the model's vocabulary."""
        for batch in (1,) if small else (1, 8, 64):
            for k, p in ((50, 0.95), (20, 0.8)):
                served = {"k": k, "p": p, "min_p": 0.05}
                axes: Any = self.axes  # type: ignore[attr-defined]  # every contract declares them
                yield {"batch": batch, "vocab": g.model.vocab, "form": "rows", **{a.name: served[a.name] for a in axes if a.name in served}}


def _probs(case: Case, draw: Draw) -> torch.Tensor:
    return probs(draw, case.batch, case.vocab, case.values, dtype_of(case.dtype))


@contract("sampling")
class top_k_renorm(Filter):
    """Keep the k most probable tokens of each row, set the rest to 0 and renormalise; k <= 0 and k >= vocab keep everything.

    probs [batch, vocab] -> probs [batch, vocab]. top_k int, or int32 [batch].
    """

    axes = (BATCH, VOCAB, TOP_K, FORM, DTYPE, VALUES)
    relations = {
        **_EVERY,
        **row_by_row("batch", "probs", "top_k"),
        "neighbours": neighbours(top_k=1),
        "twice": twice("probs"),
        "powered": powered(),
        "identity": identity(top_k=math.inf),
    }

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, probs=_probs(case, draw), top_k=k_of(case, draw.device))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        return filters.top_k(x.probs, column(x.top_k, x.case.batch, torch.int64, x.device), semantics["ties"])

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return filters.kept_by_rank(p, int(of_row(x.top_k, row)), filters.OFF, semantics["ties"])


@contract("sampling")
class top_p_renorm(Filter):
    """Keep the smallest set of most probable tokens whose mass reaches top_p (at least one), set the rest to 0 and renormalise.

    probs [batch, vocab] -> probs [batch, vocab]. top_p float, or fp32 [batch], in [0, 1]; 1 keeps everything.
    """

    axes = (BATCH, VOCAB, TOP_P, FORM, DTYPE, VALUES)
    relations = {**_EVERY, **row_by_row("batch", "probs", "top_p"), "neighbours": neighbours(top_p=0.02), "identity": identity(top_p=1.0)}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, probs=_probs(case, draw), top_p=p_of(case, draw.device))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        return filters.top_p(x.probs, column(x.top_p, x.case.batch, torch.float64, x.device), semantics["ties"])

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return filters.kept_by_rank(p, 0, of_row(x.top_p, row), semantics["ties"])


@contract("sampling")
class top_k_top_p_filter(Filter):
    """top-k and top-p together, either on the row's own mass (`joint`) or top-p on what top-k leaves, renormalised (`top-k-first`).

    probs [batch, vocab] -> probs [batch, vocab]; parameters as in top_k_renorm and top_p_renorm. mass `original`: kept
    values stay as they were.
    """

    axes = (BATCH, VOCAB, TOP_K, TOP_P, FORM, DTYPE, VALUES)
    relations = {
        **_EVERY,
        **row_by_row("batch", "probs", "top_k", "top_p"),
        "neighbours": neighbours(top_k=1, top_p=0.02),
        "identity": identity(top_k=math.inf, top_p=1.0),
    }
    semantics = {"order": ORDER, "ties": TIES, "mass": MASS}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, probs=_probs(case, draw), top_k=k_of(case, draw.device), top_p=p_of(case, draw.device))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        return both(x, semantics)

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return filters.kept_by_rank(p, int(of_row(x.top_k, row)), of_row(x.top_p, row), semantics["ties"], semantics["order"])


@contract("sampling")
class min_p_filter(Filter):
    """Keep every token at least min_p times as probable as the row's best one, set the rest to 0 and renormalise.

    probs [batch, vocab] -> probs [batch, vocab]. min_p float, or fp32 [batch], in [0, 1]. mass as in top_k_top_p_filter.
    """

    axes = (BATCH, VOCAB, real("min_p", "mp", "least share of the best token's probability", search=(0.1, 0.05, 0.5, 0.9, 0.0, 1.0, 1e-6)), FORM, DTYPE, VALUES)
    relations = {
        **_EVERY,
        **row_by_row("batch", "probs", "min_p"),
        "neighbours": neighbours(min_p=0.9),
        "twice": twice("probs"),
        "powered": powered(compared=False),
        "identity": identity(min_p=0.0),
    }
    semantics = {"mass": MASS}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        return Inputs(case, draw.device, probs=_probs(case, draw), min_p=min_p_of(case, draw.device))

    def support(self, x: Inputs, semantics: Semantics) -> filters.Support:
        return filters.min_p(x.probs, column(x.min_p, x.case.batch, torch.float64, x.device))

    def keep_row(self, x: Inputs, row: int, p: list[float], semantics: Semantics) -> list[int]:
        return above_share(p, of_row(x.min_p, row))


def min_p_of(case: Case, device: str) -> torch.Tensor | int | float:
    """min_p in the form of the case: float, or fp32 [batch]; `mixed` cycles through min_p, 0, 1, 0.3."""
    return per_row(case.form, case.min_p, case.batch, (0.0, 1.0, 0.3), torch.float32, device)


def above_share(p: list[float], share: float) -> list[int]:
    """The second formula of min-p: ids by a plain comparison of ratios."""
    best = max(p)
    return [i for i, value in enumerate(p) if value > 0 and value / best >= share]


def both(x: Inputs, semantics: Semantics) -> filters.Support:
    """The support of x.top_k and x.top_p together."""
    k = column(x.top_k, x.probs.shape[0], torch.int64, x.device)
    target = column(x.top_p, x.probs.shape[0], torch.float64, x.device)
    return filters.nucleus(x.probs, k, target, semantics["ties"], semantics["order"])
