"""SGLang's Triton kernels on MLA: decode and extend, absorbed and explicit, and the K assembly."""

from __future__ import annotations

from typing import Any

from harness.contracts import Case
from harness.contracts.mla.absorbed import ALL_FP8
from harness.errors import Unsupported
from harness.providers.refilling import overwrite
from harness.providers.registry import implements
from harness.providers.resolve import call, resolve

EVERYWHERE = {"cuda", "rocm", "interpret"}
_KERNELS, _OLDER = "sglang.kernels.ops.attention", "sglang.srt.layers.attention.triton_ops"
DECODE = (f"{_KERNELS}.decode_attention:decode_attention_fwd", f"{_OLDER}.decode_attention:decode_attention_fwd")
EXTEND = (f"{_KERNELS}.extend_attention:extend_attention_fwd", f"{_OLDER}.extend_attention:extend_attention_fwd")
MERGE = (f"{_KERNELS}.merge_state:merge_state_triton", f"{_OLDER}.merge_state:merge_state_triton")
CONCAT = (
    f"{_KERNELS}.mla_qk_prep:concat_and_cast_mha_k_triton",
    f"{_KERNELS}.utils:concat_and_cast_mha_k_triton",
    "sglang.srt.layers.attention.utils:concat_and_cast_mha_k_triton",
)


def one_query(case: Case) -> str | None:
    if case.queries > 1:
        return "SGLang's decode kernel takes one query a request (its verification runs the extend kernel)"
    return "SGLang's decode kernel reads 16- or 32-bit queries" if case.cache in ALL_FP8 else None


def no_fp8_rounding(x: Any) -> None:
    """Raises Unsupported under the interpreter for a kernel that rounds to the dtype of an fp8 cache."""
    if x.device == "cpu" and x.kv.element_size() == 1:
        raise Unsupported("Triton's interpreter rounds wrongly to fp8: it loses a carry out of the mantissa (0.498 becomes 0.25)")


@implements(
    "mla_decode", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"fp32_dot": "tf32", "arithmetic": "cache"}, accepts=one_query
)
class MlaDecode:
    """Takes token slots, not pages. Gives no lse. fp32 dots are tf32 on a device (Triton's default)."""

    optional: dict[str, Any]

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        no_fp8_rounding(x)
        self.decode = resolve(*DECODE)
        self.x = x
        self.indptr, self.indices = x.tokens()
        self.kv = x.kv.view(-1, 1, 576)
        self.out = scratch.output("o", like=x.q_nope)
        most = 2 if x.device == "cpu" else 8  # under the interpreter a program costs milliseconds
        self.logits = scratch.empty(x.case.batch, x.case.heads, most, 512, dtype=torch.float32)
        self.lse = scratch.empty(x.case.batch, x.case.heads, most, dtype=torch.float32)
        self.splits, self.most = torch.full((x.case.batch,), most, dtype=torch.int32, device=x.device), most
        self.optional = {"has_mla": True}

    def refill(self, x: Any) -> None:
        overwrite((self.indptr, self.indices), x.tokens())  # the splits are the most there may be, whatever the lengths

    def run(self) -> Any:
        x, kv = self.x, self.kv
        call(
            self.decode,
            x.q,
            kv,
            kv[..., :512],
            self.out,
            self.indptr,
            self.indices,
            self.logits,
            self.lse,
            self.splits,
            self.most,
            x.scale,
            x.kv_scale,
            x.kv_scale,
            optional=self.optional,
        )


class _Extend:
    """extend_attention_fwd: new keys and values as arguments, the prefix by token slots in a pool."""

    def bind(self, x: Any, scratch: Any, *, new: tuple[Any, Any], pool: tuple[Any, Any], slots: tuple[Any, Any]) -> None:
        import torch

        self.extend = resolve(*EXTEND)
        self.x, self.new, self.pool, self.slots = x, new, pool, slots
        self.out = scratch.output("o", x.q.shape[0], x.case.heads, new[1].shape[-1], dtype=x.q.dtype)
        self.lse = scratch.output("lse", x.q.shape[0], x.case.heads, dtype=torch.float32)

    def launch(self, slots: tuple[Any, Any], out: Any, lse: Any, **skip: bool) -> None:
        x = self.x
        self.extend(
            x.q,
            *self.new,
            out,
            *self.pool,
            x.qo_indptr,
            *slots,
            None,
            True,
            None,
            max(x.q_len),
            1.0,
            1.0,
            sm_scale=x.scale,
            lse_extend=lse,
            **skip,
        )

    def run(self) -> Any:
        self.launch(self.slots, self.out, self.lse)


@implements("mla_prefill", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"fp32_dot": "tf32"})
class MlaPrefill(_Extend):
    """Without a prefix this is what SGLang's Triton back end runs; with one, the same kernel with the prefix' K and V made explicit."""

    def prepare(self, x: Any, scratch: Any) -> None:
        rows = x.keys(x.prefix_len, x.kv_len)
        prefix = x.keys([0] * len(x.q_len), x.prefix_len)
        self.bind(x, scratch, new=(x.k[rows], x.v[rows]), pool=(x.k, x.v), slots=(_indptr(x.prefix_len, x), prefix))


def _only_prefixed(case: Case) -> str | None:
    return None if case.prefix else "without a prefix there is nothing to take in chunks"


@implements("mla_prefill", library="sglang", name="sglang_triton_chunked", platforms=EVERYWHERE, semantics={"fp32_dot": "tf32"}, accepts=_only_prefixed)
class MlaPrefillChunked(MlaPrefill):
    """The new tokens, then the prefix chunk by chunk, each merged into the state so far."""

    def prepare(self, x: Any, scratch: Any) -> None:
        super().prepare(x, scratch)
        self.merge = resolve(*MERGE)
        self.chunks = [(indptr, rows) for rows, indptr, _ in x.chunks()]
        self.states = [(scratch.empty(*self.out.shape, dtype=self.out.dtype), scratch.empty(*self.lse.shape, dtype=self.lse.dtype)) for _ in range(3)]

    def run(self) -> Any:
        (o, lse), (part, part_lse), (spare, spare_lse) = self.states
        if not self.chunks:  # no request of the batch has a prefix
            o, lse = self.out, self.lse
        self.launch(self.slots, o, lse, skip_prefix=True)
        for at, slots in enumerate(self.chunks, 1):
            self.launch(slots, part, part_lse, skip_extend=True)
            into = (self.out, self.lse) if at == len(self.chunks) else (spare, spare_lse)
            self.merge(part, part_lse, o, lse, *into)
            (o, lse), (spare, spare_lse) = into, (o, lse)


@implements("mla_prefill_absorbed", library="sglang", name="sglang_triton", platforms=EVERYWHERE, semantics={"fp32_dot": "tf32"})
class MlaPrefillAbsorbed(_Extend):
    """What SGLang's Triton back end runs as soon as a request has a prefix."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        pool = x.kv.view(-1, 1, 576)
        rows = torch.cat([slots[len(slots) - n :] for slots, n in zip(x.slots, x.q_len, strict=True)])
        new = pool[rows]
        self.bind(x, scratch, new=(new, new[..., :512]), pool=(pool, pool[..., :512]), slots=x.tokens(skip=x.q_len))


def _indptr(lengths: list[int], x: Any) -> Any:
    from harness.contracts.mla.absorbed import indptr

    return indptr(lengths, x.device)


@implements("concat_mla_k", library="sglang", name="sglang_triton", platforms=EVERYWHERE)
class ConcatMlaK:
    def prepare(self, x: Any, scratch: Any) -> None:
        self.concat = resolve(*CONCAT)
        self.x, self.k = x, scratch.output("k", x.case.tokens, x.case.heads, x.case.nope + 64, dtype=x.k_nope.dtype)

    def run(self) -> Any:
        self.concat(self.k, self.x.k_nope, self.x.k_rope)
