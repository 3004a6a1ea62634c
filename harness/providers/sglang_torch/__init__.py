"""SGLang's PyTorch samplers, target-probability builders and accept ops."""
