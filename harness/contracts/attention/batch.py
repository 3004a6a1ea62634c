"""What the attention ops share: axes, the drawn inputs with their flags, and views of them for libraries that want another layout."""

from __future__ import annotations

import math

from harness.contracts._torch import torch
from harness.contracts.axes import Axis, Case, number, real, words
from harness.contracts.inputs import DTYPES, Draw, Inputs, dtype_of
from harness.contracts.paging import Pages, page_table

HEADS_IN, HEADS_OUT = {"q": 1, "sinks": 0}, {"o": 1, "lse": 1}  # the axis of the query heads

CACHES = ("samekv", "e4m3fn", "e4m3fnuz")
VALUES = ("random", "peaked", "flat", "low", "far", "poisoned")
K_SCALE, V_SCALE = 0.25, 0.5

SHAPE = (
    number("batch", "b", "requests", search=(1, 33)),
    number("heads", "h", "query heads on this rank"),
    number("kv_heads", "kv", "key-value heads on this rank; divides heads"),
)
LAYOUT = (
    number("dim", "d", "head dimension of queries and keys", default=128, search=(16, 264)),
    number("v_dim", "dv", "head dimension of values; 0: as dim", default=0, search=(16, 264)),
    number("page", "pg", "page size in tokens", default=1, search=(1, 128)),
    words("dtype", DTYPES, "dtype of queries, new keys and values, and outputs"),
    words("cache", CACHES, "dtype of the pool: as the queries, or an fp8 flavour", default="samekv"),
)
FLAGS: tuple[Axis, ...] = (
    real(
        "soft_cap",
        "cap",
        "soft cap c of the logits, c tanh(s / c); 0: none. Logits then reach twice the cap and more",
        default=0.0,
        least=0.0,
        search=(1.0, 5.0, 30.0, 50.0),
    ),
    words("sinks", ("nosinks", "sinks"), "a learned logit a head that takes mass and has no value", default="nosinks"),
    words("scales", ("unit", "scaled"), f"scaled: keys in the pool count times {K_SCALE}, values times {V_SCALE}", default="unit"),
    words(
        "values",
        VALUES,
        "queries random; 8 times larger (peaked); 128 times (far); zero (flat); every logit below -40,000 (low); "
        "pool NaN wherever no request has a key, slot 0 among them (poisoned)",
        default="random",
    ),
)
WINDOW = number("window", "w", "sliding window: a query sees its own position and this many before it; -1: no window", default=-1)

SEMANTICS = {
    "lse": ("natural", "base-2"),
    "lse_sinks": ("keys", "sinks"),  # whether lse counts the sinks' mass
    "mass": ("fp32", "operand"),  # operand: lse is the sum of weights already rounded for P V
    "fp32_dot": ("ieee", "tf32"),
    "tanh": ("exact", "approximate"),  # the hardware's tanh.approx of the soft cap
    # exact: products of the operands are exact and an fp8 cache is widened; products: each q k product is rounded to the query's
    # dtype; cache: q and the softmax weights are rounded to the cache's dtype; by-group: products where heads = kv_heads, else cache;
    # cached-prefix: as cache, but the keys after the prefix are read from the call's arguments, unrounded
    "arithmetic": ("exact", "products", "cache", "by-group", "cached-prefix"),
}


class AttentionInputs(Inputs):
    """q [tokens, heads, dim]; k_pool [pages, page, kv_heads, dim], v_pool [pages, page, kv_heads, v_dim]; q_len and prefix_len,
    lists of ints a request; kv_len int32 [batch]; qo_indptr int32 [batch + 1] over queries; kv_indptr int32 over pages;
    kv_indices int32 page ids; slots: an int64 tensor a request; scale, soft_cap, window, causal, k_scale, v_scale; sinks fp32
    [heads] (exact in bf16) or None. Keys and values are the pool's times k_scale and v_scale."""

    k_new: torch.Tensor  # of extend and verify: keys of the queries' own tokens
    v_new: torch.Tensor
    tree: torch.Tensor  # of verify

    @property
    def k_flat(self) -> torch.Tensor:
        """Keys by token slot, [slots, kv_heads, dim]."""
        return self.k_pool.view(-1, *self.k_pool.shape[2:])

    @property
    def v_flat(self) -> torch.Tensor:
        """Values by token slot, [slots, kv_heads, v_dim]."""
        return self.v_pool.view(-1, *self.v_pool.shape[2:])

    @property
    def last_page_len(self) -> torch.Tensor:
        """int32 [batch]: tokens in each request's last page, 0 for a request without keys."""
        page = self.case.page
        return torch.where(self.kv_len > 0, (self.kv_len - 1) % page + 1, 0).to(torch.int32)

    @property
    def block_table(self) -> torch.Tensor:
        """int32 [batch, most pages (at least 1)]: page ids a request, 0 where there is none."""
        counts = self.kv_indptr.diff()
        column = torch.arange(max(1, int(counts.max())), device=self.device)
        at = (self.kv_indptr[:-1, None] + column).clamp_max_(max(0, len(self.kv_indices) - 1)).long()
        ids = self.kv_indices[at] if len(self.kv_indices) else torch.zeros_like(at, dtype=torch.int32)
        return ids.masked_fill(column >= counts[:, None], 0).contiguous()

    def modified(self, rows: torch.Tensor, position: torch.Tensor, key: torch.Tensor) -> dict[str, torch.Tensor]:
        """`factor` and `bias` of attend for these rows of q [r, nq], their positions [r, nq, 1] and the keys [1, 1, nk]: none here."""
        return {}

    def modified_one(self, request: int) -> dict[str, torch.Tensor]:
        """The same for the second formula, of one request, without the leading dimension."""
        return {}

    def tokens(self, lengths: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """(indptr int32 [batch + 1], token slots int64) of each request's first `lengths` keys (default: all)."""
        chosen = self.slots if lengths is None else [slots[:n] for slots, n in zip(self.slots, lengths, strict=True)]
        return indptr([len(slots) for slots in chosen], self.device), torch.cat(chosen)


def indptr(lengths: list[int], device: str) -> torch.Tensor:
    """int32 [n + 1]: the running sum of the lengths."""
    bounds = [0]
    for n in lengths:
        bounds.append(bounds[-1] + n)
    return torch.tensor(bounds, dtype=torch.int32, device=device)


def cache_dtype(case: Case) -> torch.dtype:
    """The pool's dtype."""
    return {"samekv": dtype_of(case.dtype), "e4m3fn": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz}[case.cache]


def v_dim(case: Case) -> int:
    """The head dimension of values."""
    return case.v_dim or case.dim


def _behind(shift: int, pool: torch.Tensor) -> torch.Tensor:
    """The pool with that many pages of 3.0 before its own."""
    larger = torch.full((shift + pool.shape[0], *pool.shape[1:]), 3.0, dtype=pool.dtype, device=pool.device)
    larger[shift:] = pool
    return larger


def draw_batch(case: Case, draw: Draw, q_len: list[int], kv_len: list[int], *, causal: bool, window: int = -1, top_page: int = 0) -> AttentionInputs:
    """The inputs of requests with these numbers of queries and keys; queries are the last positions of their request. top_page > 0: the
    highest page id in use, in a pool that large whose other pages hold 3.0."""
    pages: Pages = page_table(draw, kv_len, case.page, first=case.values != "poisoned")
    dtype, pool = dtype_of(case.dtype), cache_dtype(case)
    total = sum(q_len)
    # with a soft cap, logits (deviation 4/3) are scaled to more than twice the cap; then it decides the outcome
    size = 2.0 ** math.ceil(math.log2(2 * case.soft_cap)) if case.soft_cap else {"peaked": 8.0, "far": 128.0, "flat": 0.0}.get(case.values, 1.0)
    q = draw.normal(total, case.heads, case.dim) * size
    k = draw.normal(pages.count, case.page, case.kv_heads, case.dim)
    if case.values == "low":
        q[..., ::2], k[..., ::2] = -128.0, 128.0
    sinks = draw.normal(case.heads, dtype=torch.bfloat16).float() if case.sinks == "sinks" else None
    v = pages.fill_unowned(draw.normal(pages.count, case.page, case.kv_heads, v_dim(case))).to(pool)
    k, slots, indices = k.to(pool), pages.slots, pages.indices
    if case.values == "poisoned":
        k, v = pages.fill_unowned(k, math.nan), pages.fill_unowned(v, math.nan)
    if top_page and len(indices):
        shift = top_page - int(indices.max())
        k, v = _behind(shift, k), _behind(shift, v)
        indices, slots = indices + shift, [s + shift * case.page for s in slots]
    scaled = case.scales == "scaled"
    return AttentionInputs(
        case,
        draw.device,
        q=q.to(dtype),
        k_pool=k,
        v_pool=v,
        q_len=q_len,
        prefix_len=[max(0, n - m) for n, m in zip(kv_len, q_len, strict=True)],
        kv_len=pages.lengths,
        qo_indptr=indptr(q_len, draw.device),
        kv_indptr=pages.indptr,
        kv_indices=indices,
        slots=slots,
        scale=1 / math.sqrt(case.dim),
        soft_cap=case.soft_cap,
        sinks=sinks,
        window=window,
        causal=causal,
        k_scale=K_SCALE if scaled else 1.0,
        v_scale=V_SCALE if scaled else 1.0,
    )
