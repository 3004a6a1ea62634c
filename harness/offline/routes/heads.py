"""What SGLang's AITER and DSA backends do with a head count, run from their constructors."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.offline.routes.dispatch import Dispatch
from harness.offline.routes.linking import Undescribed, told
from harness.offline.routes.objects import Instance
from harness.offline.routes.parsing import Module
from harness.offline.routes.slicing import block
from harness.offline.routes.world import Described
from harness.words import plural

AITER = "sglang.srt.layers.attention.aiter_backend"
_DSA = (("sglang.srt.layers.attention.dsa_backend", "DeepseekSparseAttnBackend"), ("sglang.srt.layers.attention.nsa_backend", "NativeSparseAttnBackend"))
COPIED = "_MLA_REDUCE_V1_HEADS"  # SGLang's copy of the head counts of AITER's reduction
_FLAGS = ("_use_mla_ps_kernel", "fast_mode", "intra_batch_mode")


@dataclass(frozen=True)
class HeadRow:
    """One head count of one rank at one place. accepted is None where the code stopped at something undescribed; `text` says it in words;
    `condition` is the one that refused it. aborts: the versions of AITER whose kernel does not have what it is given.
    """

    place: str
    heads: int
    accepted: bool | None
    padded: int | None
    mode: str
    file: str
    line: int
    text: str
    condition: str = ""
    persistent: bool | None = None
    aborts: tuple[str, ...] = ()


def outcome(row: HeadRow) -> str:
    """What becomes of an accepted head count, and which versions of AITER abort at it."""
    how = {"zero": "with zeros", "repeat": "by repeating", "tile": "by tiling"}.get(row.mode, row.mode)
    aborts = f"; aborts in {', '.join(row.aborts)}, which has no such kernel" if row.aborts else ""
    return ("as it is" if row.padded == row.heads else f"padded to {row.padded} {how}") + aborts


class HeadGate:
    """The head counts of one version of SGLang on one target."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch, self._linker = dispatch, dispatch.linker

    def decode(self, heads: int, fp8: bool = False, decoding: str = "aiter") -> HeadRow:
        """The MLA block of the AITER backend's constructor: which counts it takes, and what it pads them to. KV in bf16 or fp8; decoding: the
        back end that decodes, where it is not AITER's too.
        """
        place, module = f"aiter decode, {'fp8' if fp8 else 'bf16'} KV", self._linker.tree.module(AITER)
        statement = _mla_block(module) if module else None
        if module is None or statement is None:
            return HeadRow(place, heads, None, None, "", AITER, 0, "unknown: the form of AiterAttnBackend's constructor is not recognised")
        made: dict[str, Any] = {"place": place, "heads": heads, "file": module.path, "line": statement.lineno}
        saved: dict[str, Any] = {}
        try:
            backend = self._backend(module, heads, fp8)
            saved |= {name: self._linker.load(AITER, name) for name in _FLAGS}
            self._linker.function(module, block(statement, "self", "model_runner", "max_bs"))(backend, _runner(decoding), 8)
        except AssertionError:
            line, text = next((place.line, place.text) for place, held in reversed(self._linker.trace.seen) if not held)
            where = f"{module.path.removeprefix('sglang/')}:{line}"
            return HeadRow(**{**made, "line": line}, accepted=False, padded=None, mode="", text=f"refused at start-up ({where})", condition=text)
        except (Undescribed, Exception) as error:
            return HeadRow(**made, accepted=None, padded=None, mode="", text=f"unknown: {told(error)}")
        finally:
            after = dict(self._linker.space(AITER))
            self._linker.space(AITER).update(saved)
        if "num_head_padded" not in backend._values and "pad" in ast.unparse(statement):
            text = "unknown: it pads heads, but to no self.num_head_padded"
            return HeadRow(**made, accepted=None, padded=None, mode="", text=text)
        padded, mode = backend._values.get("num_head_padded", heads), backend._values.get("head_pad_mode", "")
        mode = "none" if padded == heads else {"": "repeat", "none": "tile"}.get(mode, mode)
        return HeadRow(**made, accepted=True, padded=padded, mode=mode, text=_taken(heads, padded, mode, backend), persistent=bool(after["_use_mla_ps_kernel"]))

    def prefill(self, heads: int, kv_heads: int, v_dim: int) -> HeadRow:
        """The head count that AITER's fp8 assembly prefill is given; padded is None where SGLang goes to AITER's flash attention instead, or where
        the constructor refuses the count even if another back end decodes.
        """
        module = self._linker.module(AITER)
        made: dict[str, Any] = {"place": "aiter fp8 prefill", "heads": heads, "file": module.path}
        node = module.function("check_fp8_prefill_num_head", "AiterAttnBackend")
        try:
            enabled = bool(self._linker.load(AITER, "_use_fp8_prefill_attn"))
        except Undescribed as error:
            return HeadRow(**made, line=0, accepted=None, padded=None, mode="", text=f"unknown: {error}")
        if not enabled:
            return HeadRow(**made, line=node.lineno if node else 0, accepted=False, padded=None, mode="", text="off on this target (gfx95 only)")
        start = self.decode(heads, fp8=True, decoding="triton")
        if not start.accepted:
            return dataclasses.replace(start, place=made["place"])
        if node is None and module.binding(COPIED):
            text = f"unknown: {COPIED} is there, but no check_fp8_prefill_num_head that reads it"
            return HeadRow(**made, line=0, accepted=None, padded=None, mode="", text=text)
        if node is None:
            return HeadRow(**made, line=0, accepted=True, padded=heads, mode="none", text="no head check in this version: every count goes to the kernel")
        backend = Instance(self._linker, module, "AiterAttnBackend", {})
        padded = backend.check_fp8_prefill_num_head(num_head=heads, num_kv_head=kv_heads, v_head_dim=v_dim)
        text = "no count that fits: AITER's flash attention instead" if padded is None else "as it is" if padded == heads else f"padded to {padded}"
        return HeadRow(**made, line=node.lineno, accepted=padded is not None, padded=padded, mode="none" if padded == heads else "tile", text=text)

    def tiled(self, heads: int, padded: int) -> list[int]:
        """Which head each head of `pad_heads(x, padded)` is a copy of. Raises Undescribed where this version has no such method."""
        module = self._linker.module(AITER)
        return Instance(self._linker, module, "AiterAttnBackend", {}).pad_heads(_Heads(list(range(heads))), padded).order

    def sparse(self, heads: int) -> HeadRow:
        """The padding of the DSA backend on HIP; `accepted` says whether it reaches a multiple of 16, which AITER's decode needs."""
        for name, owner in _DSA:
            module = self._linker.tree.module(name)
            found = list(_paddings(module, owner)) if module else []
            if module and found:
                backend = Instance(self._linker, module, owner, {"num_q_heads": heads})
                try:
                    for statement in found:
                        self._linker.function(module, block(statement, "self"))(backend)
                    repeats, pads = backend.head_repeat_factor, backend.need_pad_heads
                except (Undescribed, Exception) as error:
                    return HeadRow("dsa", heads, None, None, "", module.path, found[-1].lineno, f"unknown: {told(error)}")
                padded = backend._values.get("num_head_padded", heads * repeats)
                fits = padded % 16 == 0
                text = f"{heads} repeated {plural(repeats, 'time')}: {padded}" + ("" if fits else ", which is no multiple of 16")
                return HeadRow("dsa", heads, fits, padded, "repeat" if pads else "none", module.path, found[-1].lineno, text)
        return HeadRow("dsa", heads, None, None, "", "", 0, "this version pads no heads for DSA, or its form is not recognised")

    def _backend(self, module: Module, heads: int, fp8: bool) -> Instance:
        dtype = self._linker.load(AITER, "fp8_dtype") if fp8 else self._linker.load(AITER, "torch").bfloat16
        values = {"num_head": heads, "num_kv_head": heads, "use_mla": True, "dcp_world_size": 1, "use_mla_dcp_asm": False, "kv_cache_dtype": dtype}
        return Instance(self._linker, module, "AiterAttnBackend", {**values, "num_draft_tokens": None, "page_size": 1, "device": "cuda", "topk": 1})


class _Heads:
    """Stands for a tensor [tokens, heads, dim] of which only the order of the heads matters."""

    def __init__(self, order: list[int]) -> None:
        self.order, self.shape = order, (1, len(order), 1)

    def repeat(self, tokens: int, heads: int, dim: int) -> _Heads:
        if (tokens, dim) != (1, 1):
            raise Undescribed("repeat() of something else than heads")
        return _Heads(self.order * heads)

    def __getitem__(self, index: Any) -> _Heads:
        if index[0] != slice(None) or index[2] != slice(None):
            raise Undescribed("a slice of something else than heads")
        return _Heads(self.order[index[1]])

    def contiguous(self) -> _Heads:
        return self


def _runner(decoding: str) -> Described:
    arguments = {"speculative_algorithm": None, "speculative_attention_mode": "prefill"}
    return Described("model_runner", {"device": "cuda", "decode_attention_backend_str": decoding, "server_args": Described("server_args", arguments)})


def _mla_block(module: Module) -> ast.If | None:
    node = module.function("__init__", "AiterAttnBackend")
    found = [part for part in node.body if isinstance(part, ast.If) and ast.unparse(part.test) == "self.use_mla"] if node else []
    return found[-1] if found and "num_head" in ast.unparse(found[-1]) else None


def _paddings(module: Module, owner: str) -> Iterator[ast.stmt]:
    node = module.function("__init__", owner)
    names = {"self.need_pad_heads", "self.head_repeat_factor", "self.num_head_padded"}
    for part in ast.walk(node) if node else ():
        if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) in names:
            yield part


def _taken(heads: int, padded: int, mode: str, backend: Instance) -> str:
    if padded == heads:
        return f"takes {plural(heads, 'head')} as {'it is' if heads == 1 else 'they are'}"
    how = {"zero": "with zeros", "repeat": f"by repeating each {backend._values.get('head_repeat_factor', padded // heads)} times"}.get(mode, "by tiling")
    return f"takes {plural(heads, 'head')} and pads {'it' if heads == 1 else 'them'} to {padded} {how} ({100 * (padded - heads) / heads:.0f} % more to compute)"
