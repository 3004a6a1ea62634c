"""A described device in place of a real one: torch and Triton of this process answer for the target. Not undone; for a process of its own.

Tensors stay on the CPU and say that they are on the device. Triton compiles for the target and launches nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from harness.offline.targets import Target

DEVICE = "cuda"  # torch's word for both vendors


def describe(target: Target) -> contextlib.AbstractContextManager[Any]:
    """Makes this process one with the target as its only device; what runs inside the returned context may name the device.

    To be called before a library under test is imported: many ask at import.
    """
    import torch
    from triton.runtime import driver

    version: Any = torch.version
    version.hip, version.cuda = target.hip or None, target.cuda or None
    properties = _properties(target)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: target.capability,
        "get_device_name": lambda device=None: target.name,
        "mem_get_info": lambda device=None: (properties.total_memory, properties.total_memory),
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0, device=torch.device(DEVICE, 0)),
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "device": _nowhere,
        "is_initialized": lambda: True,
        "empty_cache": lambda: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    tensor: Any = torch.Tensor
    tensor.is_cuda = property(lambda self: True)
    tensor.is_cpu = property(lambda self: False)
    tensor.device = property(lambda self: torch.device(DEVICE, 0))
    tensor.cuda = lambda self, *args, **options: self
    tensor.get_device = lambda self: 0
    driver.set_active(_driver(target))
    return _on_cpu()


def unknown() -> str:
    """Why Triton's back end cannot compile for the described device at all: an empty kernel fails; an empty string where it does not."""
    import triton
    from triton.compiler import ASTSource

    try:
        triton.compile(ASTSource(triton.jit(_nothing), {}, {}, {}))
    except OSError:  # the disk's fault, which the first cell tells
        return ""
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:120]
    return ""


def _nothing() -> None:
    """The kernel that every known target compiles."""


def _properties(target: Target) -> SimpleNamespace:
    """What torch.cuda.get_device_properties answers; a field that is not described raises AttributeError."""
    major, minor = target.capability
    properties = SimpleNamespace(name=target.name, major=major, minor=minor, total_memory=target.memory_gib << 30)
    properties.multi_processor_count, properties.warp_size = target.units, target.warp
    properties.max_threads_per_block, properties.shared_memory_per_block_optin = 1024, target.shared_limit
    if target.gcn:
        properties.gcnArchName = target.gcn
    return properties


@contextlib.contextmanager
def _nowhere(device: Any = None) -> Iterator[None]:
    """torch.cuda.device of the only device."""
    yield


def _on_cpu() -> Any:
    """A torch mode under which a tensor asked for on the device is made on the CPU."""
    import torch
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        named = value if isinstance(value, (str, torch.device)) else ""
        return torch.device("cpu") if str(named).partition(":")[0] == DEVICE else value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.device:  # only the name of one
                return func(*args, **(kwargs or {}))
            options = {name: here(value) for name, value in (kwargs or {}).items()}
            if options.get("pin_memory"):  # there is nothing to pin for
                del options["pin_memory"]
            return func(*map(here, args), **options)

    return OnCpu()


def _driver(target: Target) -> Any:
    """Triton's driver of the target: it compiles, knows the limits, and launches nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    arch = int(target.arch) if target.cuda else target.arch
    limits = {
        "max_shared_mem": target.shared_limit,
        "multiprocessor_count": target.units,
        "warpSize": target.warp,
        "max_num_regs": 65536,
        "sm_clock_rate": 0,
        "mem_clock_rate": 0,
        "mem_bus_width": 0,
    }
    described = GPUTarget("cuda" if target.cuda else "hip", arch, target.warp)

    class Described(DriverBase):  # type: ignore[misc]  # triton is untyped
        utils = SimpleNamespace(
            get_device_properties=lambda device: limits,
            load_binary=lambda name, kernel, shared, device: (None, None, 0, 0, 1024),
        )
        launcher_cls = staticmethod(lambda source, metadata: lambda *args: None)

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return described

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device(DEVICE, 0)

        def get_benchmarker(self) -> Any:
            return lambda call, *, quantiles, **options: (call(), [1.0 for _ in quantiles])[1]

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def get_device_capability(self, device: int = 0) -> tuple[int, int]:
            return target.capability

        def get_device_interface(self) -> Any:
            import torch

            return torch.cuda

    return Described()
