"""The platform rocm under a described machine: no AMD device, driver or tool is needed, and none is asked."""

from __future__ import annotations

import os

import pytest
from described import (
    hip_torch,
    rocm_files,
    unmasked,  # noqa: F401
)
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import op, ops
from harness.contracts.inputs import FLAVOURS
from harness.errors import HarnessError
from harness.machine import amdgpu, platforms
from harness.machine.pool import Worker
from harness.providers import providers


def test_a_rocm_machine_is_recognised_by_its_files(tmp_path):
    assert platforms.machine_platform(root=tmp_path) == "cpu"
    rocm_files(tmp_path, 2)
    assert platforms.machine_platform(root=tmp_path) == "rocm"
    assert platforms.device_count("rocm", tmp_path) == 2
    (tmp_path / "dev/nvidia0").touch()
    assert platforms.machine_platform(root=tmp_path) == "cuda"


def test_a_driver_without_a_gpu_is_no_rocm_machine(tmp_path):
    assert platforms.machine_platform(root=rocm_files(tmp_path, 0)) == "cpu"


def test_a_container_counts_the_devices_it_was_given(tmp_path):
    assert platforms.device_count("rocm", rocm_files(tmp_path, 8, given=3)) == 3


def test_without_a_topology_the_device_file_is_believed(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    assert platforms.machine_platform(root=tmp_path) == "rocm"
    assert platforms.device_count("rocm", tmp_path) == 1


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_driver_files_are_read(tmp_path, arch):
    first, second = amdgpu.gpus(rocm_files(tmp_path, 2, arch=arch))
    assert first == {"bus": "0000:05:00.0", "arch": arch, "xcds": "8", "compute_partition": "SPX", "memory_partition": "NPS1", "power_cap_w": "1400"}
    assert second["bus"] == "0000:15:00.0"


@given(st.integers(9, 12), st.integers(0, 9), st.integers(0, 15))
def test_an_arch_is_kfds_number_in_hex(major, minor, stepping):
    assert amdgpu._arch(major * 10000 + minor * 100 + stepping) == f"gfx{major}{minor}{stepping:x}"


def test_a_partition_is_found_at_its_gpus_address(tmp_path):
    root = rocm_files(tmp_path, 1, partitions=("CPX", "NPS4"), xcds=1)
    properties = root / "sys/class/kfd/kfd/topology/nodes/1/properties"
    properties.write_text(properties.read_text().replace("location_id 1280", f"location_id {1280 | 3 << 28}"))
    (gpu,) = amdgpu.gpus(root)
    assert (gpu["bus"], gpu["xcds"], gpu["compute_partition"]) == ("0000:05:00.0", "1", "CPX")


def test_what_gpus_do_not_agree_on_is_said_of_a_known_address_alone(tmp_path):
    root = rocm_files(tmp_path, 2)
    (root / "sys/bus/pci/devices/0000:15:00.0/current_compute_partition").write_text("CPX\n")
    found = amdgpu.gpus(root)
    assert "compute_partition" not in amdgpu.common(found)
    assert amdgpu.common(found)["memory_partition"] == "NPS1"
    assert amdgpu.common(found, "0000:15:00")["compute_partition"] == "CPX"
    assert amdgpu.common([]) == {}


def test_files_that_cannot_be_read_leave_their_fact_out(tmp_path):
    root = rocm_files(tmp_path, 1, xcds=None, partitions=None, cap=None, driver=None)
    assert amdgpu.gpus(root) == [{"bus": "0000:05:00.0", "arch": "gfx950"}]
    assert platforms.driver("rocm", root) == "Linux 6.8.0-60-generic"
    assert platforms.driver("rocm", tmp_path / "nothing") == ""
    (root / "sys/class/kfd/kfd/topology/nodes/1/properties").write_bytes(b"\xff\xfe")
    assert amdgpu.gpus(root) == []


def test_an_address_is_taken_apart_whole(tmp_path):
    root = rocm_files(tmp_path, 1)
    file = root / "sys/class/kfd/kfd/topology/nodes/1/properties"
    file.write_text(f"simd_count 1\ndomain 1\nlocation_id {3 << 16 | 0xC5 << 8 | 29 << 3 | 6}\n")
    assert [gpu["bus"] for gpu in amdgpu.gpus(root)] == ["0001:c5:1d.6"]


def test_the_device_of_a_hip_build_has_the_fields_of_a_cuda_one_and_its_own(tmp_path, monkeypatch):
    hip_torch(monkeypatch)
    device = platforms.open_device("rocm", rocm_files(tmp_path, 2))
    assert device.string == "cuda"
    assert device.facts == {
        "name": "AMD Instinct MI355X",
        "arch": "gfx950",
        "memory_mib": "294896",
        "units": "256",
        "runtime": "7.0.51831-a3e329ad8",
        "driver": "6.14.14",
        "xcds": "8",
        "compute_partition": "SPX",
        "memory_partition": "NPS1",
        "power_cap_w": "1400",
    }
    with pytest.raises(HarnessError, match=r"built for hip 7\.0\S*\) sees no cuda device"):
        platforms.open_device("cuda", tmp_path)


def test_torchs_address_chooses_among_unlike_gpus(tmp_path, monkeypatch):
    root = rocm_files(tmp_path, 2)
    (root / "sys/bus/pci/devices/0000:15:00.0/hwmon/hwmon5/power1_cap").write_text("1000000000\n")
    hip_torch(monkeypatch, pci_domain_id=0, pci_bus_id=0x15, pci_device_id=0)
    assert platforms.open_device("rocm", root).facts["power_cap_w"] == "1000"


def test_a_user_who_may_not_open_the_device_is_told(tmp_path, monkeypatch):
    hip_torch(monkeypatch)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(HarnessError, match=r"sees no rocm device; install the matching torch"):
        platforms.open_device("rocm", tmp_path)
    rocm_files(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may open everything
    with pytest.raises(HarnessError, match=r"sees no rocm device; this user may not open /dev/kfd"):
        platforms.open_device("rocm", tmp_path)


@pytest.mark.parametrize(
    ("given", "count", "shown"),
    [
        ({}, 4, [{"HIP_VISIBLE_DEVICES": name} for name in "0123"]),
        ({"HIP_VISIBLE_DEVICES": "3,1"}, 2, [{"HIP_VISIBLE_DEVICES": name} for name in ("3", "1", "3")]),
        # HIP counts within what ROCr lets through
        ({"ROCR_VISIBLE_DEVICES": "5,7,GPU-8f2c3a"}, 3, [{"HIP_VISIBLE_DEVICES": name} for name in "012"]),
        ({"ROCR_VISIBLE_DEVICES": "5,7", "HIP_VISIBLE_DEVICES": "1"}, 1, [{"HIP_VISIBLE_DEVICES": "1"}]),
        ({"HIP_VISIBLE_DEVICES": " 3 , 1,,0"}, 2, [{"HIP_VISIBLE_DEVICES": name} for name in ("3", "1", "3")]),
        ({"HIP_VISIBLE_DEVICES": "3,-1,0"}, 1, [{"HIP_VISIBLE_DEVICES": "3"}]),
        ({"CUDA_VISIBLE_DEVICES": "2,6"}, 2, [{"HIP_VISIBLE_DEVICES": name, "CUDA_VISIBLE_DEVICES": name} for name in "26"]),
        ({"HIP_VISIBLE_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "4"}, 1, [{"HIP_VISIBLE_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "4"}]),
    ],
)
def test_each_worker_is_shown_one_device(tmp_path, monkeypatch, given, count, shown):
    root = rocm_files(tmp_path, 4)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert platforms.device_count("rocm", root) == count
    assert [platforms.visible_device("rocm", index, root) for index in range(len(shown))] == shown


@pytest.mark.parametrize("mask", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize("value", ["", "-1", " ", ",0", "-1,0"])
def test_hidden_devices_are_none(tmp_path, monkeypatch, mask, value):
    monkeypatch.setenv(mask, value)
    assert platforms.machine_platform(root=rocm_files(tmp_path)) == "cpu"


def test_the_pool_and_xdist_show_each_worker_its_own(monkeypatch):
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "6,4")
    monkeypatch.setattr(Worker, "_start", lambda self: None)
    told = [Worker(None, "rocm", index=int(name.removeprefix("gw")))._request["env"] for name in ("gw0", "gw1", "gw2")]
    assert told == [{"HIP_VISIBLE_DEVICES": "6"}, {"HIP_VISIBLE_DEVICES": "4"}, {"HIP_VISIBLE_DEVICES": "6"}]


def test_a_cpu_run_on_a_rocm_machine_sees_no_device():
    assert platforms.worker_environment("cpu")["HIP_VISIBLE_DEVICES"] == "-1"  # an empty list hides nothing from HIP


CACHE_WORDS = {word: flavour for flavour, words in FLAVOURS.items() for word in words}


@pytest.mark.parametrize(("platform", "arch", "native"), [("rocm", "gfx942", "e4m3fnuz"), ("rocm", "gfx950", "e4m3fn"), ("cuda", "sm_90", "e4m3fn")])
def test_the_fp8_of_a_kernel_is_the_devices_own(platform, arch, native):
    declared = op("mla_decode").axes
    kernel = providers()["mla_decode", "sglang_triton"]
    for word in ("e4m3fn", "e4m3fnuz", "allfp8", "allfnuz"):
        case = declared.case(batch=1, heads=4, length=5, dtype="bf16", cache=word)
        said = kernel.declines(case, platform, arch)
        foreign = CACHE_WORDS[word] != native
        assert (f"is not the fp8 of {arch}" in (said or "")) == foreign
        assert providers()["mla_decode", "torch_eager"].declines(case, platform, arch) is None
    assert kernel.declines(declared.case(batch=1, heads=4, length=5, dtype="bf16"), platform, arch) is None


def test_every_word_of_an_fp8_cache_has_a_flavour():
    words = {word for declared in ops().values() for axis in declared.axes.axes if axis.name == "cache" for word in axis.words}
    assert words == {"samekv", *CACHE_WORDS}


def test_plain_pytorch_serves_rocm_wherever_it_serves_cuda():
    """But for cuDNN; the other back ends of scaled_dot_product_attention exist on both."""
    for provider in providers().values():
        if provider.library.name == "torch" and provider.name != "torch_sdpa_cudnn" and type(ops()[provider.op].impl).__module__.startswith("harness."):
            assert ("cuda" in provider.platforms) == ("rocm" in provider.platforms), (provider.op, provider.name)
