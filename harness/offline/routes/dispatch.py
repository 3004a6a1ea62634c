"""SGLang's choice of an attention backend, run from its sources on a described model and target."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.models import Model
from harness.offline.routes.linking import Linker, Undescribed, told
from harness.offline.routes.objects import Instance, argument_defaults
from harness.offline.routes.parsing import Module, Place, Tree
from harness.offline.routes.slicing import cut
from harness.offline.routes.world import Described, world
from harness.offline.targets import Target

_CONFIG = "sglang.srt.configs.model_config"
ARGUMENTS = "sglang.srt.server_args"
_LOADERS = ("sglang.srt.utils.hf_transformers_utils", "sglang.srt.utils.hf_transformers.common")
OVERRIDES = "sglang.srt.arg_groups.overrides"
BASE = "sglang.srt.arg_groups.model_override_base"
_BACKENDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
NO_SPECULATION = {
    "speculative_algorithm": None,
    "speculative_attention_mode": "prefill",
    "speculative_num_draft_tokens": None,
    "speculative_num_steps": None,
}


@dataclass(frozen=True)
class Served:
    """A model as SGLang knows it: architecture and model_type of its configuration, the kind of attention, the fields it is assumed not to have,
    and the function by which some versions load the configuration under another architecture."""

    model: Model
    architecture: str
    model_type: str
    kind: str
    absent: tuple[str, ...] = ()
    loader: str = ""


@dataclass
class Outcome:
    """What the dispatch code answered. `conditions` are those it evaluated, in order; `stopped` is where an undescribed name ended it."""

    prefill: str = ""
    decode: str = ""
    arch: str = ""
    decided: str = ""
    conditions: list[tuple[Place, bool]] = field(default_factory=list)
    assumed: frozenset[str] = frozenset()
    stopped: str = ""

    @property
    def backend(self) -> str:
        """One word, or `prefill+decode` where the two differ."""
        return self.prefill if self.prefill == self.decode else f"{self.prefill}+{self.decode}"


class Dispatch:
    """One version of SGLang on one target."""

    def __init__(self, tree: Tree, target: Target, installed: Mapping[str, bool], answers: Mapping[str, Any]) -> None:
        self.tree, self.target = tree, target
        self.speculation: dict[str, Any] = dict(NO_SPECULATION)  # what get_spec() answers
        self.linker = Linker(tree, world(target, installed), {**self._answers(), **answers})
        self._defaults = argument_defaults(tree)
        self._classes: frozenset[str] | None = None
        self._loaded: dict[str, dict[str, Any]] = {}
        self.deciding = {"get_default_attn_backend", "_get_default_attn_backend", "_handle_model_specific_adjustments"}  # functions that choose backends
        self.modern = self._registers()

    def choose(self, served: Served, tp: int, arguments: Mapping[str, Any] | None = None, forced: Mapping[Place, bool] | None = None) -> Outcome:
        """The backends that a server started with default arguments, `--tp-size tp` and `arguments` would use. Never raises Undescribed."""
        served, trace = self.seen(served), self.linker.trace
        trace.seen, trace.forced = [], dict(forced or {})
        outcome = Outcome()
        text = self.config(served)
        try:
            config = self.model_config(served, text)
            outcome.arch = config.attention_arch.name.lower()
            trace.seen.clear()
            found = self._resolve(self.server_args(config, tp, arguments or {}), served, outcome)
            outcome.prefill = found["prefill_attention_backend"] or found["attention_backend"]
            outcome.decode = found["decode_attention_backend"] or found["attention_backend"]
        except (Undescribed, Exception) as error:  # another error is SGLang's own refusal, or code of a form that is not known here
            outcome.stopped = told(error)
        outcome.conditions, trace.forced = list(trace.seen), {}
        outcome.assumed = frozenset(text._read & set(served.absent))
        return outcome

    def seen(self, served: Served) -> Served:
        """The model with the architecture that this version's own loader writes into its configuration, where it has that loader."""
        if served.loader and served.loader not in self._loaded:
            nodes = [module.function(served.loader) for name in _LOADERS if (module := self.tree.module(name))]
            self._loaded[served.loader] = {
                str(part.targets[0].slice.value): ast.literal_eval(part.value)
                for node in nodes
                for part in (ast.walk(node) if node else ())
                if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Subscript) and isinstance(part.targets[0].slice, ast.Constant)
            }
        written = self._loaded.get(served.loader)
        return dataclasses.replace(served, architecture=written["architectures"][0], model_type=written["model_type"], loader="") if written else served

    def architectures(self) -> frozenset[str]:
        """The model classes of this version."""
        if self._classes is None:
            folder = self.tree.root / "sglang" / "srt" / "models"
            self._classes = frozenset(name for path in folder.rglob("*.py") for name in re.findall(r"^class (\w+)", path.read_text(errors="replace"), re.M))
        return self._classes

    def config(self, served: Served) -> Described:
        """The Hugging Face configuration of the model, as far as it is described."""
        model = served.model
        values = {
            "architectures": [served.architecture],
            "model_type": served.model_type,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim,
            "v_head_dim": model.v_dim,
            "vocab_size": model.vocab,
        }
        if model.kind == "mla":
            values |= {"kv_lora_rank": model.latent, "qk_rope_head_dim": model.rope, "qk_nope_head_dim": model.nope}
        absent = set(served.absent)
        if model.index_topk:
            values["index_topk"] = model.index_topk
        else:
            absent |= {"index_topk"}
        return Described("the model's configuration", values, absent)

    def model_config(self, served: Served, text: Described) -> Instance:
        """SGLang's ModelConfig over that configuration; whether it is MLA is decided by SGLang's own conditions."""
        module = self.linker.module(_CONFIG)
        sinks = served.model.sinks
        values = {"hf_config": text, "hf_text_config": text, "is_draft_model": False, "num_attention_heads": served.model.heads, "has_attention_sinks": sinks}
        values |= {
            "head_dim": served.model.head_dim,
            "v_head_dim": served.model.v_dim,
            "swa_head_dim": served.model.head_dim,
            "swa_v_head_dim": served.model.v_dim,
        }
        config = Instance(self.linker, module, "ModelConfig", values)
        config.call("_derive_model_shapes", "attention_arch")
        return config

    def server_args(self, config: Instance | None, tp: int, arguments: Mapping[str, Any]) -> Instance:
        """SGLang's ServerArgs with its own defaults."""
        values = {**self._defaults, "model_path": "described", "device": "cuda", "tp_size": tp, "_model_config": config, "_model_config_built_from": None}
        values |= {"model_config": config, "get_model_config": lambda: config, "_resolved_overrides": [], "_quantization_explicitly_unset": False, **arguments}
        return Instance(self.linker, self.linker.module(ARGUMENTS), "ServerArgs", values)

    def _resolve(self, args: Instance, served: Served, outcome: Outcome) -> dict[str, Any]:
        before = {name: getattr(args, name) for name in _BACKENDS}
        if self.modern:
            self._mamba(args)
            collect = self.linker.load(OVERRIDES, "collect_model_override_declarations")
            args._resolved_overrides += collect(served.architecture, args, args._model_config.hf_config)
            found = before | {name: value for _, declared in args._resolved_overrides for name, value in declared.items() if name in _BACKENDS}
        else:
            args.call("_handle_model_specific_adjustments", *_BACKENDS)
            found = {name: getattr(args, name) for name in _BACKENDS}
        outcome.decided = "model" if found != before else "arguments" if any(found.values()) else "default"
        if self.modern:
            fill = self.linker.load(OVERRIDES, "_attention_backend_default")
            found |= fill(self.linker.load(OVERRIDES, "resolved_view")(args))
        elif found["attention_backend"] is None and self.linker.module(ARGUMENTS).function("_get_default_attn_backend", "ServerArgs"):
            found["attention_backend"] = args._get_default_attn_backend(args.use_mla_backend(), args.get_model_config())
        elif found["attention_backend"] is None:
            args.call("_handle_attention_backend_compatibility", *_BACKENDS)
            found = {name: getattr(args, name) for name in _BACKENDS}
        return found

    def _mamba(self, args: Instance) -> None:
        """The earlier pass that some providers of overrides lean on; a strategy that it leaves open may not be read."""
        passed = self.linker.load(OVERRIDES, "_mamba_radix_cache_resolution")(self.linker.load(OVERRIDES, "resolved_view")(args))
        args._resolved_overrides += [("_mamba_radix_cache_resolution", passed)]
        if "mamba_radix_cache_strategy" not in passed:
            del args.mamba_radix_cache_strategy

    def _registers(self) -> bool:
        """Runs the registrations of model overrides (0.5.15 and later); False where this version has no registry."""
        module = self.tree.module(OVERRIDES)
        if module is None or module.function("collect_model_override_declarations") is None:
            return False
        self.linker.filled |= {
            f"{place}.{name}" for place in (OVERRIDES, BASE) for name in ("_MODEL_OVERRIDE_FNS", "_PREDICATE_OVERRIDE_FNS", "POST_PROCESS_PASSES")
        }
        folder = self.tree.root / "sglang" / "srt" / "arg_groups" / "model_overrides"
        names = [f"sglang.srt.arg_groups.model_overrides.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
        for name in [*names, OVERRIDES]:
            module = self.linker.module(name)
            for node in module.tree.body:
                if isinstance(node, ast.FunctionDef) and any(
                    "register" in ast.unparse(mark) and "post_process" not in ast.unparse(mark) for mark in node.decorator_list
                ):
                    self._register(module, node)
        return True

    def _register(self, module: Module, node: ast.FunctionDef) -> None:
        """Registers one provider of overrides, cut down to what it says of attention backends; one that names none says nothing of them."""
        words = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)} | {
            part.arg for part in ast.walk(node) if isinstance(part, ast.keyword)
        }
        if words & set(_BACKENDS):
            self.deciding.add(node.name)
            self.linker.function(module, cut(node, *(f"overrides[{backend!r}]" for backend in _BACKENDS))[0])

    def _answers(self) -> dict[str, Any]:
        """What a server with default arguments answers where SGLang asks its running self: no plugin platform, no data parallelism."""
        return {
            "sglang.srt.platforms.current_platform": Described("current_platform", {"is_out_of_tree": lambda: False}),
            "sglang.srt.runtime_context.get_spec": lambda: Described("get_spec()", self.speculation),
            "sglang.srt.layers.dp_attention.is_dp_attention_enabled": lambda: False,
        }
