"""SGLang's attention back ends as providers of the op contracts, `served_NAME`: a plugin, loaded where it is asked for by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from harness.contracts import Case, dtype_of
from harness.contracts.mla.absorbed import LATENT, ROPE, WIDTH
from harness.providers.registry import implements
from harness.served.attention import absent
from harness.served.attention.backends import BACKENDS, Backend
from harness.served.attention.batching import Batch
from harness.served.attention.configuring import Shape
from harness.served.attention.driving import Served

DOT = {"fp32_dot": "tf32"}
CONTEXT = 131072  # tokens that the described server lets a request have


class _Driven:
    """What all ops share: `chosen` says what ran."""

    backend: Backend
    served: Served

    def chosen(self) -> dict[str, str]:
        """What was chosen at each step."""
        return self.served.chosen()


class _Heads(_Driven):
    """MHA and GQA: a KV pool of keys and values."""

    def serve(self, x: Any, mode: str, before: list[int], new: list[int], **more: Any) -> None:
        case = x.case
        shape = Shape(
            mla=False,
            heads=case.heads,
            kv_heads=case.kv_heads,
            dim=case.dim,
            v_dim=case.v_dim or case.dim,
            scale=x.scale,
            dtype=dtype_of(case.dtype),
            device=x.device,
            page=case.page,
            context=_context(x),
            batch=case.batch,
            soft_cap=x.soft_cap,
            window=x.window,
            nodes=more.get("nodes", 0),
            topk=more.get("topk", 0),
        )
        batch = Batch(mode, before, new, x.slots, more.get("mask"))
        self.served = Served(self.backend, shape, batch, (x.k_flat, x.v_flat))
        self.given = (x.q, x.k_flat[batch.written], x.v_flat[batch.written])
        self.flags = {"sinks": x.sinks.bfloat16()} if x.sinks is not None else {}  # as the model keeps them; their values are bf16 already
        self.served.takes(self.flags)

    def run(self) -> Any:
        return self.served.forward(*self.given, **self.flags), None


class Decode(_Heads):
    """One new token a request."""

    def prepare(self, x: Any, scratch: Any) -> None:
        lengths = [len(slots) for slots in x.slots]
        self.serve(x, "DECODE", [n - 1 for n in lengths], [1] * len(lengths))


class Extend(_Heads):
    """New tokens over a cached prefix, or none."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.serve(x, "EXTEND", x.prefix_len, x.q_len)


class Verify(_Heads):
    """The draft tokens of speculative decoding: a chain is what one candidate a step gives."""

    def prepare(self, x: Any, scratch: Any) -> None:
        topk = 1 if x.case.shape == "chain" else max(2, x.case.nodes)
        self.serve(x, "TARGET_VERIFY", x.prefix_len, x.q_len, nodes=x.case.nodes, topk=topk, mask=full_mask(x.tree, x.prefix_len))


class _Latent(_Driven):
    """MLA with absorbed weights: one latent of 576 a token, of which 512 are its values too."""

    def serve(self, x: Any, mode: str, before: list[int], new: list[int], nodes: int = 0) -> None:
        shape = Shape(
            mla=True,
            heads=x.case.heads,
            kv_heads=1,
            dim=WIDTH,
            v_dim=LATENT,
            scale=x.scale,
            dtype=dtype_of(x.case.dtype),
            device=x.device,
            page=x.case.page,
            context=_context(x),
            batch=x.case.batch,
            nodes=nodes,
            topk=int(nodes > 0),
        )
        batch = Batch(mode, before, new, x.slots, _chains(before, nodes, x.device) if nodes else None)
        flat = x.kv.view(-1, 1, WIDTH)
        self.served = Served(self.backend, shape, batch, (flat,))
        latent = flat[batch.written]
        if self.backend.split:
            parts = [part.contiguous() for part in (x.q_nope, x.q_pe, latent[..., :LATENT], latent[..., LATENT:])]
            self.given, self.flags = (parts[0], parts[2], parts[2]), {"q_rope": parts[1], "k_rope": parts[3]}
        else:
            self.given, self.flags = (x.q, latent, latent[..., :LATENT]), {}
        self.served.takes(self.flags)

    def run(self) -> Any:
        return self.served.forward(*self.given, **self.flags), None


class MlaDecode(_Latent):
    """One new token a request, or the few of a chain to verify."""

    def prepare(self, x: Any, scratch: Any) -> None:
        queries = x.case.queries
        before = [len(slots) - queries for slots in x.slots]
        verify = {"mode": "TARGET_VERIFY", "nodes": queries} if queries > 1 else {"mode": "DECODE"}
        self.serve(x, before=before, new=[queries] * len(before), **verify)


class MlaPrefillAbsorbed(_Latent):
    """New tokens over a cached prefix in the latent cache."""

    def prepare(self, x: Any, scratch: Any) -> None:
        self.serve(x, "EXTEND", [len(slots) - n for slots, n in zip(x.slots, x.q_len, strict=True)], x.q_len)


class MlaPrefill(_Driven):
    """New tokens without a prefix: keys and values of every head, as the model's code makes them explicit; it writes the latent cache by itself."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        case = x.case
        page = self.backend.page or 1
        pages = [-(-n // page) for n in x.q_len]
        first = itertools.accumulate(pages, initial=1)  # page 0 is kept for padding
        slots = [torch.arange(at * page, at * page + n, device=x.device) for at, n in zip(first, x.q_len, strict=False)]
        shape = Shape(
            mla=True,
            heads=case.heads,
            kv_heads=case.heads,
            dim=case.nope + ROPE,
            v_dim=case.v_dim,
            scale=x.scale,
            dtype=x.q.dtype,
            device=x.device,
            page=page,
            context=CONTEXT,
            batch=case.batch,
            nope=case.nope,
            value=case.v_dim,
        )
        latent = torch.zeros((1 + sum(pages)) * page, 1, WIDTH, dtype=x.q.dtype, device=x.device)
        self.served = Served(self.backend, shape, Batch("EXTEND", [0] * len(x.q_len), x.q_len, slots), (latent,))
        if self.backend.chunked:
            self.served.batch.mha_return_lse = False
            self.served.batch.set_attn_attend_prefix_cache(False)
        self.given = (x.q, x.k, x.v)

    def run(self) -> Any:
        return self.served.forward(*self.given, save=False), None


def _context(x: Any) -> int:
    """Tokens that a request may have: a server's, which says how many KV splits there may be, or the longest of the batch in whole pages of any size."""
    return max(CONTEXT, -(-max(len(slots) for slots in x.slots) // 128) * 128)


def full_mask(trees: Any, before: list[int]) -> Any:
    """bool, flat: every request's rows [nodes, before + nodes] of what a draft token sees; trees bool [batch, nodes, nodes]. EAGLE hands it over for
    chains too."""
    import torch

    rows = [torch.cat((seen.new_ones(len(seen), length), seen), 1).flatten() for seen, length in zip(trees, before, strict=True)]
    return torch.cat(rows)


def _chains(before: list[int], nodes: int, device: str) -> Any:
    import torch

    return full_mask(torch.ones(len(before), nodes, nodes, dtype=torch.bool, device=device).tril(), before)


def _served_case(case: Case) -> str | None:
    """What no server hands to its back end."""
    point = case.point
    if point["lengths"] in ("empty", "cut"):
        return "a server's batch has no request without new tokens or without keys"
    if point.get("cache", "samekv") != "samekv" or point.get("scales", "unit") != "unit":
        return "served cells take a cache in the model's own dtype, unscaled"
    if point.get("mask", "causal") != "causal":
        return "a decoder's layer is causal"
    return "the served path with a prefix is mla_prefill_absorbed" if case.op == "mla_prefill" and case.prefix else None


_CLASSES: dict[str, type[_Driven]] = {
    "decode_attention": Decode,
    "extend_attention": Extend,
    "verify_attention": Verify,
    "mla_decode": MlaDecode,
    "mla_prefill": MlaPrefill,
    "mla_prefill_absorbed": MlaPrefillAbsorbed,
}


def _declare(backend: Backend) -> None:
    notes = (absent.NOTE,) if absent.needed() else ()
    common: dict[str, Any] = {"library": "sglang", "name": backend.provider, "platforms": backend.platforms, "notes": notes, "promises": ("repeat",)}
    for op in backend.ops:
        made = type(_CLASSES[op].__name__, (_CLASSES[op],), {"backend": backend, "__module__": __name__})
        semantics = DOT | ({"tanh": "approximate"} if backend.tanh and op.endswith("_attention") else {})
        implements(op, **common, semantics=semantics, accepts=_accepts(backend))(made)


def _accepts(backend: Backend) -> Callable[[Case], str | None]:
    def accepts(case: Case) -> str | None:
        if backend.page and case.point.get("page", backend.page) != backend.page:
            return f"{backend.flag} takes pages of {backend.page} tokens"
        if not backend.verifies and (case.op == "verify_attention" or case.point.get("queries", 1) > 1):
            return f"SGLang's {backend.flag} back end has no speculative verification"
        return _served_case(case)

    return accepts


for _backend in BACKENDS.values():
    _declare(_backend)
