"""concat_mla_k and concat_mla_absorb_q: the copies that put keys and queries together before MLA's attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Exact
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.mla.absorbed import LATENT, NOPE, ROPE
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations.heads import padded
from harness.contracts.relations.rows import row_by_row

_AXES = (
    number("tokens", "t", "tokens", least=0),
    number("heads", "h", "heads on this rank"),
    words("dtype", DTYPES, "dtype"),
    words("layout", ("sliced", "packed"), "sources as the model holds them (views into wider tensors), or contiguous", default="sliced"),
)


def _source(draw: Draw, shape: tuple[int, int, int], wide: int, at: int, case: Case) -> torch.Tensor:
    """[tokens, heads, dim]; sliced: columns `at` on of a tensor `wide` columns wide."""
    tokens, heads, dim = shape
    if case.layout == "packed":
        return draw.normal(*shape, dtype=dtype_of(case.dtype))
    return draw.normal(tokens, heads, wide, dtype=dtype_of(case.dtype))[..., at : at + dim]


@contract("mla")
class concat_mla_k:
    """K of MLA's explicit form: k_nope [tokens, heads, 128] beside k_rope [tokens, 1, 64], the same for every head -> k [tokens, heads, 192].

    sliced: k_nope is a view into the up-projected K and V, k_rope one into the latent row.
    """

    axes = (
        *_AXES,
        number("nope", "np", "head dimension without rope", default=NOPE, search=(16, 264)),
        number("v_dim", "dv", "columns of V beside K", default=128, search=(16, 264)),
    )
    outputs = ("k",)
    relations = {**row_by_row("tokens", "k_nope", "k_rope"), **padded({"k_nope": 1}, {"k": 1})}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        nope = _source(draw, (case.tokens, case.heads, case.nope), case.nope + case.v_dim, 0, case)
        return Inputs(case, draw.device, k_nope=nope, k_rope=_source(draw, (case.tokens, 1, ROPE), LATENT + ROPE, LATENT, case))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        k = torch.cat((x.k_nope, x.k_rope.expand(-1, x.case.heads, -1)), -1)
        return {"k": Exact(k, dtype=k.dtype)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Head by head."""
        heads = [torch.nn.functional.pad(x.k_nope[:, h], (0, ROPE)) + torch.nn.functional.pad(x.k_rope[:, 0], (x.case.nope, 0)) for h in range(x.case.heads)]
        return {"k": torch.stack(heads, 1)}

    def work(self, case: Case) -> Work:
        return Work(0, case.tokens * (case.heads * (2 * case.nope + ROPE) + ROPE) * dtype_of(case.dtype).itemsize)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "mla":
            for tokens in (3,) if small else (1, 64, 4096):
                dims = {"nope": g.model.nope, "v_dim": g.model.v_dim}
                yield {"tokens": tokens, "heads": g.heads, "dtype": "fp16" if small else "bf16", **dims}


@contract("mla")
class concat_mla_absorb_q:
    """q of MLA's absorbed form: q_nope [tokens, heads, 512] beside q_rope [tokens, heads, 64] -> q [tokens, heads, 576].

    sliced: q_rope is a view into the query projection.
    """

    axes = _AXES
    outputs = ("q",)
    relations = {**row_by_row("tokens", "q_nope", "q_rope"), **padded({"q_nope": 1, "q_rope": 1}, {"q": 1})}

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        nope = draw.normal(case.tokens, case.heads, LATENT, dtype=dtype_of(case.dtype))
        return Inputs(case, draw.device, q_nope=nope, q_rope=_source(draw, (case.tokens, case.heads, ROPE), NOPE + ROPE, NOPE, case))

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        return {"q": Exact(torch.cat((x.q_nope, x.q_rope), -1), dtype=x.q_nope.dtype)}

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        return {"q": torch.stack([*x.q_nope.unbind(-1), *x.q_rope.unbind(-1)], -1)}

    def work(self, case: Case) -> Work:
        return Work(0, 2 * case.tokens * case.heads * (LATENT + ROPE) * dtype_of(case.dtype).itemsize)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "mla":
            for tokens in (3,) if small else (1, 128):
                yield {"tokens": tokens, "heads": g.heads, "dtype": "fp16" if small else "bf16"}
