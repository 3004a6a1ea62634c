"""Cache writes and index lists in plain PyTorch."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.torch_eager.attention import ANYWHERE


@implements("kv_write", library="torch", name="torch_eager", platforms=ANYWHERE)
def write(x: Any) -> None:
    """An indexed copy; bytes where the pool is fp8."""
    import torch

    for pool, rows, scale in ((x.k_pool, x.k, x.k_scale), (x.v_pool, x.v, x.v_scale)):
        flat = pool.view(-1, *pool.shape[2:])
        if pool.dtype == rows.dtype:
            flat[x.loc] = rows
        else:
            flat.view(torch.uint8)[x.loc] = (rows.float() / scale).to(pool.dtype).view(torch.uint8)


@implements("kv_indices", library="torch", name="torch_eager", platforms=ANYWHERE)
def indices(x: Any) -> Any:
    """A slice a request."""
    import torch

    rows = zip(x.req_to_token[x.req_pool_indices], x.ahead, x.counts, strict=True)
    return torch.cat([row[first : first + count] for row, first, count in rows])


@implements("kv_page_table", library="torch", name="torch_eager", platforms=ANYWHERE)
def page_table(x: Any) -> Any:
    """The first token of every page, divided by the page size."""
    import torch

    page = x.case.page
    first = torch.arange(max(1, -(-max(x.counts) // page)), device=x.device) * page
    start = torch.tensor(x.ahead, device=x.device)[:, None]
    column = (start + first).clamp_max(x.req_to_token.shape[1] - 1)
    return x.req_to_token[x.req_pool_indices[:, None], column] // page
