"""SGLang's sampling layer out of its installed sources: `Sampler`, `SamplingBatchInfo`, its penalties and its grammar mask.

The modules import neither on a CPU (transformers, torchvision) nor without a process group, so a name is bound when it is first used, by the statements
of its module that bind it. What runs is the layer's own code; what it asks the server for is described here, and the kernels it calls are imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.contracts.sampling import murmur
from harness.errors import Missing
from harness.offline.routes.linking import Linker, Undescribed
from harness.offline.routes.parsing import Tree
from harness.providers.resolve import resolve

SAMPLER = "sglang.srt.layers.sampler"
BATCH = "sglang.srt.sampling.sampling_batch_info"
PARAMETERS = "sglang.srt.sampling.sampling_params"
OUTPUT = "sglang.srt.layers.logits_processor"
GRAMMAR = "sglang.srt.constrained.outlines_backend"
_COMMON = ("sglang.srt.utils.common", "sglang.srt.utils")
# modules outside SGLang that the layer may use as they are
_REAL = (
    "abc", "collections", "contextlib", "ctypes", "dataclasses", "enum", "functools", "json", "logging", "math", "os", "re", "re._parser", "time", "types",
    "typing", "typing_extensions", "weakref", "warnings", "msgspec", "numpy", "torch", "torch.distributed", "torch.nn", "triton", "triton.language",
)  # fmt: skip
# kernels and settings that the layer calls, imported where they are first asked for
_IMPORTED = {
    f"{SAMPLER}.sampler_softmax": "sglang.kernels.ops.sampling:softmax",
    f"{SAMPLER}.envs": "sglang.srt.environ:envs",
    f"{SAMPLER}.top_k_renorm_prob": "sgl_kernel:top_k_renorm_prob",
    f"{SAMPLER}.top_p_renorm_prob": "sgl_kernel:top_p_renorm_prob",
    f"{SAMPLER}.min_p_sampling_from_probs": "flashinfer.sampling:min_p_sampling_from_probs",
    f"{SAMPLER}.top_k_top_p_sampling_from_probs": "flashinfer.sampling:top_k_top_p_sampling_from_probs",
}
_HASHES = ("sglang.kernels.ops.sampling.murmur_hash:murmur_hash32", "sglang.srt.layers.utils.hash:murmur_hash32")


@dataclass
class Batch:
    """A schedule batch as SamplingBatchInfo reads it."""

    reqs: list[Any]
    device: str


@dataclass
class Layer:
    """One version's sampling layer. backend: `pytorch` or `flashinfer`; deterministic: as --enable-deterministic-inference has it; platform: `hip`,
    `cuda` or `cpu`, what the layer is told it runs on, whatever tensors it is given; answers: what else is described, by dotted name."""

    backend: str
    deterministic: bool
    device: str
    root: Path
    platform: str = ""
    answers: Mapping[str, Any] = field(default_factory=dict)
    linker: Linker = field(init=False)

    def __post_init__(self) -> None:
        self.linker = Linker(Tree(self.root), _world(), {**self._described(), **self.answers})

    def load(self, module: str, name: str) -> Any:
        """A global of the layer. Raises Missing where the version has no such module or name."""
        try:
            return self.linker.load(module, name)
        except Undescribed as error:
            raise Missing(f"unbound: {module}:{name} ({error})") from error

    def sampler(self) -> Any:
        """A `Sampler` as a rank alone has it."""
        return self.load(SAMPLER, "Sampler")()

    def info(self, reqs: list[Any], vocab: int) -> Any:
        """The `SamplingBatchInfo` of these requests; the batch that it refers to is kept beside it."""
        batch = Batch(reqs, self.device)
        made = self.load(BATCH, "SamplingBatchInfo").from_schedule_batch(batch, vocab)
        made.kept_alive = batch
        return made

    def _described(self) -> dict[str, Any]:
        import torch

        arguments = SimpleNamespace(
            rl_on_policy_target=None,
            enable_deterministic_inference=self.deterministic,
            sampling_backend=self.backend,
            enable_custom_logit_processor=False,
            sampling_mask_max_tokens=0,
        )
        features = SimpleNamespace(enable_custom_logit_processor=False, enable_watermark=False, sampling_mask_max_tokens=0)
        server = SimpleNamespace(deterministic=arguments, kernel=arguments, features=features)
        alone = SimpleNamespace(device_group=None)
        parallel = SimpleNamespace(tp_group=alone, attn_tp_group=alone, attn_cp_group=alone, attn_cp_size=1, tp_rank=0, attn_dp_rank=0)
        here = "cpu" if self.device == "cpu" else "hip" if torch.version.hip else "cuda"
        platform = self.platform or here
        answers: dict[str, Any] = {
            "sglang.srt.runtime_context.get_exec": lambda: server,
            "sglang.srt.runtime_context.get_parallel": lambda: parallel,
            "sglang.srt.runtime_context.get_server_args": lambda: arguments,
            "sglang.srt.distributed.get_tp_group": lambda: alone,
            "sglang.srt.layers.dp_attention.get_attention_tp_group": lambda: alone,
            "sglang.srt.layers.dp_attention.is_dp_attention_enabled": lambda: False,
            "sglang.srt.layers.logprob_processor.OutputLogprobProcessor": lambda: None,
            "sglang.srt.managers.schedule_batch.ScheduleBatch": Batch,
            "sglang.srt.utils.async_probe.maybe_detect_nan": _unasked,
            "sglang.srt.utils.async_probe.sanitize_nan_logits": _unasked,
            f"{SAMPLER}.murmur_hash32": _murmur if self.device == "cpu" else _Late(*_HASHES),
            f"{SAMPLER}.logger": _Silent(),
            f"{BATCH}.logger": _Silent(),
        }
        said: dict[str, Any] = {"is_hip": platform == "hip", "is_cuda": platform == "cuda", "is_pin_memory_available": here != "cpu"} | dict.fromkeys(
            ("is_npu", "is_xpu", "is_musa"), False
        )
        said |= {"is_gfx1250_supported": False, "get_bool_env_var": False, "get_compiler_backend": "inductor"}
        answers |= {f"{module}.{name}": _Fixed(value) for module in _COMMON for name, value in said.items()}
        return answers | {name: _Late(place) for name, place in _IMPORTED.items()}


class _Fixed:
    """A function of any arguments with one answer."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._value


class _Late:
    """A kernel or setting that is imported when it is used, and is missing then where it does not import."""

    def __init__(self, *places: str) -> None:
        self._places = places

    def __call__(self, *args: Any, **named: Any) -> Any:
        return resolve(*self._places)(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(resolve(*self._places), name)


class _Silent:
    def __getattr__(self, method: str) -> Any:
        return _unasked


def _unasked(*args: Any, **named: Any) -> None:
    """What logs or checks and changes nothing."""


def _murmur(seed: Any, positions: Any, columns: Any) -> Any:
    import torch

    return murmur.hashes(seed.view(torch.int64), positions, columns.shape[0])


def _world() -> Mapping[str, Any]:
    found = {name: importlib.import_module(name) for name in _REAL}
    dataclass = SimpleNamespace(**{**vars(found["dataclasses"]), "dataclass": _dataclass})
    return found | {"dataclasses": dataclass, "torch": _Eager(found["torch"])}


class _Eager:
    """torch with a `compile` that changes nothing: its tracer does not follow names that are bound when they are first used."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    @staticmethod
    def compile(function: Any = None, **options: Any) -> Any:
        """As torch.compile, called or as a decorator."""
        return function if function is not None else lambda given: given


def _dataclass(cls: Any = None, /, **options: Any) -> Any:
    """dataclasses.dataclass for a class whose module was never imported: it looks the module up, and gets this one."""
    import dataclasses

    def made(given: Any) -> Any:
        given.__module__ = __name__
        return dataclasses.dataclass(given, **options)

    return made if cls is None else made(cls)


def installed() -> Path:
    """The folder that holds the installed sglang. Raises Missing."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise Missing("unbound: sglang (no such module)")
    return Path(next(iter(spec.submodule_search_locations))).parent


@functools.lru_cache(maxsize=8)
def layer(backend: str, deterministic: bool, device: str) -> Layer:
    """The installed version's layer."""
    return Layer(backend, deterministic, device, installed())
