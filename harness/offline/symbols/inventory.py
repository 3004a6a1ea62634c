"""SGLang's own inventory of kernels: operators that a platform's reference has an implementation of, and the platform has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from harness.offline.symbols.tree import Tree

_DEVICES = {"CUDA", "HIP", "MUSA", "NPU", "CPU", "XPU"}


@dataclass(frozen=True)
class Spec:
    """One registered implementation; `devices` is empty where it runs anywhere."""

    op: str
    backend: str
    module: str
    line: int
    devices: frozenset[str]
    targets: tuple[str, ...] = ()


def specs(tree: Tree, root: str) -> list[Spec]:
    """The implementations that the modules under `root` register by `KernelSpec(op=..., backend=..., capabilities=...)`."""
    return [spec for module in tree.within([root]) if "KernelSpec(" in tree.text(module) for spec in _of_module(tree, module)]


def one_sided(found: list[Spec], platform: str, reference: str) -> list[Spec]:
    """Operators that the reference can run and the platform cannot: the reference's first implementation of each."""
    by_op: dict[str, list[Spec]] = {}
    for spec in found:
        by_op.setdefault(spec.op, []).append(spec)
    lone = []
    for group in by_op.values():
        there = [spec for spec in group if not spec.devices or reference.upper() in spec.devices]
        here = [spec for spec in group if not spec.devices or platform.upper() in spec.devices]
        if there and not here:
            lone.append(there[0])
    return sorted(lone, key=lambda spec: spec.op)


def targets_elsewhere(found: list[Spec], platform: str) -> frozenset[str]:
    """The functions, as `module:name`, that are registered for other devices and not for the platform."""
    here = {target for spec in found if not spec.devices or platform.upper() in spec.devices for target in spec.targets}
    return frozenset(target for spec in found for target in spec.targets) - here


def _of_module(tree: Tree, module: str) -> Iterator[Spec]:
    syntax = tree.syntax(module)
    if syntax is None:
        return
    assigns = [node for node in ast.walk(syntax) if isinstance(node, ast.Assign)]
    constants = {target.id: node.value for node in assigns for target in node.targets if isinstance(target, ast.Name)}
    loops = _loops(syntax, constants)
    for node in ast.walk(syntax):
        if isinstance(node, ast.Call) and _last(node.func) == "KernelSpec":
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            backend = _last(given.get("backend")) or ast.unparse(given["backend"]) if "backend" in given else ""
            targets = tuple(_texts(given.get("target"), loops))
            for op in _texts(given.get("op"), loops):
                yield Spec(op, backend, module, node.lineno, frozenset(_devices(given.get("capabilities"), constants)), targets)


def _loops(syntax: ast.Module, constants: dict[str, ast.expr]) -> dict[str, list[str]]:
    """Names that loops at the top of the module run over, with the texts they take."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(syntax):
        if not isinstance(node, ast.For):
            continue
        table = constants.get(node.iter.id) if isinstance(node.iter, ast.Name) else node.iter
        if not isinstance(table, (ast.Tuple, ast.List)):
            continue
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        for place, target in enumerate(targets):
            parts = [e.elts[place] if isinstance(e, (ast.Tuple, ast.List)) and place < len(e.elts) else e for e in table.elts]
            texts = [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
            if isinstance(target, ast.Name) and len(texts) == len(parts):
                found[target.id] = texts
    return found


def _texts(node: ast.expr | None, loops: dict[str, list[str]]) -> list[str]:
    """The texts an expression can be: a constant, an f-string over a loop's names, or such a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.Name):
        return loops.get(node.id, [])
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            options = _texts(part.value if isinstance(part, ast.FormattedValue) else part, loops)
            texts = [text + option for text in texts for option in options]
        return texts
    return []


def _devices(node: ast.expr | None, constants: dict[str, ast.expr], depth: int = 0) -> set[str]:
    """The devices an expression of capabilities names; empty: any, also where one of its cases is empty."""
    if node is None or depth > 4:
        return set()
    if isinstance(node, ast.IfExp):
        either = [_devices(part, constants, depth + 1) for part in (node.body, node.orelse)]
        return set.union(*either) if all(either) else set()
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in _DEVICES:
            found.add(part.attr)
        elif isinstance(part, ast.Attribute) and part.attr == "cuda":
            found.add("CUDA")
        elif isinstance(part, ast.Name):
            if part.id == "CUDA_ONLY":
                found.add("CUDA")
            elif part.id in constants:
                found |= _devices(constants[part.id], constants, depth + 1)
    return found


def _last(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
