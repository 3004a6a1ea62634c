"""SGLang's Triton kernels for the draft tokens of speculative decoding."""

from __future__ import annotations

import importlib
from typing import Any
from unittest import mock

from harness.contracts import Case
from harness.errors import Unsupported
from harness.providers.refilling import overwrite
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve
from harness.providers.sglang_triton.attention import no_fp8_rounding
from harness.providers.sglang_triton.extend import DOT, EVERYWHERE, places, prefixes


def masks(x: Any, prefix: bool = True) -> tuple[Any, Any]:
    """(mask, indptr): every request's rows [nodes, prefix + nodes] (or [nodes, nodes]) of what a node sees, flat, as SGLang and FlashInfer take it."""
    import torch

    from harness.contracts.attention.batch import indptr

    rows = []
    for seen, length in zip(x.tree, x.prefix_len, strict=True):
        whole = torch.ones(len(seen), length if prefix else 0, dtype=torch.bool, device=x.device)
        rows.append(torch.cat((whole, seen), 1).flatten())
    return torch.cat(rows), indptr([len(row) for row in rows], x.device).long()


class Verify:
    """extend_attention_fwd with the tree as its custom mask; a chain is causal and takes no mask. Gives lse."""

    name = "extend_attention_fwd"
    skip_prefix = True

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        no_fp8_rounding(x)
        self.function = resolve(*places("extend_attention", self.name))
        self.buffers = starts, slots, mask, bounds = self.told(x)
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        lse = scratch.output("lse", *x.q.shape[:2], dtype=torch.float32)
        self.args = (x.q, x.k_new, x.v_new, out, x.k_flat, x.v_flat, x.qo_indptr, starts, slots, mask, True, bounds, x.case.nodes, x.k_scale, x.v_scale)
        self.flags = {"sm_scale": x.scale, "logit_cap": x.soft_cap, "sinks": x.sinks, "lse_extend": lse, "skip_prefix_custom_mask": self.skip_prefix}
        self.page = x.case.page

    def told(self, x: Any) -> Any:
        """What the kernel is told of the prefixes: indptr and token slots, and the mask with its indptr where there is a tree."""
        return (*prefixes(x), *(masks(x) if x.case.shape != "chain" else (None, None)))

    def refill(self, x: Any) -> None:
        overwrite(self.buffers, self.told(x))

    def run(self) -> Any:
        call(self.function, *self.args, **self.flags, optional={"page_size": self.page})


_PREFIX = {**DOT, "arithmetic": "cached-prefix", "lse_sinks": "sinks"}


@implements("verify_attention", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics=_PREFIX)
class VerifyExtend(Verify):
    """As the server calls it: the mask's prefix columns are not read."""


def _trees(case: Case) -> str | None:
    return "without a tree there is no mask to read" if case.shape == "chain" else None


@implements("verify_attention", library="sglang", name="sglang_triton_masked", platforms=EVERYWHERE, semantics=_PREFIX, accepts=_trees)
class VerifyMasked(Verify):
    """The mask's prefix columns are read too."""

    skip_prefix = False


@implements("verify_attention", library="sglang", name="sglang_triton_unified", platforms=EVERYWHERE, semantics={**DOT, "arithmetic": "cache"})
class VerifyUnified:
    """extend_attention_fwd_unified with the tree as its custom mask."""

    def prepare(self, x: Any, scratch: Any) -> None:
        no_fp8_rounding(x)
        self.function = resolve(*places("extend_attention", "extend_attention_fwd_unified"))
        self.buffers = starts, slots, prefix, mask, bounds = self.told(x)
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.args = (x.q, out, x.k_flat, x.v_flat, x.k_scale, x.v_scale, x.qo_indptr, starts, slots, prefix, x.case.nodes)
        self.flags = {"custom_mask": mask, "mask_indptr": bounds, "sm_scale": x.scale, "logit_cap": x.soft_cap, "sinks": x.sinks}
        self.page = x.case.page

    def told(self, x: Any) -> Any:
        """What the kernel is told of the keys: indptr, token slots, lengths of the prefixes, and the mask with its indptr where there is a tree."""
        import torch

        prefix = torch.tensor(x.prefix_len, dtype=torch.int32, device=x.device)
        return (*x.tokens(), prefix, *(masks(x) if x.case.shape != "chain" else (None, None)))

    def refill(self, x: Any) -> None:
        overwrite(self.buffers, self.told(x))

    def run(self) -> Any:
        call(self.function, *self.args, **self.flags, optional={"page_size": self.page})


def _chains(case: Case) -> str | None:
    if case.shape != "chain":
        return "SGLang's split-KV verify computes a causal chain; its caller keeps it to topk 1"
    return "SGLang's split-KV verify has neither soft cap nor sinks" if case.soft_cap or case.sinks == "sinks" else None


@implements("verify_attention", library="sglang", name="sglang_triton_splitkv", platforms=EVERYWHERE, semantics=_PREFIX, accepts=_chains)
class VerifySplit:
    """verify_splitkv_fwd, with fresh buffers for every case. Declines by returning False. Gives no lse."""

    def prepare(self, x: Any, scratch: Any) -> None:
        no_fp8_rounding(x)
        self.function = resolve(*places("verify_splitkv", "verify_splitkv_fwd"))
        importlib.import_module(self.function.__module__)._VK_CACHE.clear()
        self.buffers = starts, slots = prefixes(x)
        out = scratch.output("o", *x.q.shape[:2], x.v_pool.shape[-1], dtype=x.q.dtype)
        self.args = (x.q, x.k_new, x.v_new, out, x.k_flat, x.v_flat, x.qo_indptr, starts, slots, None, True, None, x.case.nodes, x.k_scale, x.v_scale, x.scale)

    def refill(self, x: Any) -> None:
        overwrite(self.buffers, prefixes(x))

    def run(self) -> Any:
        if not self.function(*self.args):
            raise Unsupported("SGLang's can_handle declines the case")


@implements("verify_attention", library="sglang", name="sglang_triton_splitkv_warm", platforms={"interpret"}, semantics=_PREFIX, accepts=_chains, variant=True)
class VerifySplitWarm(VerifySplit):
    """verify_splitkv_fwd with buffers that hold numbers, as after other calls. Fresh ones may hold NaN, which an idle split lets
    through: the ledger has that, and it would hide all else that is wrong with such a request."""

    def run(self) -> Any:
        kernels = importlib.import_module(self.function.__module__).VerifySplitKV
        allocate = kernels._alloc

        def warm(made: Any, most: int) -> None:
            allocate(made, most)
            made.att_out.fill_(3.0)
            made.att_lse.fill_(3.0)

        with mock.patch.object(kernels, "_alloc", warm):
            super().run()
