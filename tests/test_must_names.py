"""The kernels that providers must and must not launch: what SGLang's really launch, under the interpreter, and what the patterns say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import toml
from harness.contracts import op
from harness.machine.platforms import worker_environment
from harness.providers import providers
from harness.providers.launched import NEVER, PLATFORMS, must, never
from harness.selection import DEFAULT_CASES
from harness.speed.identity import Identity, identify
from harness.speed.names import plain_name
from harness.store.families import load_families

ROOT = Path(__file__).resolve().parent.parent
TABLE = toml.read(ROOT / "harness" / "providers" / "kernels.toml")
FAMILIES = load_families(DEFAULT_CASES / "kernels.toml")
PAIRS = [(name, place) for name, table in TABLE.items() for place in table if place not in (NEVER, PLATFORMS)]
ON_SGLANG = [(name, place) for name, place in PAIRS if name.startswith("sglang") and name != "sglang_jit"]  # which is CUDA C++
SHOWN = [
    ("mla_decode", "flashinfer_fa3", ["void flashinfer::mla::hopper::BatchMLAPageAttentionHopperKernel<T>(P)"]),
    ("mla_decode", "flashinfer_fa2", ["void flashinfer::mla::BatchMLAPagedAttentionKernel<T>(P)"]),
    ("extend_attention", "flashinfer_fa2", ["void flashinfer::BatchPrefillWithPagedKVCacheKernel<T, float>(P)"]),
    ("extend_attention", "flashinfer_fa3", ["void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<a>, true>(x)"]),
    ("mla_prefill", "torch_sdpa_cudnn", ["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x192_4x1x1_cga1x1x1_kernel0_0"]),
    ("extend_attention", "torch_sdpa_flash", ["void pytorch_flash::flash_fwd_kernel<T>(P)"]),
    (
        "decode_attention",
        "torch_sdpa_flash",
        ["void pytorch_flash::flash_fwd_splitkv_kernel<T>(P)"],
    ),
    ("extend_attention", "torch_sdpa_efficient", ["fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<T>::Params)"]),
    ("decode_attention", "sgl_kernel_fa3", ["void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<a>>>(P)"]),
    ("mla_decode", "sgl_kernel_flashmla", ["void flash_fwd_splitkv_mla_kernel<T>(P)"]),
    ("top_k_renorm", "flashinfer", ["void flashinfer::sampling::RadixTopKRenormProbKernel_MultiCTA<1024u>(float*)"]),
]
LAUNCHES = """
import json, sys
from triton.runtime import interpreter
from harness.contracts import op
from harness.machine.execute import Bench
from harness.machine.platforms import open_device
from harness.providers import providers
from harness.selection import DEFAULT_CASES, preset_cases

plain, seen = interpreter.GridExecutor._init_args_hst, set()

def watched(self, args, kwargs):
    seen.add(self.fn.__name__)
    return plain(self, args, kwargs)

interpreter.GridExecutor._init_args_hst = watched
bench = Bench(open_device("cpu"))
for name, place in json.load(sys.stdin):
    provider = providers()[place, name]
    cases = [case for case in preset_cases(DEFAULT_CASES, "smoke", place) if "relation" not in case.point and not provider.declines(case, "interpret")]
    work = op(place).impl.work
    for case in sorted(cases, key=lambda case: work(case).flops + work(case).bytes)[3:7]:  # the very least have no work
        seen.clear()
        if bench.run(case, provider, "interpret", 0)[0].status == "pass" and seen:
            print(json.dumps([name, place, sorted(seen)]), flush=True)
            break
"""


@pytest.fixture(scope="module")
def launched():
    pytest.importorskip("triton")
    pytest.importorskip("sglang")
    environment = {**os.environ, **worker_environment("cpu")}
    done = subprocess.run([sys.executable, "-c", LAUNCHES], input=json.dumps(ON_SGLANG), cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return {(name, place): kernels for name, place, kernels in map(json.loads, done.stdout.splitlines())}


def ran(place: str, name: str, kernels: list[str]) -> Identity:
    return identify(kernels, (), lambda kernel: "", must=must(name, place, "sm_90"), never=never(name, place))


def test_sglang_launches_what_it_must_and_nothing_it_must_not(launched):
    assert set(launched) == set(ON_SGLANG)
    for (name, place), kernels in launched.items():
        assert ran(place, name, kernels) == Identity(now=tuple(kernels), unknown=tuple(kernels)), name


@pytest.mark.parametrize(("place", "name", "kernels"), SHOWN, ids=[f"{place}-{name}" for place, name, _ in SHOWN])
def test_names_of_other_libraries(place, name, kernels):
    found = ran(place, name, kernels)
    assert (found.lacking, found.unwanted) == ((), ())


def test_names_of_one_platform_are_not_asked_of_another():
    sdpa, triton = providers()["mla_prefill", "torch_sdpa_flash"], providers()["mla_prefill", "sglang_triton"]
    case = op("mla_prefill").axes.case(batch=1, heads=12, new=9, dtype="bf16")
    assert [bool(one.expected_kernels(case, arch)) for one in (sdpa, triton) for arch in ("sm_90", "gfx950")] == [True, False, True, True]


def test_no_provider_passes_for_another_of_its_op():
    """Of one op, what one provider was seen to launch is not what a provider of another library must."""
    for place, name, kernels in SHOWN:
        for other in TABLE:
            if place in TABLE[other] and other.split("_")[0] != name.split("_")[0]:
                assert ran(place, other, kernels).lacking, f"{name} passes for {other} in {place}"


@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_the_table_names_providers_that_there_are_and_kernels_of_known_families(name, place):
    assert (place, name) in providers()
    for pattern in TABLE[name][place]:
        re.compile(pattern)
        literal = pattern.strip("^$")
        if pattern.startswith("^") and pattern.endswith("$") and literal.isidentifier():
            assert FAMILIES.of(plain_name(literal)) is not None, literal
    assert not any(re.search(unwanted, pattern.strip("^$")) for unwanted in TABLE[name].get(NEVER, ()) for pattern in TABLE[name][place])
