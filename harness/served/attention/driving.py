"""One attention layer of a served model: built and planned as ModelRunner does, then called as the model's code does."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from typing import Any

from harness.errors import Unsupported
from harness.providers.resolve import resolve
from harness.served.attention import absent
from harness.served.attention.backends import Backend
from harness.served.attention.batching import Batch, forward_batch, pools
from harness.served.attention.configuring import Shape, published, runner, server_arguments

_LAYER = "sglang.srt.layers.radix_attention:RadixAttention"


_server = contextlib.ExitStack()  # what the last one published: a process serves one model at a time


class Served:
    """A back end behind its layer: the runner, the pools and the batch, and the metadata that SGLang plans before a forward.

    cache   as `pools` takes it
    Raises Undescribed where SGLang reads what is not described.
    """

    def __init__(self, backend: Backend, shape: Shape, batch: Batch, cache: tuple[Any, ...]) -> None:
        self._backend, self._shape = backend, shape
        _server.close()
        with absent.stood_in():
            arguments = server_arguments(shape, backend.flag)
            _server.enter_context(published(arguments))
            self.pools = pools(shape, batch, cache)
            self.described = runner(shape, backend.flag, arguments, self.pools)
            self.engine = resolve(backend.place)(self.described)
            self.batch = forward_batch(shape, batch, self.pools, self.described)
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
            room = importlib.import_module("sglang.srt.model_executor.forward_context")
            self._enter, self._context = room.forward_context, room.ForwardContext(attn_backend=self.engine)

    def takes(self, flags: dict[str, Any]) -> None:
        """Raises Unsupported for a flag that the back end's forward has no argument for: the server's call would be a TypeError."""
        method = self.engine.forward_decode if self.batch.forward_mode.is_decode() else self.engine.forward_extend
        known = inspect.signature(method).parameters
        for name in flags:
            if name not in known and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
                raise Unsupported(
                    f"SGLang's {self._backend.flag} back end takes no {name}: {type(self.engine).__name__}.{method.__name__} has no such argument"
                )

    def forward(self, q: Any, k: Any, v: Any, *, save: bool = True, **flags: Any) -> Any:
        """The layer's output, [tokens, heads, v_dim]. q [tokens, heads, dim]; k, v: of the keys that this forward brings; save: it writes them."""
        with absent.stood_in(), self._enter(self._context):
            returned = self.layer(q, k, v, self.batch, save_kv_cache=save, **flags)
        return returned.view(-1, self._shape.heads, self._shape.v_dim)

    def chosen(self) -> dict[str, str]:
        """What was chosen between the server's flag and the kernels."""
        said = {"backend": self._backend.flag, "class": type(self.engine).__name__, "page": str(self._shape.page), "heads": str(self._shape.heads)}
        metadata = getattr(self.engine, "forward_metadata", None)
        splits = getattr(metadata, "num_kv_splits", None)
        if splits is not None:
            said["kv splits"] = f"{int(splits.max())} of at most {self.engine.max_kv_splits}" if hasattr(splits, "max") else str(splits)
        return said
