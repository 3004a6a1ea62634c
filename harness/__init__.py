"""kernel-parity: differential tests and fallback detection for the sampling and attention ops of LLM serving."""

__version__ = "0.1.0"
