"""Which platforms this machine has. The first look needs no torch and opens no device; the worker confirms it.

`root` stands for / (tests describe another machine under it).
"""

from __future__ import annotations

import itertools
import os
import platform as host
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.machine import amdgpu
from harness.machine.starts import start_of

CHOICES = ("cuda", "rocm", "cpu")
EVIDENCE = {"cuda": "measured", "rocm": "measured", "interpret": "interpreted", "cpu": "executed"}
_ROOT = Path("/")
# by platform: the variables that hide devices, the strongest first. HIP counts within what ROCr lets through
_VISIBLE = {"cuda": ("CUDA_VISIBLE_DEVICES",), "rocm": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")}
_DRIVER = {"cuda": ("sys/module/nvidia/version", "proc/driver/nvidia/version"), "rocm": ("sys/module/amdgpu/version",)}
# where a fact that is not known has been looked for
SOURCES = {"cuda": {"driver": " and ".join(f"/{place}" for place in _DRIVER["cuda"])}, "rocm": {"driver": f"/{_DRIVER['rocm'][0]}", **amdgpu.SOURCES}}


def machine_platform(requested: str | None = None, root: Path = _ROOT) -> str:
    """`cuda`, `rocm` or `cpu`: what was asked for, else what the device files say. Raises UsageError for another word."""
    if requested:
        if requested not in CHOICES:
            raise UsageError(f"unknown platform {requested!r}; it is one of {', '.join(CHOICES)} (cpu includes Triton's interpreter)")
        return requested
    if _shown("cuda") != [] and any((root / "dev").glob("nvidia[0-9]*")):
        return "cuda"
    # a driver may be loaded without a GPU that computes
    if _shown("rocm") != [] and (root / "dev/kfd").exists() and amdgpu.gpus(root) != []:
        return "rocm"
    return "cpu"


def serves(machine: str) -> tuple[str, ...]:
    """The provider platforms a machine platform can run, the preferred first."""
    return ("interpret", "cpu") if machine == "cpu" else (machine,)


def _shown(machine: str) -> list[str] | None:
    """The names that the environment leaves of the machine's devices, in the words of its strongest variable; None: all."""
    for variable in _VISIBLE.get(machine, ()):
        if (text := os.environ.get(variable)) is not None:
            # the runtimes stop at the first entry that names no device
            names = list(itertools.takewhile(lambda name: name not in ("", "-1"), map(str.strip, text.split(","))))
            return [str(i) for i in range(len(names))] if variable.startswith("ROCR") else names
    return None


def device_count(machine: str, root: Path = _ROOT) -> int:
    """How many devices of the platform this process may open; at least 1."""
    shown = _shown(machine)
    if shown is not None:
        return max(1, len(shown))
    if machine == "rocm":
        return max(1, len(amdgpu.gpus(root) or ()))
    return max(1, len(list((root / "dev").glob("nvidia[0-9]*")))) if machine == "cuda" else 1


def visible_device(machine: str, index: int, root: Path = _ROOT) -> dict[str, str]:
    """The environment that shows a worker its device alone."""
    if machine not in _VISIBLE:
        return {}
    names = _shown(machine) or [str(i) for i in range(device_count(machine, root))]
    first, *others = _VISIBLE[machine]
    # HIP reads CUDA's variable too, and so do libraries that ask for both to agree
    given = [first, *(variable for variable in others if variable.startswith("CUDA") and variable in os.environ)]
    return dict.fromkeys(given, names[index % len(names)])


def worker_environment(machine: str) -> dict[str, str]:
    """What a worker's environment must say before torch and triton are imported."""
    if machine == "cpu":
        hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}  # HIP takes an empty list for none given
        return {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", **hidden}
    return {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TRITON_INTERPRET": "0"}


@dataclass(frozen=True)
class Device:
    """The worker's device: `string` for torch, what is known of it as text (name, arch, memory, driver), and which machine start it is."""

    machine: str
    string: str
    facts: dict[str, str]
    start: str = ""


def driver(machine: str, root: Path = _ROOT) -> str:
    """The version of the loaded kernel driver; an empty string where no file says it."""
    for place in _DRIVER.get(machine, ()):
        try:
            found = re.search(r"\d+\.\d[\w.+-]*", (root / place).read_text())
        except OSError:
            continue
        if found:
            return found[0]
    if machine == "rocm" and (root / "sys/module/amdgpu").is_dir():  # the kernel's own driver has no version beside the kernel's
        try:
            return f"Linux {(root / 'proc/sys/kernel/osrelease').read_text().strip()}"
        except OSError:
            return ""
    return ""


def facts_without_torch(machine: str, root: Path = _ROOT, bus: str = "") -> dict[str, str]:
    """What files say of the device at that PCI address, or of all devices where none is given: driver, and on ROCm arch and partition."""
    found = {"driver": driver(machine, root)}
    if machine == "rocm":
        found |= amdgpu.common(amdgpu.gpus(root) or (), bus)
    return {key: value for key, value in found.items() if value}


def open_device(machine: str, root: Path = _ROOT) -> Device:
    """Opens the device in this process. Raises HarnessError when torch does not see it."""
    import torch

    if machine == "cpu":
        return Device("cpu", "cpu", {"name": host.processor() or host.machine(), "arch": "cpu", "cores": str(os.cpu_count())})
    found = "rocm" if torch.version.hip else "cuda"
    if not torch.cuda.is_available() or found != machine:
        built = f"hip {torch.version.hip}" if torch.version.hip else f"cuda {torch.version.cuda}"
        kfd = root / "dev/kfd"
        closed = found == machine == "rocm" and kfd.exists() and not os.access(kfd, os.R_OK | os.W_OK)
        remedy = "this user may not open /dev/kfd (groups render and video)" if closed else "install the matching torch, or use --platform cpu"
        raise HarnessError(f"torch {torch.__version__} (built for {built}) sees no {machine} device; {remedy}")
    facts: Any = torch.cuda.get_device_properties(0)
    address = [getattr(facts, f"pci_{part}_id", -1) for part in ("domain", "bus", "device")]  # older torch does not say
    bus = "{:04x}:{:02x}:{:02x}".format(*address) if min(address) >= 0 else ""
    arch = facts.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{facts.major}{facts.minor}"
    size = {"memory_mib": str(facts.total_memory >> 20), "units": str(facts.multi_processor_count)}
    named = {"name": facts.name, "arch": arch, **size, "runtime": torch.version.hip or torch.version.cuda or ""}
    said = {**named, **facts_without_torch(machine, root, bus), **named}  # where both say the arch, torch's counts
    return Device(machine, "cuda", said, start_of(str(getattr(facts, "uuid", "")) or bus, root))


def synchronise(device: Device) -> None:
    """Waits for the device; a pending device error is raised here. A kernel is launched for it: a launch that failed is told to whoever
    launches next, and must not be told to the next cell."""
    if device.string != "cpu":
        import torch

        torch.ones((), device=device.string)
        torch.cuda.synchronize()
