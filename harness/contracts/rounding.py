"""Unit roundoffs: what one rounding to a format may change, relative to the value."""

from __future__ import annotations

from harness.contracts._torch import torch

FP32 = 2.0**-24
TF32 = 2.0**-11
# Tensor cores read fp32 operands as tf32 by ignoring the low 13 bits (PTX ISA, wgmma): each loses between nothing and 2^-10, always
# towards zero, on average 2^-11 / (2 ln 2) for mantissas that are log-uniform, so that two together lose 1.44 * 2^-11, all with one sign.
TRUNCATED = 1.5 * TF32
STEP = 16  # products that a matrix instruction for 16-bit operands adds to its accumulator at once


def roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff of a floating dtype: half an ulp at 1."""
    return torch.finfo(dtype).eps / 2


def dot_roundoff(dtype: torch.dtype, fp32_dot: str) -> float:
    """The rounding of one product in a matrix product of `dtype` operands accumulated in fp32.

    Products of fp16 and bf16 are exact in fp32; fp32 operands are rounded to tf32 where the provider says so.
    """
    return TF32 if dtype == torch.float32 and fp32_dot == "tf32" else FP32


def dot(dtype: torch.dtype, fp32_dot: str, width: int) -> dict[str, float]:
    """`dot_roundoff` as `dot`, and as `shared` what all sums of `width` products lose alike, relative to the result: what `attend`
    asks of q k^T. A tensor core cuts its fp32 accumulator short after each step, by up to an ulp and always towards zero."""
    product = dot_roundoff(dtype, fp32_dot)
    if dtype == torch.float32:
        return {"dot": product, "shared": TRUNCATED if product == TF32 else 0.0}
    return {"dot": product, "shared": 2 * FP32 * -(-width // STEP)}


def operand_roundoff(dtype: torch.dtype, fp32_dot: str) -> float:
    """The rounding of the operands of P V: of the weights to the operand dtype; of weights and values where tf32 cuts both short."""
    if dtype == torch.float32:
        return max(dot(dtype, fp32_dot, STEP).values())
    return roundoff(dtype)


def floor(dtype: torch.dtype) -> float:
    """Half the least number of a format, which a softmax weight (at most 1) may lose; 0 for those with fp32's exponents, where it is below any budget."""
    info = torch.finfo(dtype)
    return 0.0 if info.tiny < 2.0**-100 else info.eps * info.tiny / 2
