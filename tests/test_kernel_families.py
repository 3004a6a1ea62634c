"""Which family a kernel belongs to, by the name that a profiler shows."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.selection import DEFAULT_CASES
from harness.store.families import load_families

FAMILIES = load_families(DEFAULT_CASES / "kernels.toml")
SHOWN = {
    "[CUDA memcpy Host-to-Device]": "torch-elementwise",
    "[CUDA memset]": "torch-elementwise",
    "_fwd_kernel": "triton-extend",
    "_fwd_grouped_kernel_stage1": "triton-decode",
    "_fwd_kernel_stage2": "triton-decode-reduce",
    "_fwd_kernel_stage2_asm": "aiter-mla-reduce",
    "_ZN5aiter27mla_a16w16_qh16_m16x4_n16x1E": "aiter-mla-decode",
    "mla_pfl_qh192_vh128_m32x8_n128x1_causal1": "aiter-mla-prefill",
    "_mla_prefill_fwd_kernel": "aiter-triton",
    "_mla_prefill_reduce_kernel": "aiter-mla-reduce",
    "paged_attention_ll4mi_QKV_mfma16_kernel": "aiter-paged",
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(MaskMode)1, 64u>, float>(flashinfer::P<a>)": "flashinfer-prefill",
    "void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<a>, true>(x)": "flashinfer-prefill",
    "void flashinfer::mla::hopper::BatchMLAPageAttentionHopperKernel<T>(P)": "flashinfer-mla",
    "void flashinfer::MergeStatesKernel<8u, __half>(float*)": "flashinfer-merge",
    "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, true>(float*)": "flashinfer-sampling",
    "void flashinfer::sampling::RadixTopKKernel_Unified<1024u>(float*)": "flashinfer-sampling",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>>(P)": "flash-attention",
    "void flash_fwd_splitkv_mla_kernel<T>(P)": "flash-mla",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x192_4x1x1_cga1x1x1_kernel0_0": "cudnn-attention",
    "void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel<P>(T)": "torch-sort",
    "void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>(long*)": "torch-multinomial",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4> >(x)": "torch-multinomial",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::FillFunctor<float> >(I&)::{lambda()#1}>()": "torch-elementwise",
    "Memcpy DtoD (Device -> Device)": "torch-elementwise",
    "nvjet_sm90_tst_128x64_64x6_2x1_v": "matmul",
    "Cijk_Ailk_Bljk_BBS_BH_Bias_MT256x256x64": "matmul",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)": "communication",
    "chunk_kda_fwd_kernel_intra_sub_chunk": "triton-linear-attention",
}


@pytest.mark.parametrize(("name", "family"), SHOWN.items(), ids=SHOWN.values())
def test_families_of_names(name, family):
    found = FAMILIES.of(name)
    assert found is not None
    assert found.name == family


@pytest.mark.parametrize("name", ["my_new_kernel", "_fwd_kernel_of_somebody", "", "attention"])
def test_an_unknown_name_is_unclassified(name):
    assert FAMILIES.of(name) is None


def test_rocm_has_a_fast_family_where_the_generic_one_took_over():
    assert {family.name for family in FAMILIES.fast_for("mla", "rocm")} == {"aiter-mla-decode", "aiter-mla-prefill"}
    assert not any("cuda" in family.platforms for family in FAMILIES.fast_for("attention decode", "rocm"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[a]\ndoes = "mla"\npath = "fast"\npatterns = ["("]\nsource = "x"\n', "no regular expression"),
        ('[a]\ndoes = "cooking"\npath = "fast"\npatterns = ["x"]\nsource = "x"\n', "does is one of"),
        ('[a]\ndoes = "mla"\npath = "quick"\npatterns = ["x"]\nsource = "x"\n', "path is one of"),
        ('[a]\ndoes = "mla"\npath = "fast"\nsource = "x"\n', "needs patterns"),
        ("[a\n", "cannot read the kernel families"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(tmp_path, text, words):
    path = tmp_path / "kernels.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        load_families(path)
    assert "\n" not in str(caught.value).strip().partition("(at line")[0]
