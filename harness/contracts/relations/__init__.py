"""Laws between calls: what a second call, with inputs varied in a known way, must have to do with the first. docs/relations.md lists them."""

from harness.contracts.relations.base import DETERMINISM, STORAGE, Outputs, Relation, strided, varied

__all__ = ["DETERMINISM", "STORAGE", "Outputs", "Relation", "strided", "varied"]
