"""One attention layer of a served model: built and planned as ModelRunner does, then called as the model's code does."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from harness.providers.resolve import resolve
from harness.served.attention import absent
from harness.served.attention.backends import Backend
from harness.served.attention.batching import Batch, forward_batch, pools
from harness.served.attention.configuring import Shape, published, runner, server_arguments

_LAYER = "sglang.srt.layers.radix_attention:RadixAttention"


class Served:
    """A back end behind its layer. `planned` builds the runner, the pools and the batch and calls `init_forward_metadata`; `forward` is the layer."""

    def __init__(self, backend: Backend, shape: Shape, batch: Batch, cache: tuple[Any, ...]) -> None:
        self._backend, self._shape = backend, shape
        with absent.stood_in():
            self._arguments = server_arguments(shape, backend.flag)
            with published(self._arguments):
                made = pools(shape, batch, cache)
                described = runner(shape, backend.flag, self._arguments, made)
                self.pools = made
                self.engine = resolve(backend.place)(described)
                self.batch = forward_batch(shape, batch, made, described)
                self.engine.init_forward_metadata(self.batch)
                self.layer = resolve(_LAYER)(
                    num_heads=shape.heads,
                    head_dim=shape.dim,
                    scaling=shape.scale,
                    num_kv_heads=shape.kv_heads,
                    layer_id=0,
                    logit_cap=shape.soft_cap,
                    v_head_dim=shape.v_dim,
                    sliding_window_size=shape.window,
                )

    def forward(self, q: Any, k: Any, v: Any, *, save: bool = True, **flags: Any) -> Any:
        """The layer's output, [tokens, heads, v_dim]. q [tokens, heads, dim]; k, v: of the keys that this forward brings; save: it writes them."""
        with self._inside():
            returned = self.layer(q, k, v, self.batch, save_kv_cache=save, **flags)
        return returned.view(-1, self._shape.heads, self._shape.v_dim)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        """SGLang's forward context: what the layer asks for its back end."""
        with absent.stood_in(), published(self._arguments):
            room = importlib.import_module("sglang.srt.model_executor.forward_context")
            with room.forward_context(room.ForwardContext(attn_backend=self.engine)):
                yield

    def chosen(self) -> dict[str, str]:
        """What was chosen between the server's flag and the kernels."""
        said = {"backend": self._backend.flag, "class": type(self.engine).__name__, "page": str(self._shape.page), "launch": "eager"}
        metadata = getattr(self.engine, "forward_metadata", None)
        splits = getattr(metadata, "num_kv_splits", None)
        if splits is not None:
            said["kv splits"] = f"{int(splits.max())} of at most {self.engine.max_kv_splits}" if hasattr(splits, "max") else str(splits)
        padded = getattr(self.engine, "head_repeat_factor", getattr(self.engine, "head_pad", None))
        if padded:
            said["heads padded"] = str(padded)
        return said
