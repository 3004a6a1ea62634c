"""A stand-in for device graphs on a CPU: it records each torch call and makes it again, its numbers and shapes as they were at the capture."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorder(TorchDispatchMode):
    """Keeps every call with its arguments and results; what brings a number to the host fails, as under capture."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        results = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, results))
        return results


class RecordedGraph:
    """torch.cuda.CUDAGraph on a CPU."""

    def __init__(self):
        self.recorder = Recorder()

    def capture_begin(self):
        self.recorder.__enter__()

    def capture_end(self):
        self.recorder.__exit__(None, None, None)

    def replay(self):
        for func, args, kwargs, results in self.recorder.calls:
            for old, new in zip(tree_leaves(results), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    old.copy_(new)
