"""What is left alone: nodes of a syntax tree that cannot make a result wrong, or that the CPU never runs."""

from __future__ import annotations

import ast
import re

TUNING = frozenset(
    re.findall(
        r"\w+",
        "num_warps num_stages num_ctas waves_per_eu matrix_instr_nonkdim kpack eviction_policy cache_modifier volatile allow_tf32 input_precision sem "
        "scope loop_unroll_factor warp_specialize disallow_acc_multi_buffer",
    )
)
_HINTS = frozenset({"static_assert", "device_assert", "static_print", "device_print", "multiple_of", "max_contiguous", "max_constancy", "debug_barrier"})
_LOGS = frozenset({"logger", "warnings", "logging"})
REDUCTIONS = frozenset(
    re.findall(
        r"\w+",
        "sum max min argmax argmin cumsum cumprod any all softmax log_softmax sort argsort topk gather size cat stack flip reduce mean",
    )
)
AXIS_NAMES = ("axis", "dim")
_ALONG = REDUCTIONS | {"scatter", "scatter_add", "squeeze", "unsqueeze"}


def idle(node: ast.AST) -> bool:
    """Whether nothing below the node can make a result wrong."""
    if isinstance(node, (ast.Assert, ast.Raise, ast.FunctionDef, ast.ClassDef, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global)):
        return True
    if isinstance(node, ast.If) and not node.orelse and all(isinstance(statement, ast.Raise) for statement in node.body):
        return True  # an assertion
    if isinstance(node, ast.keyword):
        return node.arg in TUNING or node.arg == "other"
    if isinstance(node, ast.Assign):
        return _cast(node) or (isinstance(node.value, ast.Call) and called(node.value) in _HINTS)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or idle(node.value)
    if isinstance(node, ast.Call):
        return called(node) in _HINTS or (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id in _LOGS)
    return False


def elsewhere(node: ast.AST) -> bool:
    """Whether it is a branch for tensors of a device, by a condition that is false on the CPU, where mutants run."""
    if not isinstance(node, ast.If):
        return False
    parts = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
    return any(isinstance(part, ast.Attribute) and part.attr in ("is_cuda", "is_npu", "is_xpu") for part in parts)


def names_axis(node: ast.AST, parent: ast.AST) -> bool:
    """Whether the node says along which axis its parent works."""
    if isinstance(parent, ast.keyword):
        return parent.arg in AXIS_NAMES
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.value, ast.Attribute) and parent.value.attr == "shape"
    return isinstance(parent, ast.Call) and called(parent).rstrip("_") in _ALONG and node in parent.args


def _cast(node: ast.Assign) -> bool:
    """Whether it is `x = x.to(...)`."""
    value, target = node.value, node.targets[0]
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "to"):
        return False
    return ast.unparse(value.func.value) == ast.unparse(target)


def called(node: ast.Call) -> str:
    """The last part of the name of what is called, or ""."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
