"""What code outside SGLang's sources would answer on a target: torch, os, the installed packages. Strict: what is not described raises."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from harness.offline.routes.linking import Undescribed
from harness.offline.targets import Target

# standard modules that answer the same everywhere, and may be used as they are
_REAL = [
    "__future__", "abc", "ast", "base64", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "enum", "functools",
    "inspect", "itertools", "json", "math", "numbers", "operator", "packaging", "packaging.version", "pathlib", "random", "re", "string", "textwrap",
    "threading", "time", "types", "typing", "typing_extensions", "uuid", "warnings",
]  # fmt: skip
_GREATEST = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0, "float16": 65504.0}
_DTYPES = [
    "bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int8", "int16", "int32",
    "int64", "uint8", "bool", "half", "float", "int", "long",
]  # fmt: skip


class Described:
    """An object of which only `values` are known, and `absent` (which it is known not to have). `read` collects the names that were asked for."""

    def __init__(self, name: str, values: Mapping[str, Any], absent: Iterable[str] = ()) -> None:
        self.__dict__.update(_name=name, _values=dict(values), _absent=frozenset(absent), _read=set())

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        self._read.add(attribute)
        if attribute in self._values:
            return self._values[attribute]
        if attribute in self._absent:
            raise AttributeError(attribute)
        raise Undescribed(f"{self._name}.{attribute} is not described")

    def __setattr__(self, attribute: str, value: Any) -> None:
        self._values[attribute] = value

    def __repr__(self) -> str:
        return self._name


class Opaque:
    """A value that exists and that nobody may look into: a tensor, a process group."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _touched(self, *args: Any, **kwargs: Any) -> Any:
        raise Undescribed(f"the value of {self._name} is not described")

    __call__ = __getattr__ = __getitem__ = __iter__ = __bool__ = __len__ = __add__ = __lt__ = __gt__ = _touched


class _Logger:
    """Takes every message; what is logged decides nothing."""

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **kwargs: None


def world(target: Target, installed: Mapping[str, bool]) -> dict[str, Any]:
    """The described modules by dotted name. installed: package -> whether it is there on this target; any other package is undescribed."""
    logger = _Logger()
    modules: dict[str, Any] = {name: importlib.import_module(name) for name in _REAL}
    modules["logging"] = Described("logging", {"getLogger": lambda *name: logger, "Logger": _Logger, "WARNING": 30, "INFO": 20, "DEBUG": 10})
    modules["os"] = _os()
    modules["dataclasses"] = SimpleNamespace(**{**vars(dataclasses), "dataclass": _dataclass})
    modules["builtins"] = SimpleNamespace()
    modules["platform"] = Described("platform", {"machine": lambda: "x86_64", "system": lambda: "Linux"})
    modules["importlib"] = _importlib(installed)
    modules |= {f"importlib.{part}": getattr(modules["importlib"], part) for part in ("util",)}
    modules["torch"] = _torch(target)
    modules["torch.nn"] = Described("torch.nn", {})
    modules["triton"] = Described("triton", {"__version__": "3.7.1"})
    modules |= {name: ImportError(f"No module named {name!r}") for name, there in installed.items() if not there}
    return modules


def _dataclass(cls: Any = None, /, **options: Any) -> Any:
    """dataclasses.dataclass for a class whose module was never imported: it looks the module up, and gets this one."""

    def made(given: Any) -> Any:
        given.__module__ = __name__
        return dataclasses.dataclass(given, **options)

    return made if cls is None else made(cls)


def _torch(target: Target) -> Described:
    properties = Described(
        "torch.cuda.get_device_properties()",
        {"gcnArchName": target.gcn, "major": target.capability[0], "minor": target.capability[1], "name": target.name, "multi_processor_count": target.units},
    )
    cuda = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 8,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: tuple(target.capability),
        "get_device_name": lambda device=None: target.name,
        "get_device_properties": lambda device=None: properties,
    }
    no = {"is_available": lambda: False}
    values: dict[str, Any] = {name: Opaque(f"torch.{name}") for name in _DTYPES}
    ranges = {id(values[name]): SimpleNamespace(max=most, min=-most) for name, most in _GREATEST.items()}
    values |= {
        "finfo": lambda dtype: ranges[id(dtype)],
        "version": Described("torch.version", {"hip": target.hip or None, "cuda": target.cuda or None}, absent=["musa"]),
        "cuda": Described("torch.cuda", cuda),
        "mps": Described("torch.mps", no),
        "xpu": Described("torch.xpu", no),
        "cpu": Described(
            "torch.cpu",
            {"is_available": lambda: True} | {name: lambda: False for name in ("_is_amx_tile_supported", "_is_avx512_supported", "_is_avx2_supported")},
        ),
        "backends": Described("torch.backends", {"mps": Described("torch.backends.mps", no)}),
        "zeros": lambda *shape, **options: Opaque("a tensor"),
        "ones": lambda *shape, **options: Opaque("a tensor"),
    }
    return Described("torch", values, absent=["hpu", "npu", "musa"])


def _os() -> Described:
    """An environment in which no variable is set."""
    values = {"getenv": lambda name, default=None: default, "environ": {}, "path": importlib.import_module("os.path"), "sep": "/"}
    return Described("os", values)


def _importlib(installed: Mapping[str, bool]) -> Described:
    def find_spec(name: str) -> Any:
        if name not in installed:
            raise Undescribed(f"whether the package {name} is installed is not described")
        return Opaque(f"the spec of {name}") if installed[name] else None

    return Described("importlib", {"util": Described("importlib.util", {"find_spec": find_spec})})
