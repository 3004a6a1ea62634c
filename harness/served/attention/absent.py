"""SGLang's attention modules where packages are not installed that attention never touches.

The back ends import half of SGLang: tokenizers, model files, image decoding. On a machine without `transformers` those packages, and the modules of
SGLang that stand on them, are stood in for while a block runs: every name in them is a class without contents, which can be named, inherited from
and tested for, and which raises as soon as it is called or looked into. Where `transformers` is installed nothing is stood in for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from harness.errors import Unsupported

FIRST = ("torchvision",)  # what SGLang's own __init__ imports, in versions that need it
PACKAGES = (*FIRST, "transformers", "tvm_ffi", "safetensors", "huggingface_hub", "einops", "regex", "yaml")
OWN = (
    "sglang.srt.configs",
    "sglang.srt.connector",
    "sglang.srt.entrypoints.openai.protocol",
    "sglang.srt.function_call.function_call_parser",
    "sglang.srt.layers.quantization",
    "sglang.srt.parser.reasoning_parser",
    "sglang.srt.sampling.custom_logit_processor",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers.common",
    "sglang.srt.utils.hf_transformers.config",
    "sglang.srt.utils.hf_transformers_utils",
)
# what is called while modules are imported, or on the described model configuration
_VALUES: Mapping[str, Mapping[str, Any]] = {
    "transformers.utils": {"logging": SimpleNamespace(get_logger=logging.getLogger)},
    "sglang.srt.utils.hf_transformers.common": {"get_hf_text_config": lambda config: config},
}
NOTE = "packages that attention does not touch are not installed (transformers and others) and are stood in for"


@functools.cache
def needed() -> bool:
    """Whether anything has to be stood in for on this machine."""
    return importlib.util.find_spec("transformers") is None


class _Kind(type):
    """The class of what stands in: an empty class."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(f"{cls.__module__}.{cls.__name__} stands in for what is not installed; it has no {name}")

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if "_stands_in" in cls.__dict__:
            raise Unsupported(f"SGLang calls {cls.__module__}.{cls.__name__}, which is not installed here")
        return super().__call__(*args, **named)


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Kind(name, (), {"__module__": self.__name__, "_stands_in": True})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def __init__(self, takes: Callable[[str], bool], root: Path | None = None) -> None:
        self._takes, self._root, self.made = takes, root, list[str]()

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if self._takes(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.made.append(spec.name)
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        folder = self._root.joinpath(*module.__name__.split(".")[1:]) if self._root else None
        module.__path__ = [str(folder)] if folder and folder.is_dir() else []  # what lies in such a package of SGLang's is imported as it is
        vars(module).update(_VALUES.get(module.__name__, {}))


@contextlib.contextmanager
def stood_in() -> Iterator[None]:
    """While the block runs SGLang's attention modules can be imported; afterwards every other import finds what it found before."""
    if not needed():
        yield
        return
    with _found(_Finder(lambda name: name.split(".")[0] in FIRST), last=True):
        root = Path(str(importlib.import_module("sglang").__file__)).parent
    foreign = _Finder(lambda name: name.split(".")[0] in PACKAGES)
    with _found(foreign, last=True), _found(_Finder(lambda name: name in OWN, root), last=False):
        yield


@contextlib.contextmanager
def _found(finder: _Finder, *, last: bool) -> Iterator[None]:
    sys.meta_path.insert(len(sys.meta_path) if last else 0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.made:
            sys.modules.pop(name, None)
