"""Model geometries: what one rank of a served model asks of each op. Read from cases/models.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from harness import toml
from harness.errors import UsageError, unknown


@dataclass(frozen=True)
class Model:
    """A model as its configuration describes it; `kind` is `gqa` or `mla`; the mla fields are 0 for gqa.

    index_topk: tokens the sparse indexer picks (0: dense); layers / covered: attention layers in all, and those this project's ops cover.
    """

    name: str
    kind: str
    heads: int
    kv_heads: int
    vocab: int
    source: str
    head_dim: int = 128
    v_dim: int = 128
    latent: int = 0
    rope: int = 0
    nope: int = 0
    index_topk: int = 0
    sinks: bool = False
    window: int = 0
    layers: int = 0
    covered: int = 0
    note: str = ""

    @property
    def uncovered(self) -> str:
        """The layers that no op covers, in words, or an empty string."""
        missing = self.layers - self.covered
        return f"{missing} of {self.layers} layers ({self.note})" if missing else ""

    def rank(self, tp: int) -> Geometry:
        """One rank's shapes. Raises UsageError when tp does not divide the query heads, or neither divides nor is divided by the kv heads."""
        if not self._splits(tp):
            good = ", ".join(str(n) for n in (1, 2, 4, 8, 16, 32) if self._splits(n))
            raise UsageError(f"{self.name} has {self.heads} query and {self.kv_heads} kv heads, which tp {tp} does not divide; try --tp {good}")
        return Geometry(self, tp, self.heads // tp, max(1, self.kv_heads // tp))

    def _splits(self, tp: int) -> bool:
        return tp >= 1 and self.heads % tp == 0 and (self.kv_heads % tp == 0 or tp % self.kv_heads == 0)


@dataclass(frozen=True)
class Geometry:
    """One rank of a model: `heads` query heads and `kv_heads` on this rank (kv heads are replicated when tp exceeds them)."""

    model: Model
    tp: int
    heads: int
    kv_heads: int

    @property
    def uncovered(self) -> str:
        """What of the model is out of this project's scope, in words, or an empty string."""
        return f"not covered: {self.model.uncovered}" if self.model.uncovered else ""


def load_models(path: Path) -> Mapping[str, Model]:
    """The models of a models.toml by name. Raises UsageError for an unreadable file or an unknown field."""
    data = toml.read(path)
    known = {field.name for field in fields(Model)}
    models = {}
    for name, entry in data.items():
        if not isinstance(entry, dict):
            raise UsageError(f"{path}: model {name!r} is not a table; write [{name}]")
        extra = sorted(entry.keys() - known)
        if extra:
            raise UsageError(f"{path}: model {name!r} has an {toml.unknown_field(extra[0], known)}")
        try:
            models[name] = Model(name=name, **entry)
        except TypeError as error:
            raise UsageError(f"{path}: model {name!r}: {str(error).replace('Model.__init__() ', '')}") from error
        _check(path, models[name])
    return models


def _check(path: Path, model: Model) -> None:
    """Raises UsageError for a field of the wrong type, a size below 1, or an unknown kind."""
    for field in fields(Model):
        value, wanted = getattr(model, field.name), {"int": int, "str": str, "bool": bool}[str(field.type)]
        if type(value) is not wanted:
            raise UsageError(f"{path}: model {model.name!r}: {field.name} is {value!r}, not of type {wanted.__name__}")
    if model.kind not in ("gqa", "mla") or min(model.heads, model.kv_heads, model.vocab) < 1:
        raise UsageError(f"{path}: model {model.name!r}: kind is gqa or mla; heads, kv_heads and vocab are at least 1")


def find_model(models: Mapping[str, Model], name: str) -> Model:
    """The model of that name. Raises UsageError with the nearest names."""
    if name not in models:
        raise unknown("model", name, models)
    return models[name]
