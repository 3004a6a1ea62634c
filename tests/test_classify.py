"""What an exception means: by its type first, and by its words only where libraries raise one type for everything."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
import torch

from harness.contracts import make_inputs, op
from harness.errors import Missing, Unsupported
from harness.machine.classify import classify, poisons, words_of
from harness.machine.execute import Bench
from harness.machine.platforms import Device
from harness.providers import providers
from harness.providers.resolve import resolve


class AcceleratorError(RuntimeError):
    """As torch names it."""


class CompilationError(Exception):
    """As Triton names it."""


class CompileTimeAssertionFailure(CompilationError):
    """As Triton names it."""


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Missing("unbound: a:b (bound to None)"), "missing", "unbound"),
        (Unsupported("no such path"), "unsupported", "declined"),
        (ValueError("ninja, nvcc, out of memory, CUDA error: no attribute"), "refused", "ValueError"),
        (TypeError("dtype must be half; CUDA error otherwise"), "refused", "TypeError"),
        (NotImplementedError("\"topk\" not implemented for 'Half'"), "refused", "NotImplementedError"),
        (AssertionError(), "refused", "AssertionError"),
        (RuntimeError("the attribute page_size has no default"), "refused", "RuntimeError"),
        (RuntimeError("nvcc is not needed here"), "refused", "RuntimeError"),
        (KeyError("CUDA error"), "crash", "KeyError"),
        (RecursionError("maximum recursion depth exceeded"), "crash", "RecursionError"),
        (UnboundLocalError("x"), "crash", "UnboundLocalError"),
        (ZeroDivisionError(), "crash", "ZeroDivisionError"),
        (SystemExit(0), "crash", "SystemExit"),
        (TypeError("f() got an unexpected keyword argument 'tie_policy'"), "crash", "TypeError"),
        (TypeError("f() missing 1 required positional argument: 'lse'"), "crash", "TypeError"),
        (TypeError("f() takes 2 positional arguments but 3 were given"), "crash", "TypeError"),
        (TypeError("f() takes from 1 to 2 positional arguments but 3 were given"), "crash", "TypeError"),
        (TypeError("unsupported operand type(s) for +: 'NoneType' and 'int'"), "crash", "TypeError"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"), "out-of-memory", "allocation"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out-of-memory", "allocation"),
        (AcceleratorError("CUDA error: out of memory"), "out-of-memory", "allocation"),
        (torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB"), "out-of-memory", "allocation"),
        (MemoryError(), "out-of-memory", "allocation"),
        (OSError(12, "Cannot allocate memory"), "out-of-memory", "allocation"),
        (AcceleratorError("CUDA error: unknown error"), "crash", "device error"),
        (RuntimeError("Triton Error [CUDA]: misaligned address"), "crash", "device error"),
        (RuntimeError("BatchDecode failed with error an illegal memory access was encountered"), "crash", "device error"),
        (RuntimeError("HIP error: unspecified launch failure"), "crash", "device error"),
        (RuntimeError("hipErrorIllegalAddress"), "crash", "device error"),
        (RuntimeError("HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond"), "crash", "device error"),
        (RuntimeError("HW Exception by GPU node-1 (Agent handle: 0x1) reason :GPU Hang"), "crash", "device error"),
        (RuntimeError("fail to call hipModuleLaunchKernel() ---> [HIP error](an illegal memory access was encountered)"), "crash", "device error"),
        (RuntimeError("Triton Error [HIP]:  Code: 700, Messsage: an illegal memory access was encountered"), "crash", "device error"),
        (RuntimeError("Triton Error [HIP]:  Code: 2, Messsage: out of memory"), "out-of-memory", "allocation"),
        (AcceleratorError("HIP error: out of memory"), "out-of-memory", "allocation"),
        (RuntimeError("hipErrorOutOfMemory"), "out-of-memory", "allocation"),
        (RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"), "out-of-memory", "allocation"),
        (RuntimeError("HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources"), "out-of-memory", "allocation"),
        (ValueError("HSA_STATUS_ERROR is what this would end in"), "refused", "ValueError"),
        (RuntimeError("[aiter] build [module_sample] under /root/.aiter/jit/build/module_sample/build failed !!!!!!"), "build-failed", "RuntimeError"),
        (SystemExit("[aiter] build [module_sample] under /root/.aiter/jit/build/module_sample/build failed !!!!!!"), "build-failed", "SystemExit"),
        (RuntimeError("Error building extension 'merge': [1/2] c++ ..."), "build-failed", "RuntimeError"),
        (RuntimeError("Ninja build failed. Ninja output: ..."), "build-failed", "RuntimeError"),
        (RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)"), "build-failed", "RuntimeError"),
        (RuntimeError("Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"), "build-failed", "RuntimeError"),
        (OSError("CUDA_HOME environment variable is not set."), "build-failed", "OSError"),
        (FileNotFoundError(2, "No such file or directory", "ninja"), "build-failed", "FileNotFoundError"),
        (FileNotFoundError(2, "No such file or directory", "/opt/rocm/bin/hipcc"), "build-failed", "FileNotFoundError"),
        (FileNotFoundError(2, "No such file or directory", "/data/ninja/table.bin"), "crash", "FileNotFoundError"),
        (subprocess.CalledProcessError(1, ["hipcc"]), "build-failed", "CalledProcessError"),
        (CompileTimeAssertionFailure("BLOCK"), "build-failed", "CompileTimeAssertionFailure"),
        (NameError("name 'top_k_renorm_prob' is not defined"), "missing", "NameError"),
        (ModuleNotFoundError("No module named 'aiter'"), "missing", "ModuleNotFoundError"),
        (ImportError("cannot import name 'x' from 'y'"), "missing", "ImportError"),
        (AttributeError("module 'sgl_kernel' has no attribute 'merge_state_v3'"), "missing", "AttributeError"),
        (TypeError("'NoneType' object is not callable"), "missing", "None"),
        (NotImplementedError("Could not run 'sgl_kernel::merge' with arguments from the 'HIP' backend."), "missing", "unregistered"),
        (RuntimeError("Tried to instantiate class 'a.B', but it does not exist! Ensure that it is registered via torch::class_"), "missing", "unregistered"),
    ],
)
def test_classes(error, status, reason):
    assert classify(error) == (status, reason)


def caught(function):
    with pytest.raises(Exception) as info:  # noqa: PT011  # the types differ, that is the point
        function()
    return classify(info.value)


def test_whose_attribute_is_missing_decides():
    assert caught(lambda: math.no_such_function) == ("missing", "AttributeError")
    assert caught(lambda: torch.ops.kernel_parity_tests.no_such_operator) == ("missing", "unregistered")
    assert caught(lambda: Missing.no_such_method) == ("missing", "AttributeError")
    assert caught(lambda: None.plan) == ("crash", "AttributeError")
    assert caught(lambda: torch.zeros(1).no_such_method) == ("crash", "AttributeError")
    assert caught(lambda: [].plan) == ("crash", "AttributeError")
    assert caught(lambda: make_inputs(op("merge_state").axes.case(tokens=1, heads=1, dim=16, dtype="fp32"), "cpu", 0).v_aa) == ("crash", "AttributeError")


def test_what_poisons_the_device():
    assert poisons(RuntimeError("CUDA error: device-side assert triggered"))
    assert poisons(AcceleratorError("CUDA error: out of memory"))
    assert not poisons(ValueError("CUDA error"))
    assert not poisons(torch.OutOfMemoryError("CUDA out of memory."))


def test_any_text_can_be_written_down():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert words_of(Mute()) == "(its text cannot be had: RuntimeError)"
    words_of(ValueError("\udc80")).encode()
    assert len(words_of(ValueError("x" * 1_000_000))) < 10_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("here = 1", "none_here:there (no such name)"),
        ("there = None", "none_here:there (bound to None)"),
        ("import no_such_package", "none_here:there (no module no_such_package)"),
        ("raise ImportError('no librocm')", "none_here:there (import fails: no librocm)"),
        ("{}['key']", "none_here:there (import fails: KeyError: 'key')"),
        ("None.attribute", "none_here:there (import fails: AttributeError: 'NoneType' object has no attribute 'attribute')"),
    ],
)
def test_what_a_place_lacks_is_said(tmp_path, monkeypatch, text, says):
    (tmp_path / "none_here.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "none_here", raising=False)
    with pytest.raises(Missing, match=re.escape(says)):
        resolve("none_here:there")


def test_an_error_of_the_device_on_import_is_no_missing_name(tmp_path, monkeypatch):
    (tmp_path / "ruined_here.py").write_text("raise RuntimeError('CUDA error: an illegal memory access was encountered')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        resolve("ruined_here:there")


def test_an_output_that_the_reference_leaves_out_is_not_the_providers_mistake(monkeypatch):
    declared = op("merge_state")
    rights = type(declared.impl).reference
    monkeypatch.setattr(type(declared.impl), "reference", lambda self, x, semantics: {f"{name}_": value for name, value in rights(self, x, semantics).items()})
    case = declared.axes.case(tokens=1, heads=1, dim=16, dtype="fp32")
    with pytest.raises(KeyError, match="'o'"):
        Bench(Device("cpu", "cpu", {"arch": "sm_90"})).run(case, providers()["merge_state", "torch_eager"], "cpu")
