"""What a contract expects of one output. The rooms that judge (`harness.checks`) read these; contracts build them in fp64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.contracts._torch import torch


@dataclass(frozen=True)
class Close:
    """Values that must agree within a rounding budget, element by element.

    value      fp64 golden values, any shape; may hold inf (must then be matched exactly)
    magnitude  fp64, broadcastable to value: the sum of |terms| of the last reduction (for O = P V: P |V|)
    spread     fp64, broadcastable, or None (as magnitude): the root of the sum of squares of those terms, by which errors of random sign grow
    operand    relative rounding of an operand before that reduction (unit roundoff of bf16 where P is rounded to bf16); 0 for none
    inner      fp64, broadcastable: absolute error allowed from inner stages (scores, exponentials)
    terms      length of the reduction, for the accumulation error in fp32
    dtype      what the output must be; None: any float
    undefined  bool, broadcastable, or None: elements whose value the contract leaves open
    """

    value: torch.Tensor
    magnitude: torch.Tensor
    spread: torch.Tensor | None = None
    operand: float = 0.0
    inner: torch.Tensor | float = 0.0
    terms: int = 1
    dtype: torch.dtype | None = None
    undefined: torch.Tensor | None = None


@dataclass(frozen=True)
class Exact:
    """Values that must be equal (integers, copies, masks): `value` any dtype; `where` bool marks what is defined (None: all).

    `dtype` None accepts any integer width for integers; NaN equals NaN.
    """

    value: torch.Tensor
    where: torch.Tensor | None = None
    dtype: torch.dtype | None = None


@dataclass(frozen=True)
class Filtered:
    """A filtered and renormalised distribution per row, [rows, vocab].

    weights    fp64 >= 0: mass before renormalisation
    required   bool: tokens every correct rule keeps
    allowed    bool: tokens a correct rule may keep; between the two lies the band that ties and summation order decide
    kept       int64 [rows] or None: exactly how many tokens are kept (declared tie policy `exactly-k`); -1 where the band decides
    most       int64 [rows] or None: the most tokens that any correct rule keeps, where ties leave open which
    renormalise False where the kept weights must stay as they are
    inner      fp64, broadcastable: relative error allowed in each weight from inner stages (exponentials of rounded logits)
    """

    weights: torch.Tensor
    required: torch.Tensor
    allowed: torch.Tensor
    kept: torch.Tensor | None = None
    renormalise: bool = True
    inner: torch.Tensor | float = 0.0
    most: torch.Tensor | None = None


@dataclass(frozen=True)
class OneOf:
    """Token ids [rows] or [rows, draws], each in the row's allowed set: `allowed` bool [rows, vocab]; `valid` bool [rows] or None
    marks rows with a defined answer (in the others any id in [0, vocab) is right)."""

    allowed: torch.Tensor
    valid: torch.Tensor | None = None


@dataclass(frozen=True)
class Judged:
    """An output that only the contract can judge: `judge(actual)` returns None or (reason, one or more lines of explanation).

    `reason` is one of the mismatch reasons, for example `invariant`, `support`. Use it where outputs depend on each other.
    """

    judge: Callable[[Any], tuple[str, str] | None]


@dataclass(frozen=True)
class Instead:
    """Another distribution that draws may follow by a known mistake: `weights` fp64 [rows, vocab], 0 where nothing is drawn."""

    reason: str
    text: str
    weights: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Drawn(OneOf):
    """Token ids as `OneOf`, drawn in proportion to `weights` from what a correct rule keeps.

    weights   fp64 >= 0 [rows, vocab]: mass before the filters
    required  bool: tokens every correct rule keeps; with `allowed` it leaves the band that ties and summation order decide
    kept      int64 [rows] or None: how many tokens are kept, -1 where the band decides
    draws     ids a row; 0: any number
    watched   name -> token id of each row, int64 [rows], -1 for none: tokens asked about by name (the k-th, the one that crosses top-p)
    instead   the mistakes that a wrong distribution is held against, to name it
    gap       absolute error allowed in each probability, where a row does not sum to 1
    ids       how ids [rows, any number] are read off the output, -1 where there is no draw; None: the output is ids
    first     what the output must be before its draws are looked at
    """

    weights: torch.Tensor
    required: torch.Tensor
    kept: torch.Tensor | None = None
    draws: int = 0
    watched: Mapping[str, torch.Tensor] = field(default_factory=dict)
    instead: Callable[[], list[Instead]] | None = None
    gap: float = 0.0
    ids: Callable[[Any], torch.Tensor] | None = None
    first: Judged | None = None


Expected = Close | Exact | Filtered | OneOf | Judged
