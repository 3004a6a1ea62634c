"""Which platforms this machine has. The first look needs no torch and opens no device; the worker confirms it."""

from __future__ import annotations

import os
import platform as host
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError

CHOICES = ("cuda", "rocm", "cpu")
EVIDENCE = {"cuda": "measured", "rocm": "measured", "interpret": "interpreted", "cpu": "executed"}


def machine_platform(requested: str | None = None) -> str:
    """`cuda`, `rocm` or `cpu`: what was asked for, else what the device files say. Raises UsageError for another word."""
    if requested:
        if requested not in CHOICES:
            raise UsageError(f"unknown platform {requested!r}; it is one of {', '.join(CHOICES)} (cpu includes Triton's interpreter)")
        return requested
    if os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") and any(Path("/dev").glob("nvidia[0-9]*")):
        return "cuda"
    if Path("/dev/kfd").exists() and os.environ.get("HIP_VISIBLE_DEVICES") not in ("", "-1"):
        return "rocm"
    return "cpu"


def serves(machine: str) -> tuple[str, ...]:
    """The provider platforms a machine platform can run, the preferred first."""
    return ("interpret", "cpu") if machine == "cpu" else (machine,)


def device_count(machine: str) -> int:
    """How many devices of the platform the device files show; at least 1."""
    visible = os.environ.get({"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}.get(machine, ""))
    if visible:
        return len(visible.split(","))
    pattern = {"cuda": "nvidia[0-9]*", "rocm": "dri/renderD*"}.get(machine)
    return max(1, len(list(Path("/dev").glob(pattern)))) if pattern else 1


def visible_device(machine: str, index: int) -> dict[str, str]:
    """The environment that shows a worker its device alone."""
    variable = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}.get(machine)
    if variable is None:
        return {}
    shown = os.environ.get(variable)
    names = shown.split(",") if shown else [str(i) for i in range(device_count(machine))]
    return {variable: names[index % len(names)]}


def worker_environment(machine: str) -> dict[str, str]:
    """What a worker's environment must say before torch and triton are imported."""
    if machine == "cpu":
        return {"TRITON_INTERPRET": "1", "TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TRITON_INTERPRET": "0"}


@dataclass(frozen=True)
class Device:
    """The worker's device: `string` for torch, and what is known of it as text (name, arch, memory, driver)."""

    machine: str
    string: str
    facts: dict[str, str]


def open_device(machine: str) -> Device:
    """Opens the device in this process. Raises HarnessError when torch does not see it."""
    import torch

    if machine == "cpu":
        return Device("cpu", "cpu", {"name": host.processor() or host.machine(), "arch": "cpu", "cores": str(os.cpu_count())})
    found = "rocm" if torch.version.hip else "cuda"
    if not torch.cuda.is_available() or found != machine:
        built = f"hip {torch.version.hip}" if torch.version.hip else f"cuda {torch.version.cuda}"
        raise HarnessError(f"torch {torch.__version__} (built for {built}) sees no {machine} device; install the matching torch, or use --platform cpu")
    facts: Any = torch.cuda.get_device_properties(0)
    arch = facts.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{facts.major}{facts.minor}"
    runtime = torch.version.hip or torch.version.cuda or ""
    size = {"memory_mib": str(facts.total_memory >> 20), "units": str(facts.multi_processor_count)}
    return Device(machine, "cuda", {"name": facts.name, "arch": arch, **size, "runtime": runtime})


def synchronise(device: Device) -> None:
    """Waits for the device; a pending device error is raised here."""
    if device.string != "cpu":
        import torch

        torch.cuda.synchronize()
