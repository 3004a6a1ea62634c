"""Mutation operators: from a node of a syntax tree to the wrong nodes that a slip of the hand puts in its place.

Left alone is what cannot make a result wrong: launch tuning (`num_warps`, cache hints), assertions (`if ...: raise` too), hints to the compiler,
logging, and branches for tensors of a device, which the CPU never takes. So are casts
of a name to another width, whose loss shows beyond 2^31 elements alone; and what masked lanes hold has an operator of its own.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Made = Iterator[ast.AST | None]  # None: the statement is dropped
OPERATORS: dict[str, Callable[[Any, Scope], Made]] = {}
TUNING = frozenset(
    re.findall(
        r"\w+",
        "num_warps num_stages num_ctas waves_per_eu matrix_instr_nonkdim kpack eviction_policy cache_modifier volatile allow_tf32 input_precision sem "
        "scope loop_unroll_factor warp_specialize disallow_acc_multi_buffer",
    )
)
_HINTS = frozenset({"static_assert", "device_assert", "static_print", "device_print", "multiple_of", "max_contiguous", "max_constancy", "debug_barrier"})
_LOGS = frozenset({"logger", "warnings", "logging"})
_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Div),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mod,),
    ast.Mod: (ast.FloorDiv,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitXor: (ast.BitOr,),
    ast.Pow: (ast.Mult,),
}
_BITS: dict[type[ast.operator], type[ast.operator]] = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
_TWINS = {
    "maximum": "minimum", "max": "min", "argmax": "argmin", "exp": "exp2", "log": "log2", "cumsum": "cumprod", "topk_max": "topk_min",
    "ones": "zeros", "ones_like": "zeros_like", "any": "all", "sin": "cos", "clamp_min": "clamp_max", "atomic_add": "atomic_max", "floor": "ceil",
}  # fmt: skip
TWINS = {**_TWINS, **{twin: name for name, twin in _TWINS.items()}}
_REDUCTIONS = frozenset(
    re.findall(
        r"\w+",
        "sum max min argmax argmin cumsum cumprod any all softmax log_softmax sort argsort topk gather size cat stack flip reduce mean",
    )
)
_AXIS_NAMES = ("axis", "dim")
_ALONG = _REDUCTIONS | {"scatter", "scatter_add", "squeeze", "unsqueeze"}


@dataclass(frozen=True)
class Scope:
    """What an operator may know of the function around a node."""

    strides: tuple[str, ...]
    assigned: frozenset[str]  # names that are assigned at more than one place
    target: str  # the name that the statement around the node assigns, or ""
    axis: bool = False  # whether the node names an axis, as the -1 of `dim=-1`: without its minus sign it names the same one of two


def operator(function: Callable[[Any, Scope], Made]) -> Callable[[Any, Scope], Made]:
    """Declares a mutation operator under its own name."""
    OPERATORS[function.__name__.strip("_").replace("_", "-")] = function
    return function


def scope_of(function: ast.FunctionDef) -> Scope:
    """The scope of a function, outside any assignment."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    stores = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stores.update(names)
    return Scope(tuple(name for name in names if "stride" in name), frozenset(name for name, count in stores.items() if count > 1), "")


def target_of(statement: ast.stmt) -> str:
    """The name that a statement assigns, or ""."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def idle(node: ast.AST) -> bool:
    """Whether nothing below the node can make a result wrong."""
    if isinstance(node, (ast.Assert, ast.Raise, ast.FunctionDef, ast.ClassDef, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global)):
        return True
    if isinstance(node, ast.If) and not node.orelse and all(isinstance(statement, ast.Raise) for statement in node.body):
        return True  # an assertion
    if isinstance(node, ast.keyword):
        return node.arg in TUNING or node.arg == "other"
    if isinstance(node, ast.Assign):
        return _cast(node)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or idle(node.value)
    if isinstance(node, ast.Call):
        return called(node) in _HINTS or (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id in _LOGS)
    return False


def names_axis(node: ast.AST, parent: ast.AST) -> bool:
    """Whether the node says along which axis its parent works."""
    if isinstance(parent, ast.keyword):
        return parent.arg in _AXIS_NAMES
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


def changed(node: ast.AST, **fields: Any) -> ast.AST:
    """A copy of a node with other fields."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@operator
def comparison(node: Any, scope: Scope) -> Made:
    """`<` for `<=`, `==` for `!=`, `is` for `is not`."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield changed(node, ops=[_SWAPPED[type(node.ops[0])]()])


@operator
def bound(node: Any, scope: Scope) -> Made:
    """A bound one too low: the right side of an order, the end of a range; a division that no longer rounds up."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
        if "inf" not in ast.unparse(node.comparators[0]):  # one less than infinity is infinity
            yield changed(node, comparators=[_less(node.comparators[0]), *node.comparators[1:]])
    elif isinstance(node, ast.Call) and called(node) in ("range", "static_range") and node.args:
        place = min(1, len(node.args) - 1)
        yield changed(node, args=[_less(argument) if i == place else argument for i, argument in enumerate(node.args)])
    elif isinstance(node, ast.Call) and called(node) == "cdiv" and len(node.args) == 2:
        yield ast.BinOp(node.args[0], ast.FloorDiv(), node.args[1])


def _less(node: ast.expr) -> ast.expr:
    return ast.BinOp(node, ast.Sub(), ast.Constant(1))


@operator
def off_by_one(node: Any, scope: Scope) -> Made:
    """An integer one too high."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)


@operator
def constant(node: Any, scope: Scope) -> Made:
    """A wrong number: twice it, 1 for 0, an infinity for its negative or for 0."""
    if isinstance(node, ast.Constant) and type(node.value) is float:
        yield ast.Constant(2 * node.value if node.value else 1.0)
    elif isinstance(node, ast.Call) and called(node) == "float" and node.args and isinstance(node.args[0], ast.Constant):
        yield ast.Constant(0.0)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not scope.axis:
        yield node.operand


@operator
def mask(node: Any, scope: Scope) -> Made:
    """A load, a store or an atomic without its mask."""
    if isinstance(node, ast.Call) and called(node) in ("load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_or"):
        kept = [keyword for keyword in node.keywords if keyword.arg not in ("mask", "other")]
        if len(kept) < len(node.keywords) and any(keyword.arg == "mask" for keyword in node.keywords):
            yield changed(node, keywords=kept)
        elif len(node.args) > 1 + (called(node) != "load"):
            yield changed(node, args=node.args[: 1 + (called(node) != "load")], keywords=kept)


@operator
def other(node: Any, scope: Scope) -> Made:
    """A masked load that no longer says what the masked lanes hold."""
    if isinstance(node, ast.Call) and called(node) == "load" and any(keyword.arg == "other" for keyword in node.keywords):
        yield changed(node, keywords=[keyword for keyword in node.keywords if keyword.arg != "other"])


@operator
def stride(node: Any, scope: Scope) -> Made:
    """Another stride of the same tensor, by its name."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope.strides:
        shared = {name: _shared(name.removeprefix("stride_"), node.id.removeprefix("stride_")) for name in scope.strides if name != node.id}
        nearest = max(shared, key=lambda name: shared[name], default="")
        if nearest and shared[nearest]:
            yield changed(node, id=nearest)


def _shared(one: str, other: str) -> int:
    """With how many letters both names begin."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@operator
def rescale(node: Any, scope: Scope) -> Made:
    """An accumulator that is added to without being rescaled."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and scope.target:
        for side in (node.left, node.right):
            if isinstance(side, ast.Name) and side.id == scope.target:
                yield side


@operator
def axis(node: Any, scope: Scope) -> Made:
    """A reduction along another axis, or a vector spread along another one."""
    if isinstance(node, ast.Call) and called(node) in _REDUCTIONS:
        for number, keyword in enumerate(node.keywords):
            if keyword.arg in _AXIS_NAMES and (turned := _turned(keyword.value)):
                yield changed(node, keywords=[changed(k, value=turned) if i == number else k for i, k in enumerate(node.keywords)])
        if len(node.args) == 2 and (turned := _turned(node.args[1])):
            yield changed(node, args=[node.args[0], turned])
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        first, second = node.slice.elts
        if isinstance(first, ast.Slice) != isinstance(second, ast.Slice):
            yield changed(node, slice=changed(node.slice, elts=[second, first]))


def _turned(node: ast.expr) -> ast.expr | None:
    try:
        number = ast.literal_eval(node)
    except ValueError:
        return None
    return ast.Constant(0 if number else 1) if type(number) is int else None


@operator
def flag(node: Any, scope: Scope) -> Made:
    """A branch that is always or never taken."""
    if isinstance(node, (ast.If, ast.IfExp)) and not isinstance(node.test, ast.Constant):
        for value in (True, False):
            yield changed(node, test=ast.Constant(value))


@operator
def arithmetic(node: Any, scope: Scope) -> Made:
    """`+` for `-`, `*` for `+` or `/`, `//` for `%`."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        for made in _ARITHMETIC.get(type(node.op), ()):
            yield changed(node, op=made())


@operator
def logic(node: Any, scope: Scope) -> Made:
    """`and` for `or`, `&` for `|`, a negation or one of two conditions dropped."""
    if isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.BinOp) and type(node.op) in _BITS:
        yield changed(node, op=_BITS[type(node.op)]())
        if isinstance(node.op, ast.BitAnd):
            yield node.left
            yield node.right
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield node.operand


@operator
def function(node: Any, scope: Scope) -> Made:
    """Its twin: `max` for `min`, `exp` for `exp2`, `log` for `log2`; the arms of a `where` swapped."""
    if isinstance(node, ast.Call) and called(node) in TWINS and isinstance(node.func, ast.Attribute):
        yield changed(node, func=changed(node.func, attr=TWINS[called(node)]))
    elif isinstance(node, ast.Call) and called(node) == "where" and len(node.args) == 3:
        yield changed(node, args=[node.args[0], node.args[2], node.args[1]])


@operator
def statement(node: Any, scope: Scope) -> Made:
    """Nothing, where a value is stored or updated."""
    repeated = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id in scope.assigned
    effect = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    written = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    if repeated or effect or written or isinstance(node, (ast.AugAssign, ast.Continue, ast.Break)):
        yield None
