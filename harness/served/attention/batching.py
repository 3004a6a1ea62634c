"""The batch as the scheduler hands it over: a KV pool that holds what came before, the map from requests to token slots, and the forward batch."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

from harness.errors import Unsupported
from harness.providers.resolve import call
from harness.served.attention.configuring import Shape

_POOLS = "sglang.srt.mem_cache.memory_pool"
_BATCHES = "sglang.srt.model_executor.forward_batch_info"


@dataclass(frozen=True)
class Batch:
    """Requests of a case. before, new: keys a request that are cached, and that this forward brings; slots: where a request's keys lie, int64;
    mode: `DECODE`, `EXTEND` or `TARGET_VERIFY`; mask: of verification, flat bool, a row [before + nodes] a draft token."""

    mode: str
    before: list[int]
    new: list[int]
    slots: list[Any]
    mask: Any = None

    @property
    def written(self) -> Any:
        """Slots of the keys that the forward brings."""
        import torch

        return torch.cat([slots[before:] for slots, before in zip(self.slots, self.before, strict=True)])


@dataclass(frozen=True)
class Pools:
    """SGLang's ReqToTokenPool and KV pool, and the row of each request in the former, int64."""

    requests: Any
    tokens: Any
    rows: Any


def pools(shape: Shape, batch: Batch, cache: tuple[Any, ...]) -> Pools:
    """Pools of SGLang's own classes that hold the case's cache at the same slots, but NaN where this forward is to write.

    cache   (k, v) [slots, kv_heads, dim], or for MLA (kv,) [slots, 576]
    """
    import torch

    room = importlib.import_module(_POOLS)
    slots = len(cache[0])
    common = {"size": slots - shape.page, "page_size": shape.page, "dtype": shape.dtype, "layer_num": 1, "device": shape.device, "enable_memory_saver": False}
    if shape.mla:
        tokens = room.MLATokenToKVPool(**common, kv_lora_rank=512, qk_rope_head_dim=64)
        buffers = tokens.kv_buffer
    else:
        tokens = room.MHATokenToKVPool(**common, head_num=shape.kv_heads, head_dim=shape.dim, v_head_dim=shape.v_dim)
        buffers = [*tokens.k_buffer, *tokens.v_buffer]
    for buffer, held in zip(buffers, cache, strict=True):
        if buffer.numel() != held.numel():
            raise Unsupported(f"SGLang's {type(tokens).__name__} keeps {tuple(buffer.shape)} elements where the case has {tuple(held.shape)}")
        buffer.copy_(held.view(buffer.shape))
        buffer[batch.written] = math.nan
    requests = call(
        room.ReqToTokenPool,
        size=len(batch.slots),
        max_context_len=shape.context,
        device=shape.device,
        enable_memory_saver=False,
    )
    rows = torch.arange(len(batch.slots), 0, -1, device=shape.device)  # row 0 is kept for padding, and no request lies in the row of its number
    for row, held in zip(rows.tolist(), batch.slots, strict=True):
        requests.req_to_token[row, : len(held)] = held.to(torch.int32)
    return Pools(requests, tokens, rows)


def forward_batch(shape: Shape, batch: Batch, made: Pools, runner: Any) -> Any:
    """SGLang's ForwardBatch of the requests, bound to the runner's translator where the version has one."""
    import torch

    room = importlib.import_module(_BATCHES)
    device = shape.device
    before, new = (torch.tensor(values, dtype=torch.int64) for values in (batch.before, batch.new))
    lengths = before if batch.mode == "TARGET_VERIFY" else before + new
    positions = torch.cat([torch.arange(a, a + n) for a, n in zip(batch.before, batch.new, strict=True)])
    fields: dict[str, Any] = {
        "forward_mode": room.ForwardMode[batch.mode],
        "batch_size": len(batch.slots),
        "input_ids": torch.zeros(int(new.sum()), dtype=torch.int64, device=device),
        "req_pool_indices": made.rows,
        "seq_lens": lengths.to(device),
        "out_cache_loc": batch.written,
        "seq_lens_sum": int(lengths.sum()),
        "seq_lens_cpu": lengths,
        "positions": positions.to(device),
        "spec_algorithm": runner.spec_algorithm,
    }
    if batch.mode == "EXTEND":
        starts = torch.nn.functional.pad(new.cumsum(0), (1, 0))[:-1]
        fields |= {
            "extend_num_tokens": int(new.sum()),
            "extend_seq_lens": new.to(device, torch.int32),
            "extend_prefix_lens": before.to(device, torch.int32),
            "extend_start_loc": starts.to(device, torch.int32),
            "extend_seq_lens_cpu": list(batch.new),
            "extend_prefix_lens_cpu": list(batch.before),
        }
    if batch.mode == "TARGET_VERIFY":
        fields["spec_info"] = _drafts(shape, batch, fields)
    made_batch = room.ForwardBatch(**fields)
    translator = runner.__dict__["_values"].get("kv_index_translator")
    if translator is not None:
        translator.own_plan(made_batch).bind(made_batch, translator)
    return made_batch


def _drafts(shape: Shape, batch: Batch, fields: dict[str, Any]) -> Any:
    """The draft tokens to verify, in the class that EAGLE hands over."""
    room = importlib.import_module("sglang.srt.speculative.eagle_info")
    return room.EagleVerifyInput(
        draft_token=fields["input_ids"],
        custom_mask=batch.mask,
        positions=fields["positions"],
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
        retrieve_cum_len=None,
        spec_steps=max(1, shape.nodes - 1),
        topk=shape.topk,
        draft_token_num=shape.nodes,
        capture_hidden_mode=importlib.import_module(_BATCHES).CaptureHiddenMode.FULL,
        seq_lens_sum=fields["seq_lens_sum"],
        seq_lens_cpu=fields["seq_lens_cpu"],
    )
