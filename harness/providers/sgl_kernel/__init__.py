"""sgl_kernel, SGLang's compiled kernels, with FlashMLA and FlashAttention-3 where the wheel has them; few of them on ROCm."""
