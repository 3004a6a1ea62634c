"""SGLang's kernels around the KV cache: writes into the pool, and index lists out of the request table."""

from __future__ import annotations

import inspect
from typing import Any

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.registry import implements
from harness.providers.resolve import resolve
from harness.providers.sglang_triton.attention import no_fp8_rounding

EVERYWHERE = {"cuda", "rocm", "interpret"}
INDICES = tuple(
    f"{module}:{{}}"
    for module in (
        "sglang.kernels.ops.attention.kv_indices",
        "sglang.kernels.ops.kvcache.kv_indices",
        "sglang.kernels.ops.attention.utils",
        "sglang.srt.layers.attention.utils",
    )
)


def _one_dim(case: Case) -> str | None:
    return "SGLang's reshape_and_cache_flash has one head dimension" if case.v_dim not in (0, case.dim) else None


@implements("kv_write", library="sglang", name="sglang_triton", platforms=EVERYWHERE, accepts=_one_dim)
def reshape_and_cache(x: Any) -> None:
    """launch_reshape_and_cache_flash."""
    import torch

    no_fp8_rounding(x)
    write = resolve(
        "sglang.kernels.ops.kvcache.cache_ops:launch_reshape_and_cache_flash", "sglang.srt.layers.attention.triton_ops.cache_ops:launch_reshape_and_cache_flash"
    )
    scaled = x.case.scales == "scaled"
    scales = [torch.tensor([value], dtype=torch.float32, device=x.device) if scaled else None for value in (x.k_scale, x.v_scale)]
    write(x.k, x.v, x.k_pool, x.v_pool, x.loc, None, *scales)


def _copies(case: Case) -> str | None:
    if case.cache != "samekv":
        return "a byte copy: the pool's dtype is the rows'"
    return "the kernel takes rows of one width" if case.v_dim not in (0, case.dim) else None


@implements("kv_write", library="sglang", name="sglang_triton_swa", platforms={"interpret"}, accepts=lambda case: _copies(case) or _one_dim(case), variant=True)
class Remapped:
    """launch_reshape_and_cache_flash into the pool of a sliding window: slots by way of a map, in which two more tokens have none; and
    the rows times powers of two, with those as scales."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.write = resolve("sglang.kernels.ops.kvcache.cache_ops:launch_reshape_and_cache_flash")
        tokens = len(x.loc) + 2
        full = torch.arange(tokens, device=x.device).flip(0) * 2
        slots = torch.full((2 * tokens,), -1, dtype=x.loc.dtype, device=x.device)
        slots[full[:-2]] = x.loc
        rows = [torch.cat((new * scale, new.new_full((2, *new.shape[1:]), 3.0))) for new, scale in ((x.k, 2.0), (x.v, 0.5))]
        scales = [torch.tensor([scale], dtype=torch.float32, device=x.device) for scale in (2.0, 0.5)]
        self.args = (*rows, x.k_pool, x.v_pool, full, slots, *scales)

    def run(self) -> None:
        self.write(*self.args)


_BLOCK = 4  # draft tokens a request


@implements("kv_write", library="sglang", name="sglang_triton_tiled", platforms=EVERYWHERE, accepts=_copies)
class Tiled:
    """set_kv_buffer_prefix_valid_tiled, the commit of accepted draft tokens: one to three of the four of each request are accepted.
    What was not accepted is 3.0 and would go to slot 0; the new rows lie in wider ones, of another width for keys and for values."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.kernel = resolve(
            "sglang.kernels.ops.kvcache.cache_move:set_kv_buffer_prefix_valid_tiled", "sglang.srt.mem_cache.memory_pool:set_kv_buffer_prefix_valid_tiled"
        )
        self.k_pool, self.v_pool = (pool.view(-1, pool.shape[2] * pool.shape[3]) for pool in (x.k_pool, x.v_pool))
        counts: list[int] = []
        left = len(x.loc)
        while left:
            counts.append(min(left, 1 + len(counts) % 3))
            left -= counts[-1]
        accepted = torch.tensor([_BLOCK * block + row for block, count in enumerate(counts) for row in range(count)], device=x.device)
        self.loc = torch.zeros(len(counts), _BLOCK, dtype=x.loc.dtype, device=x.device)
        self.loc.view(-1)[accepted] = x.loc
        self.count = torch.tensor(counts, dtype=torch.int32, device=x.device)
        self.k, self.v = (self._drafted(rows, accepted, spare) for rows, spare in ((x.k, 8), (x.v, 16)))

    def _drafted(self, rows: Any, accepted: Any, spare: int) -> Any:
        width = rows.shape[1] * rows.shape[2]
        drafts = rows.new_full((self.loc.numel(), width + spare), 3.0)[:, :width]
        drafts[accepted] = rows.reshape(len(rows), width)
        return drafts

    def run(self) -> None:
        size = self.k.element_size()
        strides = [tensor.stride(0) * size for tensor in (self.k, self.v, self.k_pool, self.v_pool)]
        row_bytes = self.k.shape[1] * size
        args = (self.k, self.v, self.k_pool, self.v_pool, self.loc, self.count, *strides, _BLOCK)
        self.kernel[(len(self.count), _BLOCK, -(-row_bytes // 256))](*args, ROW_BYTES=row_bytes, BYTES_PER_TILE=256, num_warps=4, num_stages=2)


def _store(case: Case) -> str | None:
    if case.cache != "samekv":
        return "a byte copy: the pool's dtype is the rows'"
    return "older SGLang takes rows of one width" if case.v_dim not in (0, case.dim) else None


@implements("kv_write", library="sglang", name="sglang_jit", platforms={"cuda", "rocm"}, accepts=_store)
class Stored:
    """store_cache, a CUDA kernel built at first call: what the server's memory pool uses."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.store = resolve("sglang.kernels.ops.kvcache.kvcache:store_cache", "sglang.jit_kernel.kvcache:store_cache")
        pools = [pool.view(-1, pool.shape[2] * pool.shape[3]) for pool in (x.k_pool, x.v_pool)]
        self.args = (*(rows.view(len(rows), -1) for rows in (x.k, x.v)), *pools, x.loc)

    def run(self) -> None:
        self.store(*self.args)


def _needs(kernel: Any, argument: str) -> None:
    """Raises Unsupported where this SGLang's kernel has no such argument."""
    if argument not in inspect.signature(kernel.fn).parameters:
        raise Unsupported(f"this SGLang's kernel has no {argument}")


def _kernel(name: str) -> Any:
    return resolve(*(place.format(name) for place in INDICES))


@implements("kv_indices", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class Indices:
    """create_flashinfer_kv_indices_triton."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, self.kernel = x, _kernel("create_flashinfer_kv_indices_triton")
        self.out = scratch.output("kv_indices", sum(x.counts), dtype=torch.int64)

    def run(self) -> None:
        x = self.x
        self.kernel[(x.case.batch,)](x.req_to_token, x.req_pool_indices, x.lengths, x.indptr, x.starts, self.out, x.req_to_token.stride(0))


@implements("kv_indices", library="sglang", name="sglang_triton_blocks", platforms=EVERYWHERE)
class IndicesByBlocks(Indices):
    """The same kernel with several programs a request (newer SGLang, long contexts)."""

    def run(self) -> None:
        x = self.x
        _needs(self.kernel, "TOKEN_BLOCK_PARALLEL")
        args = (x.req_to_token, x.req_pool_indices, x.lengths, x.indptr, x.starts, self.out, x.req_to_token.stride(0))
        self.kernel[(x.case.batch, 3)](*args, TOKEN_BLOCK_PARALLEL=True)


def _paged(case: Case) -> str | None:
    return "with pages of one token this is sglang_triton" if case.page == 1 else "a page has no holes" if case.holes == "holes" else None


@implements("kv_indices", library="sglang", name="sglang_triton_paged", platforms={"interpret"}, accepts=_paged, variant=True)
class IndicesOfPages(Indices):
    """The same kernel from a table of pages."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        _needs(self.kernel, "ENTRY_PAGE_SIZE")
        self.table = x.req_to_token[:, :: x.case.page] // x.case.page

    def run(self) -> None:
        x = self.x
        args = (self.table, x.req_pool_indices, x.lengths, x.indptr, x.starts, self.out, self.table.stride(0))
        self.kernel[(x.case.batch,)](*args, ENTRY_PAGE_SIZE=x.case.page)


@implements("kv_indices", library="sglang", name="sglang_triton_mapped", platforms={"interpret"}, variant=True)
class IndicesMapped(Indices):
    """The same kernel with a second table, from the slots of one pool to those of another."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        super().prepare(x, scratch)
        _needs(self.kernel, "token_mapping")
        spans = zip(x.req_to_token[x.req_pool_indices], x.ahead, x.counts, strict=True)
        known: Any = torch.unique(torch.cat([row[low : low + count] for row, low, count in spans]))
        known = known[known >= 0]
        at = torch.searchsorted(known, x.req_to_token).clamp_max(max(0, len(known) - 1))
        self.mapping = known.flip(0).contiguous()
        wanted = known[at] == x.req_to_token if len(known) else torch.zeros_like(x.req_to_token, dtype=torch.bool)
        self.table = torch.where(wanted, len(known) - 1 - at, -1).to(torch.int32)

    def run(self) -> None:
        x = self.x
        args = (self.table, x.req_pool_indices, x.lengths, x.indptr, x.starts, self.out, self.table.stride(0))
        self.kernel[(x.case.batch,)](*args, token_mapping=self.mapping)


@implements("kv_indices", library="sglang", name="sglang_triton_chunked", platforms=EVERYWHERE)
class Chunked:
    """create_chunked_prefix_cache_kv_indices: the wanted tokens are one chunk of each request's prefix."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, self.kernel = x, _kernel("create_chunked_prefix_cache_kv_indices")
        self.starts = x.starts if x.starts is not None else torch.zeros_like(x.lengths)
        self.out = scratch.output("kv_indices", sum(x.counts), dtype=torch.int32)

    def run(self) -> None:
        x = self.x
        self.kernel[(x.case.batch,)](x.req_to_token, x.req_pool_indices, self.starts, x.lengths, x.indptr, self.out, x.req_to_token.stride(0))


@implements("kv_page_table", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class PageTable:
    """create_flashmla_kv_indices_triton."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.x, self.kernel = x, _kernel("create_flashmla_kv_indices_triton")
        width = max(1, -(-max(x.counts) // x.case.page))
        self.out = scratch.output("page_table", x.case.batch, width, dtype=torch.int32)
        self.blocks = -(-width // max(1, 4096 // x.case.page))

    def run(self) -> None:
        x = self.x
        args = (x.req_to_token, x.req_pool_indices, x.lengths, x.starts, self.out, x.req_to_token.stride(0), self.out.stride(0))
        self.kernel[(x.case.batch, self.blocks)](*args, PAGED_SIZE=x.case.page)
