"""Values of this process as expressions of a script: tensors and plain values go into its data, objects are built from their parts."""

from __future__ import annotations

import ast
import base64
import dataclasses
import functools
import inspect
import io
import math
import zlib
from typing import Any

import torch

from harness.commands.definitions import source_of
from harness.commands.inline import Bundle
from harness.contracts import Case, Inputs
from harness.errors import UsageError

TINY = 256  # elements that are still written out as numbers
_PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.Tensor)


def plain(value: Any) -> bool:
    """Whether the data can hold the value as it is."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return all(map(plain, value))
    return all(isinstance(k, str) and plain(v) for k, v in value.items()) if type(value) is dict else isinstance(value, _PLAIN)


def narrow(value: torch.Tensor) -> torch.Tensor:
    """An fp64 tensor in the smallest dtype that holds it exactly, for the data's size."""
    for dtype in (torch.float16, torch.float32):
        if torch.equal(torch.nan_to_num(value.to(dtype).double()), torch.nan_to_num(value)):
            return value.to(dtype)
    return value


class Data:
    """The data of one script by name, and the expressions that read it there. `x`: the inputs, which expressions may name."""

    def __init__(self, into: Bundle, x: Inputs) -> None:
        self.into, self.x = into, x
        self.values: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> str:
        """Stores a value; returns the expression that reads it. A number, word or dtype is written where it is used."""
        if value is None or (isinstance(value, (bool, int, str, torch.dtype)) or (isinstance(value, float) and math.isfinite(value))):
            return repr(value)
        self.values[name] = value
        return f"data[{name!r}]"

    def express(self, name: str, value: Any) -> str:
        """The expression of a value, its parts stored under `name`. Raises UsageError for what a script cannot hold."""
        if value is self.x:
            return "x"
        if isinstance(value, Case):
            return "x.case"
        if plain(value):
            return self.put(name, value)
        if inspect.ismethod(value):
            return f"{self.express(name, value.__self__)}.{value.__name__}"
        if isinstance(value, functools.partial):
            parts = [self.express(f"{name}.{i}", part) for i, part in enumerate((value.func, *value.args))]
            parts += [f"{key}={self.express(f'{name}.{key}', part)}" for key, part in value.keywords.items()]
            return f"{self.into.imported('partial', 'from functools import partial')}({', '.join(parts)})"
        if inspect.isfunction(value):
            return self._function(name, value)
        if isinstance(value, (list, tuple)):
            items = ", ".join(self.express(f"{name}.{i}", item) for i, item in enumerate(value))
            return f"[{items}]" if isinstance(value, list) else f"({items},)"
        if type(value).__module__ in ("builtins", "torch") or not self.into.inlines(type(value).__module__):
            raise UsageError(f"{name} is a {type(value).__name__}, which a script cannot hold")
        return self._instance(name, value)

    def _instance(self, name: str, value: Any) -> str:
        cls = self.into.require(type(value).__module__, type(value).__qualname__)
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else dict(vars(value))
        parts = [f"{key}={self.express(name + '.' + key, part)}" for key, part in fields.items()]
        return f"{cls}({', '.join(parts)})"

    def _function(self, name: str, function: Any) -> str:
        """A module's function by name; one made inside another by a maker that is given what it closes over."""
        cells = inspect.getclosurevars(function).nonlocals
        if "<locals>" not in function.__qualname__:
            return self.into.require(function.__module__, function.__name__)
        maker = f"make_{name.replace('.', '_')}"
        made: Any = ast.parse(f"def {maker}({', '.join(cells)}):\n    pass\n    return rule").body[0]
        made.body[0] = source_of(function, "rule")
        self.into.add(function.__module__, made)
        return f"{maker}({', '.join(self.express(f'{name}.{key}', part) for key, part in cells.items())})"


def literal(value: Any, device: str) -> str:
    """A plain value as Python text; `inf` and `nan` are names there."""
    if isinstance(value, torch.Tensor):
        where = "" if device == "cpu" else f", device={device!r}"
        if value.numel() == 0:
            return f"torch.zeros({tuple(value.shape)}, dtype={value.dtype}{where})"
        return f"torch.tensor({value.tolist()}, dtype={value.dtype}{where})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {literal(item, device)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        items = ", ".join(literal(item, device) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items},)"
    return repr(value)


def tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor in a plain value."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def is_tiny(value: Any) -> bool:
    """Whether the value is short enough, and simple enough, to be written out as numbers."""
    found = tensors(value)
    simple = all(t.is_contiguous() and not (t.is_floating_point() and t.element_size() == 1) for t in found)  # fp8 has no literals
    return simple and sum(t.numel() for t in found) <= TINY


def saved(value: Any) -> bytes:
    """The value as torch.save writes it."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def packed(value: bytes) -> str:
    """Bytes as compressed base64 text."""
    return base64.b64encode(zlib.compress(value, 9)).decode()
