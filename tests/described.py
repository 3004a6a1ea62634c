"""A described ROCm machine: the device files, KFD topology and driver files of AMD GPUs under a folder, and a HIP build of torch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

ARCHS = {"gfx942": (90402, 304, 196_592), "gfx950": (90500, 256, 294_896)}  # KFD's number, compute units, MiB
CPU_NODE = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\nlocation_id 0\ndomain 0\ndrm_render_minor 0\n"

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def unmasked(monkeypatch):
    """No device is masked; a module of tests that imports this has it in each."""
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)


def rocm_files(
    root: Path,
    count: int = 2,
    *,
    arch: str = "gfx950",
    xcds: int | None = 8,
    partitions: tuple[str, str] | None = ("SPX", "NPS1"),
    cap: int | None = 1_400_000_000,
    driver: str | None = "6.14.14",
    given: int | None = None,
) -> Path:
    """Writes what `count` GPUs show under root; None leaves a file or line out; `given`: how many render devices a container got."""
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").touch()
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    texts = [CPU_NODE]
    for number in range(count):
        bus = 0x05 + 0x10 * number
        if given is None or number < given:
            (root / f"dev/dri/renderD{128 + 8 * number}").touch()
        lines = {
            "cpu_cores_count": 0,
            "simd_count": 4 * ARCHS[arch][1],
            "gfx_target_version": ARCHS[arch][0],
            "vendor_id": 4098,
            "location_id": bus << 8,
            "domain": 0,
            "drm_render_minor": 128 + 8 * number,
            "unique_id": 7809984429061111111 + number,
            **({} if xcds is None else {"num_xcc": xcds}),
        }
        texts.append("".join(f"{name} {value}\n" for name, value in lines.items()))
        device = root / f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
        (device / "hwmon/hwmon5").mkdir(parents=True)
        for name, text in zip(("compute", "memory"), partitions or (), strict=False):
            (device / f"current_{name}_partition").write_text(text + "\n")
        if cap is not None:
            (device / "hwmon/hwmon5/power1_cap").write_text(f"{cap}\n")
    for number, text in enumerate(texts):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(text)
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/osrelease").write_text("6.8.0-60-generic\n")
    (root / "sys/module/amdgpu").mkdir(parents=True)
    if driver is not None:
        (root / "sys/module/amdgpu/version").write_text(driver + "\n")
    return root


def hip_torch(monkeypatch, arch: str = "gfx950", **more: object) -> None:
    """Makes torch answer as a HIP build with one visible device; more: further device properties."""
    properties = SimpleNamespace(
        name="AMD Instinct MI355X",
        gcnArchName=f"{arch}:sramecc+:xnack-",
        major=9,
        minor=5 if arch == "gfx950" else 4,
        total_memory=ARCHS[arch][2] << 20,
        multi_processor_count=ARCHS[arch][1],
        **more,
    )
    monkeypatch.setattr(torch.version, "hip", "7.0.51831-a3e329ad8")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
