"""SGLang's own Triton kernels, on a device or under Triton's interpreter."""
