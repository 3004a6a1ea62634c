"""Which platform a machine is, and how a worker is shown its device: nothing here needs one."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError, UsageError
from harness.machine import platforms
from harness.machine.classify import classify, poisons


def test_what_was_asked_for_wins_and_an_unknown_word_is_refused():
    assert platforms.machine_platform("rocm") == "rocm"
    with pytest.raises(UsageError, match="cuda, rocm, cpu"):
        platforms.machine_platform("tpu")


def test_hidden_devices_are_no_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    assert platforms.machine_platform() == "cpu"


@pytest.mark.parametrize(("machine", "variable"), [("cuda", "CUDA_VISIBLE_DEVICES"), ("rocm", "HIP_VISIBLE_DEVICES")])
def test_each_worker_sees_its_own_device(monkeypatch, machine, variable):
    monkeypatch.setenv(variable, "3,5")
    assert platforms.device_count(machine) == 2
    assert [platforms.visible_device(machine, i)[variable] for i in range(3)] == ["3", "5", "3"]


def test_a_cpu_worker_interprets_and_a_device_worker_does_not():
    assert platforms.worker_environment("cpu")["TRITON_INTERPRET"] == "1"
    assert platforms.worker_environment("cuda")["TRITON_INTERPRET"] == "0"
    assert platforms.visible_device("cpu", 3) == {}


@pytest.mark.parametrize("machine", ["cuda", "rocm"])
def test_a_device_that_torch_does_not_see_is_the_harness_failing(machine):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a device")
    with pytest.raises(HarnessError, match=f"sees no {machine} device"):
        platforms.open_device(machine)


def test_exceptions_have_statuses():
    assert classify(NameError("name 'top_k_renorm_prob' is not defined"))[0] == "missing"
    assert classify(TypeError("'NoneType' object is not callable"))[0] == "missing"
    assert classify(AttributeError("'_OpNamespace' 'sgl_kernel' object has no attribute 'x'"))[0] == "missing"
    assert classify(ValueError("heads must be 16"))[0] == "refused"
    assert classify(KeyError(12))[0] == "crash"
    assert classify(MemoryError())[0] == "out-of-memory"
    assert poisons(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not poisons(RuntimeError("CUDA out of memory"))
