"""kv_write: new keys and values into their slots of the paged pool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.contracts._torch import torch
from harness.contracts.attention.batch import CACHES, K_SCALE, V_SCALE, cache_dtype, v_dim
from harness.contracts.axes import Case, number, words
from harness.contracts.expected import Exact
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.models import Geometry
from harness.contracts.registry import Semantics, Work, contract
from harness.contracts.relations import strided
from harness.contracts.relations.pages import tokens_in_another_order


@contract("attention")
class kv_write:
    """Write k [tokens, kv_heads, dim] and v [tokens, kv_heads, v_dim] into k_pool and v_pool [pages, page, kv_heads, ...] at `loc`,
    int64 [tokens], distinct token slots (slot 0, which servers keep for padding, is not among them).

    Overwrites k_pool and v_pool; every other row must stay. Into an fp8 pool a value is divided by k_scale or v_scale (powers of
    two) and rounded to nearest, ties to even. Values are copied bit for bit otherwise.
    """

    axes = (
        number("tokens", "t", "new tokens", least=0),
        number("kv_heads", "kv", "key-value heads on this rank"),
        number("dim", "d", "head dimension of keys", default=128, search=(16, 264)),
        number("v_dim", "dv", "head dimension of values; 0: as dim", default=0, search=(16, 264)),
        number("page", "pg", "page size in tokens", default=1, search=(1, 128)),
        words("dtype", DTYPES, "dtype of the new keys and values"),
        words("cache", CACHES, "dtype of the pool: as the new rows, or an fp8 flavour", default="samekv"),
        words("scales", ("unit", "scaled"), "scaled: divided by k_scale and v_scale on the way into an fp8 pool", default="unit"),
        words("slots", ("scattered", "run"), "where the rows go: anywhere, or one after another", default="scattered"),
    )
    outputs = ("k_pool", "v_pool")
    mutates = ("k_pool", "v_pool")
    relations = {"strided": strided("k", "v"), "slots": tokens_in_another_order()}
    semantics: dict[str, tuple[str, ...]] = {}

    def impossible(self, case: Case) -> str | None:
        """Why there is no such case, or None."""
        return "scales apply on the way into an fp8 pool alone" if case.scales == "scaled" and case.cache == "samekv" else None

    def inputs(self, case: Case, draw: Draw) -> Inputs:
        pages = -(-(case.tokens + 1) // case.page) + 2
        room = pages * case.page
        loc = draw.permutation(room - 1)[: case.tokens] + 1 if case.slots == "scattered" else torch.arange(1, case.tokens + 1, device=draw.device)
        dtype, pool, scaled = dtype_of(case.dtype), cache_dtype(case), case.scales == "scaled"
        return Inputs(
            case,
            draw.device,
            k=draw.normal(case.tokens, case.kv_heads, case.dim, dtype=dtype),
            v=draw.normal(case.tokens, case.kv_heads, v_dim(case), dtype=dtype),
            k_pool=draw.normal(pages, case.page, case.kv_heads, case.dim, dtype=pool),
            v_pool=draw.normal(pages, case.page, case.kv_heads, v_dim(case), dtype=pool),
            loc=loc,
            k_scale=K_SCALE if scaled else 1.0,
            v_scale=V_SCALE if scaled else 1.0,
        )

    def reference(self, x: Inputs, semantics: Semantics) -> dict[str, Exact]:
        expected = {}
        for name, rows, scale in (("k_pool", x.k, x.k_scale), ("v_pool", x.v, x.v_scale)):
            pool = getattr(x, name)
            flat = pool.double().view(-1, *pool.shape[2:])
            narrowed = (rows.double() / scale).to(torch.float32).to(pool.dtype)  # exact in fp32
            flat[x.loc] = narrowed.double()
            expected[name] = Exact(flat.view(pool.shape).to(pool.dtype), dtype=pool.dtype)
        return expected

    def second(self, x: Inputs, semantics: Semantics) -> dict[str, torch.Tensor]:
        """Slot by slot: which new row, if any, a slot of the pool holds."""
        made = {}
        for name, rows, scale in (("k_pool", x.k, x.k_scale), ("v_pool", x.v, x.v_scale)):
            pool = getattr(x, name)
            slot = torch.arange(pool.shape[0] * pool.shape[1], device=x.device)
            hits = slot[:, None] == x.loc[None, :]
            new = (rows.float() * (1 / scale)).to(pool.dtype)[hits.int().argmax(1)]
            old = pool.view(-1, *pool.shape[2:])
            made[name] = torch.where(hits.any(1)[:, None, None], new.float(), old.float()).view(pool.shape).to(pool.dtype)
        return made

    def work(self, case: Case) -> Work:
        numbers = case.tokens * case.kv_heads * (case.dim + v_dim(case))
        return Work(0, numbers * (dtype_of(case.dtype).itemsize + cache_dtype(case).itemsize) + 8 * case.tokens)

    def for_model(self, g: Geometry, small: bool) -> Iterator[dict[str, Any]]:
        if g.model.kind == "gqa":
            for tokens in (3,) if small else (64, 4096):
                yield {"tokens": tokens, "kv_heads": g.kv_heads, "dim": g.model.head_dim, "dtype": "fp16" if small else "bf16"}
