"""SGLang's attention back ends by the name that `--attention-backend` takes."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

_ROOM = "sglang.srt.layers.attention"
_DEVICES = frozenset({"cuda", "rocm"})
_OPS = {"mha": ("decode_attention", "extend_attention", "verify_attention"), "mla": ("mla_decode", "mla_prefill", "mla_prefill_absorbed")}


@dataclass(frozen=True)
class Backend:
    """One back end.

    flag      what `--attention-backend` takes; `flashinfer` is one flag with a class for MHA and one for MLA
    place     `module:class`
    kind      `both`, `mha` or `mla`: the attention it serves
    platforms the providers' platforms it is driven on
    needs     packages without which its module does not import or its kernels are not there
    split     MLA: the layer is given rope and the rest apart, as SGLang's model code does for it; else joined
    page      the only page size that it takes; 0: any
    chunked   MLA: a prefill's explicit keys and values are announced as the first part of a chunked prefix
    tanh      a soft cap is the hardware's approximate tanh
    verifies  whether SGLang runs speculative verification on it
    """

    name: str
    flag: str
    place: str
    kind: str = "both"
    platforms: frozenset[str] = _DEVICES
    needs: tuple[str, ...] = ()
    split: bool = False
    page: int = 0
    chunked: bool = False
    tanh: bool = False
    verifies: bool = True

    @property
    def provider(self) -> str:
        """The name of its providers."""
        return f"served_{self.name}"

    @property
    def ops(self) -> tuple[str, ...]:
        """The ops that it is a provider of."""
        return _OPS.get(self.kind, _OPS["mha"] + _OPS["mla"])


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("torch_native", "torch_native", f"{_ROOM}.torch_native_backend:TorchNativeAttnBackend", platforms=_DEVICES | {"cpu"}, verifies=False),
        Backend("triton", "triton", f"{_ROOM}.triton_backend:TritonAttnBackend", platforms=_DEVICES | {"interpret"}),
        Backend(
            "fa3",
            "fa3",
            f"{_ROOM}.flashattention_backend:FlashAttentionBackend",
            platforms=frozenset({"cuda"}),
            needs=("sgl_kernel",),
            split=True,
            chunked=True,
            tanh=True,
        ),
        Backend(
            "flashinfer",
            "flashinfer",
            f"{_ROOM}.flashinfer_backend:FlashInferAttnBackend",
            kind="mha",
            platforms=frozenset({"cuda"}),
            needs=("flashinfer", "sgl_kernel"),
            tanh=True,
        ),
        Backend(
            "flashinfer_mla",
            "flashinfer",
            f"{_ROOM}.flashinfer_mla_backend:FlashInferMLAAttnBackend",
            kind="mla",
            platforms=frozenset({"cuda"}),
            needs=("flashinfer", "sgl_kernel"),
            split=True,
            chunked=True,
        ),
        Backend(
            "flashmla",
            "flashmla",
            f"{_ROOM}.flashmla_backend:FlashMLABackend",
            kind="mla",
            platforms=frozenset({"cuda"}),
            needs=("flashinfer", "sgl_kernel"),
            page=64,
            chunked=True,
        ),
    )
}


def why_not(backend: Backend, machine: str) -> str:
    """Why the back end cannot be driven on a machine, by what is installed; an empty string where it can."""
    if not backend.platforms.intersection(("interpret", "cpu") if machine == "cpu" else (machine,)):
        return f"it is driven on {', '.join(sorted(backend.platforms))}; this machine is {machine}"
    for package in ("sglang", *backend.needs):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    module = backend.place.partition(":")[0].split(".")
    root = importlib.util.find_spec("sglang")
    folders = list(root.submodule_search_locations or ()) if root else []
    return "" if any(Path(folder, *module[1:]).with_suffix(".py").is_file() for folder in folders) else f"this SGLang has no {'.'.join(module)}"


def serving(flag: str, kind: str) -> Backend | None:
    """The back end behind a flag for `mha` or `mla`, or None where it is not driven here."""
    return next((backend for backend in BACKENDS.values() if backend.flag == flag and backend.kind in ("both", kind)), None)
