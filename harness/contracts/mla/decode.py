"""mla_decode: one query a request against a paged latent cache, weights absorbed (576 = 512 latent + 64 rope, values the 512)."""

from __future__ import annotations

import math

from harness.contracts import rounding
from harness.contracts._torch import torch
from harness.contracts.attending import attend, attend_by_chunks, natural
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Close
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.paging import LENGTHS, page_table, ragged
from harness.contracts.registry import Semantics, Work, contract

LATENT, ROPE, NOPE = 512, 64, 128
SCALE = 1 / math.sqrt(NOPE + ROPE)
LSE = {"lse": ("natural", "base-2"), "fp32_dot": ("ieee", "tf32")}


class MlaInputs(Inputs):
    """`q` is the joined query, `kv` the joined pool; q_nope, q_pe, ckv, kpe are views of them."""

    @property
    def q_nope(self) -> torch.Tensor:
        return self.q[..., :LATENT]

    @property
    def q_pe(self) -> torch.Tensor:
        return self.q[..., LATENT:]

    @property
    def ckv(self) -> torch.Tensor:
        return self.kv[..., :LATENT]

    @property
    def kpe(self) -> torch.Tensor:
        return self.kv[..., LATENT:]


@contract("mla")
class mla_decode:
    """Absorbed multi-head latent attention, one query token a request.

    q [batch, heads, 576]; kv [pages, page_size, 576]; qo_indptr, kv_indptr (over pages) int32 [batch + 1]; kv_indices int32
    (scattered page ids); kv_len int32 [batch] tokens; scale 1/sqrt(192) -> o [batch, heads, 512], lse [batch, heads] fp32.
    A request without keys gives o = 0 and lse = -inf.
    """

    axes = (
        number("batch", "b", "requests"),
        number("heads", "h", "query heads on this rank"),
        number("length", "s", "longest KV length in tokens"),
        number("page", "pg", "page size in tokens", default=1),
        words("dtype", DTYPES, "dtype of queries and cache"),
        words("lengths", LENGTHS, "KV lengths of the requests", default="uniform"),
    )
    outputs = ("o", "lse")
    semantics = LSE

    def inputs(self, case: Case, draw: Draw) -> MlaInputs:
        dtype = dtype_of(case.dtype)
        pages = page_table(draw, ragged(draw, case.batch, case.length, case.lengths), case.page)
        return MlaInputs(
            case,
            draw.device,
            q=draw.normal(case.batch, case.heads, LATENT + ROPE, dtype=dtype),
            kv=draw.normal(pages.count, case.page, LATENT + ROPE, dtype=dtype),
            qo_indptr=torch.arange(case.batch + 1, dtype=torch.int32, device=draw.device),
            kv_indptr=pages.indptr,
            kv_indices=pages.indices,
            kv_len=pages.lengths,
            slots=pages.slots,
            scale=SCALE,
        )

    def reference(self, x: MlaInputs, semantics: Semantics) -> dict[str, Close]:
        flat = x.kv.view(-1, LATENT + ROPE)
        dot = rounding.dot_roundoff(x.q.dtype, semantics["fp32_dot"])
        rows = []
        for request, slots in enumerate(x.slots):
            kv = flat[slots][:, None]
            rows.append(attend(x.q[request : request + 1], kv, kv[..., :LATENT], x.scale, dot=dot))
        lse = torch.cat([row.lse for row in rows])
        return {
            "o": Close(
                torch.cat([row.o for row in rows]),
                torch.cat([row.magnitude for row in rows]),
                operand=rounding.operand_roundoff(x.q.dtype, semantics["fp32_dot"]),
                inner=torch.cat([row.inner for row in rows]),
                terms=x.case.length,
                dtype=x.q.dtype,
            ),
            "lse": Close(lse, lse.abs(), inner=torch.cat([row.lse_inner for row in rows]), dtype=torch.float32),
        }

    def second(self, x: MlaInputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        flat = x.kv.view(-1, LATENT + ROPE)
        rows = []
        for request, slots in enumerate(x.slots):
            kv = flat[slots][:, None]
            rows.append(attend_by_chunks(x.q[request : request + 1], kv, kv[..., :LATENT], x.scale))
        return {"o": torch.cat([o for o, _ in rows]), "lse": torch.cat([lse for _, lse in rows])}

    def convert(self, x: MlaInputs, outputs: dict[str, torch.Tensor], semantics: Semantics) -> dict[str, torch.Tensor]:
        return natural(outputs, semantics)

    def work(self, case: Case) -> Work:
        size = dtype_of(case.dtype).itemsize
        tokens = case.batch * case.length
        query = case.batch * case.heads * (LATENT + ROPE + LATENT) * size
        return Work(2 * tokens * case.heads * (2 * LATENT + ROPE), tokens * (LATENT + ROPE) * size + query)
