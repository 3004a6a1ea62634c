"""Calls of kernels that no provider makes, on the contracts' own inputs. Only compiled; what they compute is not judged."""

from __future__ import annotations

from typing import Any

from harness.errors import Unsupported
from harness.providers.resolve import resolve

_SHARED = "sglang.kernels.ops.attention.verify_mla:verify_shared_kv_fwd"


class _SharedKv:
    """verify_shared_kv_fwd: split-KV verification where a rank's heads share one kv head. Returns False for what it declines."""

    args: tuple[Any, ...]

    def run(self) -> None:
        if not resolve(_SHARED)(*self.args):
            raise Unsupported("SGLang's can_handle declines the case")


class SharedKvVerify(_SharedKv):
    def prepare(self, x: Any, scratch: Any) -> None:
        starts, slots = x.tokens(x.prefix_len)
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.args = (x.q, x.k_new, x.v_new, out, x.k_flat, x.v_flat, x.qo_indptr, starts, slots, None, True, None, x.case.nodes, x.k_scale, x.v_scale, x.scale)


class SharedKvMla(_SharedKv):
    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        pool = x.kv.view(-1, 1, 576)
        new = pool[torch.cat([slots[len(slots) - n :] for slots, n in zip(x.slots, x.q_len, strict=True)])]
        starts, slots = x.tokens(skip=x.q_len)
        out = scratch.output("o", like=x.q_nope)
        keys = (new, new[..., :512], out, pool, pool[..., :512])
        self.args = (x.q, *keys, x.qo_indptr, starts, slots, None, True, None, x.case.queries, x.kv_scale, x.kv_scale, x.scale)


ADAPTERS: dict[tuple[str, str], Any] = {("verify_attention", "sglang_shared_kv"): SharedKvVerify, ("mla_decode", "sglang_shared_kv"): SharedKvMla}
