"""Providers that raise: clearly, unclearly, because a symbol is not there, or for lack of memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from harness.contracts._torch import torch
from harness.errors import Unsupported
from harness.faults.shelf import fault, right
from harness.providers import resolve

DEVICES = frozenset({"cuda", "rocm"})


@fault("merge_state", "refused", "ValueError")
def refuses(x: Any) -> Any:
    """Words that mean something in other errors mean nothing in a clear one."""
    raise ValueError("head_dim 16 is not supported (it would need ninja, run out of memory, or end in a CUDA error)")


@fault("merge_state", "refused", "ValueError", platforms=DEVICES)
def refuses_after_a_failed_launch(x: Any) -> Any:
    """As FlashInfer 0.6.13's merge_state at 96 heads of 128: the runtime's last error is left to whoever launches next, here the next cell."""
    _fail_to_launch()
    raise ValueError("the launch failed")


@fault("merge_state", "crash", "device error", platforms=DEVICES)
def says_nothing_of_a_failed_launch(x: Any) -> Any:
    """As flashinfer-ai/flashinfer#3125: the output is whatever was there, here the right one."""
    _fail_to_launch()
    return right(x)


def _fail_to_launch() -> None:
    """Sets the runtime's last error as a launch that failed does."""
    torch.cuda.cudart().cudaHostUnregister(1)  # type: ignore[no-untyped-call]  # torch leaves it untyped


@fault("merge_state", "unsupported", "declined")
def declines(x: Any) -> Any:
    raise Unsupported("this library version has no such path")


@fault("merge_state", "crash", "KeyError")
def looks_up_nothing(x: Any) -> Any:
    plans: dict[str, Any] = {}
    return plans["plan"]


@fault("merge_state", "crash", "RecursionError")
def recurses(x: Any) -> Any:
    return recurses(x)


@fault("merge_state", "crash", "AttributeError")
def trips_over_none(x: Any) -> Any:
    """A mistake inside the library, not a symbol that is not there."""
    return x.__dict__.get("plan").run()


@fault("merge_state", "crash", "TypeError")
def calls_wrongly(x: Any) -> Any:
    return declines(x, "one too many")


class _Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@fault("merge_state", "crash", "_Unprintable")
def raises_unprintably(x: Any) -> Any:
    raise _Unprintable


@fault("merge_state", "refused", "RuntimeError")
def raises_undecodably(x: Any) -> Any:
    """A lone surrogate and a megabyte of text."""
    raise RuntimeError("head \udc80 " + "x" * (1 << 20))


@fault("merge_state", "missing", "NameError")
def names_nothing(x: Any) -> Any:
    return top_k_renorm_prob(x)  # type: ignore[name-defined]  # noqa: F821


@fault("merge_state", "missing", "None", bug="sglang#32569")
def calls_none(x: Any) -> Any:
    merge: Any = None
    return merge(x.v_a)


@fault("merge_state", "missing", "AttributeError")
def asks_a_module_in_vain(x: Any) -> Any:
    library: Any = torch.nn
    return library.merge_state_of_no_release(x.v_a)


@fault("merge_state", "missing", "unregistered", bug="sglang#32569")
def calls_an_unregistered_operator(x: Any) -> Any:
    return torch.ops.kernel_parity_faults.never_registered(x.v_a)


@fault("merge_state", "missing", "unregistered")
def calls_an_operator_without_kernel(x: Any) -> Any:
    """Declared, but for no backend."""
    library: Any = torch.library.Library("kernel_parity_faults", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch leaves it untyped
    library.define("declared_alone(Tensor x) -> Tensor")
    return torch.ops.kernel_parity_faults.declared_alone(x.v_a)


@fault("merge_state", "missing", "ModuleNotFoundError")
def imports_what_is_absent(x: Any) -> Any:
    import kernel_parity_of_no_release  # type: ignore[import-not-found]

    return kernel_parity_of_no_release.merge(x)


@fault("merge_state", "missing", "unbound")
def resolves_nothing(x: Any) -> Any:
    return resolve("torch:merge_state_of_no_release", "kernel_parity_of_no_release:merge")(x)


@fault("merge_state", "out-of-memory", "allocation")
def exhausts_the_device(x: Any) -> Any:
    return torch.empty(1 << 50, dtype=torch.uint8, device=x.device)


@fault("merge_state", "out-of-memory", "allocation")
def exhausts_the_host(x: Any) -> Any:
    return bytearray(1 << 60)


@fault("merge_state", "build-failed", "RuntimeError", bug="aiter#1137")
def fails_to_build(x: Any) -> Any:
    """As FlashInfer words it."""
    try:
        subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(1)"], check=True)
    except subprocess.CalledProcessError as error:
        raise RuntimeError("Ninja build failed. Ninja output:\nFAILED: merge.cuda.o") from error


@fault("merge_state", "build-failed", "CalledProcessError")
def fails_to_compile(x: Any) -> Any:
    subprocess.run([sys.executable, "-S", "-c", "raise SystemExit(1)"], check=True)


@fault("merge_state", "crash", "device error", bug="vllm#47671", platforms={"cuda", "cpu"})
def breaks_the_device(x: Any) -> Any:
    """On CUDA a real one, after which its context is unusable; on a CPU its words. ROCm's kernels may be built without the assertion."""
    if x.device == "cpu":
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported")
    table = torch.zeros(4, device=x.device)
    return table[torch.full((4,), 1 << 40, device=x.device)], x.s_a
