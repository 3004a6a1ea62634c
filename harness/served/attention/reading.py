"""What a back end's source reads of the objects it is handed, read off the source: what a description has to answer for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# how the sources spell the objects that are described here; server arguments and the forward batch are SGLang's own classes
_SPELT = {
    ("model_runner",): "model_runner",
    ("model_runner", "model_config"): "model_config",
    ("model_config",): "model_config",
    ("self", "model_config"): "model_config",
    ("model_runner", "model_config", "hf_config"): "hf_config",
    ("model_runner", "model_config", "hf_text_config"): "hf_config",
    ("model_runner", "token_to_kv_pool_allocator"): "token_to_kv_pool_allocator",
    ("self", "token_to_kv_pool_allocator"): "token_to_kv_pool_allocator",
}


def reads(source: Path) -> dict[str, dict[str, int]]:
    """By described object, the attributes that a module reads of it, each with the first line."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for path, attribute, line in _attributes(ast.parse(source.read_text())):
        if path in _SPELT:
            found[_SPELT[path]].setdefault(attribute, line)
    return {name: dict(sorted(attributes.items())) for name, attributes in found.items()}


def _attributes(tree: ast.AST) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Every `a.b.c` and `getattr(a.b, "c", ...)` as ((a, b), c, line)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield _path(node.value), node.attr, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield _path(node.args[0]), name.value, node.lineno


def _path(node: ast.expr) -> tuple[str, ...]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()
