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


@implements("kv_write", library="sglang", name="sglang_triton_tiled", platforms=EVERYWHERE, accepts=_copies)
class Tiled:
    """set_kv_buffer_prefix_valid_tiled, the commit of accepted draft tokens, with every token of one block accepted."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.kernel = resolve(
            "sglang.kernels.ops.kvcache.cache_move:set_kv_buffer_prefix_valid_tiled", "sglang.srt.mem_cache.memory_pool:set_kv_buffer_prefix_valid_tiled"
        )
        self.k_pool, self.v_pool = (pool.view(-1, pool.shape[2] * pool.shape[3]) for pool in (x.k_pool, x.v_pool))
        self.k, self.v = (rows.view(len(rows), -1) for rows in (x.k, x.v))
        self.loc, self.count = x.loc[None], torch.tensor([len(x.loc)], dtype=torch.int32, device=x.device)

    def run(self) -> None:
        tokens, size = len(self.k), self.k.element_size()
        strides = [tensor.stride(0) * size for tensor in (self.k, self.v, self.k_pool, self.v_pool)]
        row_bytes = self.k.shape[1] * size
        args = (self.k, self.v, self.k_pool, self.v_pool, self.loc, self.count, *strides, tokens)
        self.kernel[(1, tokens, -(-row_bytes // 256))](*args, ROW_BYTES=row_bytes, BYTES_PER_TILE=256, num_warps=4, num_stages=2)


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
        if "TOKEN_BLOCK_PARALLEL" not in inspect.signature(self.kernel.fn).parameters:
            raise Unsupported("this SGLang's kernel has one program a request")
        args = (x.req_to_token, x.req_pool_indices, x.lengths, x.indptr, x.starts, self.out, x.req_to_token.stride(0))
        self.kernel[(x.case.batch, 3)](*args, TOKEN_BLOCK_PARALLEL=True)


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
