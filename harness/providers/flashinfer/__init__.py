"""FlashInfer: CUDA only; kernels are built by its own JIT at first call unless shipped."""
