"""SGLang's Triton kernels on the absorbed latent cache."""

from __future__ import annotations

from typing import Any

from harness.providers.registry import implements
from harness.providers.resolve import call, resolve

DECODE = ("sglang.kernels.ops.attention.decode_attention:decode_attention_fwd", "sglang.srt.layers.attention.triton_ops.decode_attention:decode_attention_fwd")
SPLITS = 8


def _page_one_tokens(x: Any) -> Any:
    """SGLang's decode kernel takes token slots, not pages: kv_indptr and kv_indices over tokens."""
    import torch

    lengths = x.kv_len.long()
    indptr = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=x.device)
    indptr[1:] = torch.cumsum(lengths, 0)
    return indptr, torch.cat(x.slots) if x.slots else torch.empty(0, dtype=torch.int64, device=x.device)


@implements("mla_decode", library="sglang", name="sglang_triton", platforms={"cuda", "rocm", "interpret"}, semantics={"fp32_dot": "tf32"})
class MlaDecode:
    """Gives no lse. fp32 dots are tf32 on a device (Triton's default)."""

    def prepare(self, x: Any, scratch: Any) -> None:
        import torch

        self.decode = resolve(*DECODE)
        self.x = x
        self.indptr, self.indices = _page_one_tokens(x)
        self.kv = x.kv.view(-1, 1, 576)
        self.out = scratch.output("o", x.case.batch, x.case.heads, 512, dtype=x.q.dtype)
        self.logits = scratch.empty(x.case.batch, x.case.heads, SPLITS, 512, dtype=torch.float32)
        self.lse = scratch.empty(x.case.batch, x.case.heads, SPLITS, dtype=torch.float32)
        self.splits = torch.full((x.case.batch,), SPLITS, dtype=torch.int32, device=x.device)

    def run(self) -> Any:
        kv = self.kv
        call(
            self.decode,
            self.x.q,
            kv,
            kv[..., :512],
            self.out,
            self.indptr,
            self.indices,
            self.logits,
            self.lse,
            self.splits,
            SPLITS,
            self.x.scale,
            1.0,
            1.0,
            optional={"has_mla": True},
        )
