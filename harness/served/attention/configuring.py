"""What a back end is told at its construction: server arguments, the model's configuration, the parallel layout and the runner.

Everything describes one rank: its own query and kv heads, a tensor-parallel group of one. What SGLang's constructors divide by the size of
the group is the same either way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from harness.served.attention.described import Described

_ARGUMENTS = "sglang.srt.server_args"
_CONTEXT = "sglang.srt.runtime_context"
_SIZES = ("world_size", "tp_size", "pp_size", "attn_tp_size", "attn_cp_size", "attn_dp_size", "dcp_size", "attn_dcp_size")
_RANKS = ("world_rank", "tp_rank", "pp_rank", "attn_tp_rank", "attn_cp_rank", "attn_dp_rank", "dcp_rank", "attn_dcp_rank")


@dataclass(frozen=True)
class Shape:
    """The attention layer of one rank, and the batch it serves.

    dim, v_dim   what the layer is built with: 576 and 512 where MLA is absorbed, 192 and 128 where it is explicit
    nope, value  of MLA: what the model's configuration says of a head without rope, and of a head of values
    nodes, topk  draft tokens a request of speculative verification (0: none), and how many a draft step keeps
    window       keys before its own position that a query sees; -1: all
    """

    mla: bool
    heads: int
    kv_heads: int
    dim: int
    v_dim: int
    scale: float
    dtype: Any
    device: str
    page: int
    context: int
    batch: int
    soft_cap: float = 0.0
    window: int = -1
    nope: int = 128
    value: int = 128
    nodes: int = 0
    topk: int = 0


def server_arguments(shape: Shape, flag: str) -> Any:
    """SGLang's own ServerArgs with its defaults: the back end, page size and speculation set, nothing resolved that would read a model's files."""
    kind = importlib.import_module(_ARGUMENTS).ServerArgs
    given = {
        "model_path": "described",
        "device": shape.device,
        "page_size": shape.page,
        "attention_backend": flag,
        "kv_cache_dtype": "auto",
        "speculative_algorithm": "EAGLE" if shape.nodes else None,
        "speculative_num_draft_tokens": shape.nodes or None,
        "speculative_num_steps": max(1, shape.nodes - 1) if shape.nodes else None,
        "speculative_eagle_topk": shape.topk or None,
    }
    if not dataclasses.is_dataclass(kind):
        return kind(**given)
    made: Any = object.__new__(kind)  # type: ignore[arg-type]  # through 0.5.18 the constructor resolves: it reads the model's files and asks for devices
    for field in dataclasses.fields(kind):
        made.__dict__[field.name] = field.default_factory() if callable(field.default_factory) else field.default
    made.__dict__.update(given)
    return made


@contextlib.contextmanager
def published(arguments: Any) -> Iterator[None]:
    """The arguments and the layout of one rank as SGLang's process-wide context while the block runs."""
    room = importlib.import_module(_CONTEXT)
    before = room.get_context()._server_args
    room.get_context().set_server_args(arguments)
    layout = dict.fromkeys(_SIZES, 1) | dict.fromkeys(_RANKS, 0) | {"dcp_enabled": False}
    known = room._PARALLEL_FIELDS if hasattr(room, "_PARALLEL_FIELDS") else room._parallel_fields()
    try:
        with room.get_parallel().override(**{name: value for name, value in layout.items() if name in known}):
            yield
    finally:
        if before is not None:
            room.get_context().set_server_args(before)


def model_configuration(shape: Shape) -> Described:
    """What the back ends read of ModelConfig, in any version."""
    arch = importlib.import_module("sglang.srt.configs.model_config").AttentionArch
    text = Described(
        "hf_config",
        {
            "architectures": ["DescribedForCausalLM"],
            "model_type": "described",
            "attn_logit_softcapping": shape.soft_cap or None,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
        },
        absent=("dual_chunk_attention_config", "index_topk", "attention_chunk_size", "layer_types", "text_config"),
    )
    text.get_text_config = lambda: text
    values = {
        "attention_arch": arch.MLA if shape.mla else arch.MHA,
        "hf_config": text,
        "hf_text_config": text,
        "context_len": shape.context,
        "dtype": shape.dtype,
        "num_attention_heads": shape.heads,
        "get_max_num_attention_heads": lambda *sizes: shape.heads,
        "get_num_kv_heads": lambda *sizes: shape.kv_heads,
        "head_dim": shape.nope + 64 if shape.mla else shape.dim,
        "v_head_dim": shape.value if shape.mla else shape.v_dim,
        "swa_v_head_dim": shape.value if shape.mla else shape.v_dim,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": 64,
        "scaling": shape.scale,
        "is_encoder_decoder": False,
        "is_multimodal": False,
        "is_local_attention_model": False,
        "is_hybrid_swa": False,
        "linear_attn_registry_result": None,
    }
    return Described("model_config", values)


def runner(shape: Shape, flag: str, arguments: Any, pools: Any) -> Described:
    """The model runner as the back ends read it; `pools` has `requests` and `tokens`."""
    spec = importlib.import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    algorithm = spec.from_string("EAGLE" if shape.nodes else None)
    allocator = Described("token_to_kv_pool_allocator", {"get_kvcache": lambda: pools.tokens}, absent=("translate_kv_loc",))
    values = {
        "device": shape.device,
        "gpu_id": 0,
        "dtype": shape.dtype,
        "kv_cache_dtype": shape.dtype,
        "kv_cache_dtype_str": "auto",
        "page_size": shape.page,
        "sliding_window_size": shape.window if shape.window >= 0 else None,
        "attention_chunk_size": None,
        "is_draft_worker": False,
        "spec_algorithm": algorithm,
        "decode_num_tokens_per_req": lambda: shape.nodes or 1,
        "model_config": model_configuration(shape),
        "server_args": arguments,
        "ps": SimpleNamespace(tp_size=1, tp_rank=0, attn_tp_size=1, attn_tp_rank=0, attn_cp_size=1, attn_cp_rank=0),
        "prefill_attention_backend_str": flag,
        "decode_attention_backend_str": flag,
        "req_to_token_pool": pools.requests,
        "token_to_kv_pool": pools.tokens,
        "token_to_kv_pool_allocator": allocator,
    }
    made = Described("model_runner", values, absent=("prefill_aware_swa",))
    with contextlib.suppress(ModuleNotFoundError):  # newer than 0.5.16
        translators = importlib.import_module("sglang.srt.mem_cache.kv_index_translator")
        made.kv_index_translator = translators.KVIndexTranslator(
            req_to_token=pools.requests.req_to_token,
            token_to_kv_pool_allocator=allocator,
            token_to_kv_pool=pools.tokens,
            page_size=shape.page,
            device=shape.device,
        )
    return made
