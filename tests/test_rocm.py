"""The platform rocm under a described machine: no AMD device, driver or tool is needed, and none is asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from described import hip_torch, rocm_files
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.commands import doctor
from harness.contracts import op, ops
from harness.contracts.inputs import FLAVOURS
from harness.errors import HarnessError
from harness.machine import amdgpu, builds, platforms
from harness.machine.classify import device_death
from harness.machine.pool import Worker
from harness.providers import providers

ROOT = Path(__file__).resolve().parent.parent
MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def unmasked(monkeypatch):
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)


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


OPENS = """
import sys, torch
torch.version.hip, torch.version.cuda = "7.0.51831", None
def opened(*arguments):
    raise SystemExit("a device was opened before the fork")
torch._C._cuda_getCurrentRawStream = None
torch._C._cuda_getDeviceCount = torch._C._cuda_init = torch.cuda._lazy_init = opened
from harness.contracts import ops
from harness.machine import execute, worker, zygote
from harness.providers import providers
ops(), providers()
import torch._dynamo
try:
    import triton
except ModuleNotFoundError:
    pass
if sys.argv[1:]:
    torch.cuda.is_available()
"""


@pytest.mark.parametrize(("more", "code"), [((), 0), (("ask",), 1)])
def test_what_workers_are_forked_from_opens_no_hip_device(more, code):
    """HIP does not survive a fork. The second run shows that the check can fail."""
    environment = {**os.environ, **platforms.worker_environment("rocm"), "HIP_VISIBLE_DEVICES": "0"}
    done = subprocess.run([sys.executable, "-c", OPENS, *more], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("log", "found"),
    [
        ("step 3\nMemory access fault by GPU node-1 (Agent handle: 0x55ac) on address 0x7f95. Reason: Unknown.\n", ("crash", "device error")),
        ("HW Exception by GPU node-4 (Agent handle: 0x1) reason :GPU Hang\n", ("crash", "device error")),
        (
            ":0:rocdevice.cpp :3587: Callback: Queue 0x7f91 aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: x. code: 0x29",
            ("crash", "device error"),
        ),
        ("Callback: Queue 0x7f91 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: x", ("out-of-memory", "allocation")),
        ("[AITER] asm_mla.cu:92 fail to call hipModuleLaunchKernel(...) ---> [HIP error](invalid argument)", ("crash", "device error")),
        ("[AITER] asm_mla.cu:182 get_heuristic_kernel_mla: cannot get heuristic kernel! gqa:12", None),
        ("HIP warning: an illegal memory access was encountered", None),
        ("", None),
    ],
)
def test_the_last_words_of_the_runtime(log, found):
    assert device_death(log) == found


@pytest.fixture
def typed(monkeypatch, capsys):
    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["kernel-parity", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().out

    return run


class Described:
    """A session whose worker opens the described device."""

    root = Path("/")

    def __init__(self, machine, **options):
        self.machine = machine

    def hello(self):
        return platforms.open_device(self.machine, self.root).facts, {}

    def __enter__(self):
        return self

    def __exit__(self, *ended):
        return None


@pytest.fixture
def described(tmp_path, monkeypatch):
    """The doctor's view of files under tmp_path."""
    monkeypatch.setattr(doctor, "Session", type("Here", (Described,), {"root": tmp_path}))
    monkeypatch.setattr(doctor, "LIBRARIES", {})
    monkeypatch.setattr(doctor, "machine_platform", lambda asked: platforms.machine_platform(asked, tmp_path))
    monkeypatch.setattr(doctor, "device_count", lambda machine: platforms.device_count(machine, tmp_path))
    monkeypatch.setattr(doctor, "facts_without_torch", lambda machine: platforms.facts_without_torch(machine, tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_the_doctor_shows_a_rocm_device(described, monkeypatch, typed):
    rocm_files(described)
    hip_torch(monkeypatch)
    code, out = typed("doctor")
    assert code == 0
    assert out.startswith("platform  rocm (2 device(s))\ndriver    6.14.14\ndevice    name AMD Instinct MI355X, arch gfx950, memory_mib 294896, units 256")
    assert "xcds 8, compute_partition SPX, memory_partition NPS1, power_cap_w 1400" in out
    assert "not read" not in out


def test_the_doctor_says_what_could_not_be_read(described, monkeypatch, typed):
    rocm_files(described, partitions=None, xcds=None, driver=None)
    (described / "sys/module/amdgpu").rmdir()
    hip_torch(monkeypatch)
    code, out = typed("doctor")
    assert code == 0
    assert "driver    could not be read\n" in out
    assert "not read  xcds: num_xcc of /sys/class/kfd/kfd/topology/nodes/*/properties\n" in out
    assert "not read  compute_partition: /sys/bus/pci/devices/BUS/current_compute_partition\n" in out
    assert "not read  driver: /sys/module/amdgpu/version\n" in out
    assert "power_cap_w 1400" in out


def test_the_doctor_asks_the_vendors_tool_where_no_file_says_the_driver(described, monkeypatch, typed):
    rocm_files(described, driver=None)
    (described / "sys/module/amdgpu").rmdir()
    tool = described / "rocm-smi"
    tool.write_text("#!/bin/sh\necho '============ ROCm System Management Interface ============'\necho 'Driver version: 6.10.5'\n")
    tool.chmod(0o755)
    hip_torch(monkeypatch)
    assert "driver    6.10.5\n" in typed("doctor")[1]


def test_the_doctor_of_a_rocm_machine_with_a_cpu_torch_still_reads_the_files(described, typed):
    rocm_files(described)
    code, out = typed("doctor")
    assert code == 3
    assert "arch gfx950, xcds 8, compute_partition SPX" in out
    assert "problem   torch " in out


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


@pytest.fixture
def aiter(tmp_path, monkeypatch):
    """Where AITER builds, with the lock that each of its ways to build leaves behind."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "torch"))
    monkeypatch.setenv("AITER_JIT_DIR", str(tmp_path / "jit"))
    monkeypatch.setenv("AITER_ROOT_DIR", str(tmp_path / "root"))
    left = [
        tmp_path / "jit/build/lock_module_sample",
        tmp_path / "jit/build/lock_module_sample.steal",
        tmp_path / "jit/build/module_sample/build/lock",
        tmp_path / "root/build/pa_ragged_5f3e/lock",
        tmp_path / "root/build/gfx950/kernel_77ab.lock",
        tmp_path / "home/.aiter/jit/build/lock_module_mha",
    ]
    for lock in left:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
    for name in ("lock.py", "blocks", "clock", "flock_.so"):
        (tmp_path / "jit/build/module_sample" / name).touch()
    return left


def test_the_locks_of_a_killed_aiter_build_are_cleared(aiter):
    others = {path for path in aiter[0].parents[2].rglob("*") if path.is_file()} - set(aiter)
    with open(aiter[3]):
        assert set(builds.clear_stale_locks(since=time.time() - 60)) == {*aiter} - {aiter[3]}
    assert aiter[3].exists()
    assert all(path.exists() for path in others)


def test_a_lock_of_another_machine_is_left_alone(aiter):
    aiter[0].write_text("4711\nanother-node\n")
    assert aiter[0] not in builds.clear_stale_locks(since=time.time() - 60)


@pytest.mark.parametrize("name", ["hipcc", "clang-20", "amdclang++", "ld.lld", "ninja", "make"])
def test_the_compilers_of_rocm_are_seen_at_work(tmp_path, name):
    """A build as AITER's: the compiler is a grandchild."""
    (tmp_path / name).symlink_to("/bin/sleep")
    child = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run([{str(tmp_path / name)!r}, '30'])"])
    end = time.monotonic() + 20
    try:
        while not builds.compiling(os.getpid()) and time.monotonic() < end:
            time.sleep(0.01)
        assert builds.compiling(os.getpid())
    finally:
        for pid in builds.children(child.pid):
            os.kill(pid, 9)
        child.kill()
        child.wait()
