"""Going round `.is_cuda`, the only reason why some of SGLang's wrappers refuse a tensor that Triton's interpreter takes."""

from __future__ import annotations

from typing import Any

NOTE = "under the interpreter the wrapper sees tensors that answer True to is_cuda"


def shown(x: Any, *values: Any) -> Any:
    """The values as they are on a device; on a CPU each tensor as one that answers True to `is_cuda`. One value or a tuple."""
    import torch

    class Shown(torch.Tensor):
        is_cuda = True

    made = [v.as_subclass(Shown) if x.device == "cpu" and isinstance(v, torch.Tensor) else v for v in values]
    return made[0] if len(made) == 1 else made


def plain(value: Any) -> Any:
    """The tensor without the disguise."""
    import torch

    return value.as_subclass(torch.Tensor)
