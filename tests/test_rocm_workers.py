"""A described ROCm machine: its workers, the doctor, and the locks and compilers of its builds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from described import (
    hip_torch,
    rocm_files,
    unmasked,  # noqa: F401
)

from harness import cli
from harness.commands import doctor
from harness.machine import builds, platforms
from harness.machine.classify import device_death

ROOT = Path(__file__).resolve().parent.parent

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
