"""The routes of the installed SGLang by importing its functions whole: what code taken out of the sources is held against. For a process of its own.

Only its configuration classes, which need transformers, and the DSA page-size probe are stood in for. Prints `{"TARGET MODEL TP": backend}`.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.contracts.models import Model, load_models
from harness.offline.routes.facts import load_facts
from harness.offline.routes.judge import TPS, splits
from harness.offline.routes.objects import argument_defaults
from harness.offline.routes.parsing import Tree

CASES = Path(__file__).resolve().parent.parent / "cases"
DSA = ("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "LongcatFlashForCausalLM")
FACTS = [
    "is_cuda", "is_hip", "is_npu", "is_xpu", "is_musa", "is_mps", "is_sm90", "is_sm100", "is_sm110", "is_sm120", "is_blackwell",
    "is_hopper_with_cuda_12_3", "has_flashinfer", "has_amx",
]  # fmt: skip
TARGETS: dict[str, dict[str, Any]] = {
    "gfx950": {"is_hip": True},
    "sm_90": {"is_cuda": True, "is_sm90": True, "is_hopper_with_cuda_12_3": True, "has_flashinfer": True, "device_sm": 90},
    "sm_100": {"is_cuda": True, "is_sm100": True, "is_blackwell": True, "has_flashinfer": True, "device_sm": 100},
}


class AttentionArch(enum.IntEnum):
    MLA = 1
    MHA = 2


def stand_in(name: str, **values: Any) -> None:
    module: Any = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(values)
    sys.modules[name] = module


def routes() -> Iterator[tuple[str, str]]:
    """Every model, TP and target with its backend."""
    import sglang
    from sglang.srt.arg_groups import overrides
    from sglang.srt.runtime_context import override_platform

    def is_dsa(config: Any) -> bool:
        return config.architectures[0] in DSA and getattr(config, "index_topk", None) is not None

    config = {"AttentionArch": AttentionArch, "ModelConfig": object, "is_deepseek_dsa": is_dsa, "get_dsa_index_kpool": lambda config: 1}
    stand_in("sglang.srt.configs")
    stand_in("sglang.srt.configs.model_config", **config, unwrap_modelopt_quantization_config=lambda given: given)
    stand_in("sglang.srt.configs.linear_attn_model_registry", get_linear_attn_spec=lambda config: None)
    for name in ("sglang.srt.layers", "sglang.srt.layers.attention", "sglang.srt.layers.attention.dsa"):
        stand_in(name)
    stand_in("sglang.srt.layers.attention.dsa.utils", aiter_can_use_preshuffle_paged_mqa=lambda: False)
    defaults = argument_defaults(Tree(Path(sglang.__file__).parent.parent))
    facts = load_facts(CASES / "routes.toml")
    for target, told in TARGETS.items():
        with override_platform(**{**dict.fromkeys(FACTS, False), **told}):
            for model in load_models(CASES / "models.toml").values():
                served = facts.served(model)
                for tp in (tp for tp in TPS if splits(model, tp)):
                    yield f"{target} {model.name} {tp}", route(overrides, arguments(model, served, defaults, tp), served.architecture)


def arguments(model: Model, served: Any, defaults: dict[str, Any], tp: int) -> Any:
    """Plain objects in place of SGLang's server arguments and model configuration."""
    config = types.SimpleNamespace(architectures=[served.architecture], model_type=served.model_type)
    if model.index_topk:
        config.index_topk = model.index_topk
    described = types.SimpleNamespace(
        hf_config=config,
        attention_arch=AttentionArch.MLA if model.kind == "mla" else AttentionArch.MHA,
        get_num_kv_heads=lambda tp: max(1, model.kv_heads // tp),
        has_attention_sinks=model.sinks,
        has_asymmetric_kv=False,
        quantization=None,
        nvfp4_moe_meta=None,
        is_fp4_experts=False,
    )
    own = {"tp_size": tp, "device": "cuda", "model_path": "described", "_model_config": described}
    return types.SimpleNamespace(**{**defaults, **own, "_resolved_overrides": [], "_quantization_explicitly_unset": False})


def route(overrides: Any, args: Any, architecture: str) -> str:
    """The backend, by the same three steps that a server takes."""
    args._resolved_overrides.append(("mamba", overrides._mamba_radix_cache_resolution(overrides.resolved_view(args))))
    args._resolved_overrides += overrides.collect_model_override_declarations(architecture, args, args._model_config.hf_config)
    args._resolved_overrides.append(("default", overrides._attention_backend_default(overrides.resolved_view(args))))
    prefill, decode = overrides.attention_backends_of(overrides.resolved_view(args))
    return prefill if prefill == decode else f"{prefill}+{decode}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(dict(routes())))
