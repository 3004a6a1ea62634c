"""Names of kernels: what a profiler shows, and what people call it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.speed.names import family, plain_name

SHOWN = [
    (
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(MaskMode)1, 64u>, float>(flashinfer::PagedParams<a, b>)",
        "flashinfer::BatchPrefillWithPagedKVCacheKernel",
        "BatchPrefillWithPagedKVCacheKernel",
    ),
    (
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(flash::Params)",
        "cutlass::device_kernel flash::FlashAttnFwdSm90",
        "FlashAttnFwdSm90",
    ),
    (
        "_ZN7cutlass13device_kernelIN5flash11enable_sm90INS1_16FlashAttnFwdSm90INS1_25CollectiveMainloopFwdSm90ILi2EEEEEEEvT_",
        "cutlass::device_kernel FlashAttnFwdSm90",
        "FlashAttnFwdSm90",
    ),
    ("_ZN5aiter27mla_a16w16_qh16_m16x4_n16x1E", "aiter::mla_a16w16_qh16_m16x4_n16x1", "mla_a16w16_qh16_m16x4_n16x1"),
    ("_Z9scale_rowPfi", "scale_row", "scale_row"),
    ("_fwd_kernel_0d1d2d3de", "_fwd_kernel", "_fwd_kernel"),
    ("_fwd_grouped_kernel_stage1", "_fwd_grouped_kernel_stage1", "_fwd_grouped_kernel_stage1"),
    (
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, 11>(float*, int)",
        "at::native::anonymous::softmax_warp_forward",
        "softmax_warp_forward",
    ),
    (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::FillFunctor<float> >(at::Iter&)::{lambda(int)#1}>(int)",
        "at::native::elementwise_kernel at::native::FillFunctor",
        "FillFunctor",
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4> >(x)",
        "at::native::reduce_kernel at::native::ArgMaxOps",
        "ArgMaxOps",
    ),
    ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD", "Memcpy DtoD"),
    ("nvjet_sm90_tst_128x64_64x6_2x1_v", "nvjet_sm90_tst_128x64_64x6_2x1_v", "nvjet_sm90_tst_v"),
]


@pytest.mark.parametrize(("shown", "plain", "kind"), SHOWN, ids=[kind for *_, kind in SHOWN])
def test_names(shown, plain, kind):
    assert (plain_name(shown), family(shown)) == (plain, kind)


@given(st.text())
def test_every_text_has_a_name_and_a_name_is_its_own(text):
    assert family(text) or not text.strip()
    if text.isidentifier() and text.isascii() and not text.startswith("_Z"):
        assert family(family(text)) == family(text)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True), min_size=1, max_size=4))
def test_a_mangled_path_is_read_back(path):
    mangled = "_ZN" + "".join(f"{len(part)}{part}" for part in path) + "EPfi"
    assert plain_name(mangled) == plain_name("::".join(path))
