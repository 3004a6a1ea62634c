"""Statements: how they change the names of a scope, and where a path ends."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from harness.offline.symbols import assigning, calls, conditions, expressions, importing, shapes
from harness.offline.symbols.frames import Frame, Path, forked
from harness.offline.symbols.values import NONE, UNBOUND, UNKNOWN, Class, Function, one, truths

_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", ""})
_CATCHES = {
    "ImportError": _IMPORT_ERRORS,
    "ModuleNotFoundError": _IMPORT_ERRORS,
    "NameError": frozenset({"NameError", "Exception", "BaseException", ""}),
}


def block(frame: Frame, body: Iterable[ast.stmt]) -> None:
    """Runs the statements until the path ends."""
    for statement in body:
        if frame.path is None:
            return
        if frame.locals is None and frame.owner is None:
            names = frame.world.modules[frame.module]
            names.reached.add(statement.lineno)
            names.env = frame.path.env  # what functions called from here on see
        _STATEMENTS.get(type(statement), _plain)(frame, statement)


def _plain(frame: Frame, node: ast.stmt) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            expressions.evaluate(frame, child)
        elif isinstance(child, ast.stmt):
            block(frame, [child])


def _expression(frame: Frame, node: ast.Expr) -> None:
    if not expressions.evaluate(frame, node.value) and frame.path is not None:  # a call that never returns
        frame.stop("Exception")


def _assign(frame: Frame, node: ast.Assign) -> None:
    state = expressions.evaluate(frame, node.value)
    for target in node.targets:
        assigning.bind(frame, target, state, node.value)
    if frame.locals is not None and frame.path is not None and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        same = _same_truth(frame, node.value)
        if same:
            frame.path.alike[node.targets[0].id] = same


def _same_truth(frame: Frame, node: ast.expr) -> str:
    """The dotted expression that has the truth of an assigned value: itself, or the one part of an `and` whose others hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        quiet = Frame(frame.world, frame.module, frame.path, frame.locals, frame.owner)
        open_ = [part for part in node.values if {truth for value in expressions.evaluate(quiet, part) for truth in truths(value)} != {True}]
        return expressions.dotted(open_[0]) if len(open_) == 1 else ""
    return expressions.dotted(node) if isinstance(node, ast.Attribute) else ""


def _annotated(frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assigning.bind(frame, node.target, expressions.evaluate(frame, node.value), node.value)


def _augmented(frame: Frame, node: ast.AugAssign) -> None:
    expressions.evaluate(frame, node.value)
    assigning.bind(frame, node.target, UNKNOWN)


def _if(frame: Frame, node: ast.If) -> None:
    yes, no = conditions.branch(frame, node.test)
    after = []
    for path, body in ((yes, node.body), (no, node.orelse)):
        inner = frame.at(path)
        block(inner, body)
        after.append(inner.path)
    frame.path = frame.merge(after)


def _loop(frame: Frame, node: ast.For | ast.AsyncFor | ast.While) -> None:
    assert frame.path is not None
    for name in shapes.assigned(node.body):
        if name in frame.path.env:
            frame.set(name, UNKNOWN if frame.locals is not None else frame.path.env[name] | UNKNOWN)
    before = forked(frame.path)
    if isinstance(node, ast.While):
        yes, no = conditions.branch(frame, node.test)
    else:
        expressions.evaluate(frame, node.iter)
        assigning.bind(frame, node.target, UNKNOWN)
        yes, no = frame.path, before
    inner = frame.at(forked(yes) if yes else None)
    block(inner, node.body)
    endless = isinstance(node, ast.While) and no is None and not any(isinstance(n, ast.Break) for n in ast.walk(node))
    frame.path = None if endless else frame.merge([inner.path, no, before if isinstance(node, ast.While) and no is None else None])
    block(frame, node.orelse)


def _leave(frame: Frame, node: ast.stmt) -> None:
    """break and continue: what follows in the block is not run; the loop's own end takes the path up again."""
    frame.path = None


def _return(frame: Frame, node: ast.Return) -> None:
    frame.returned.append(expressions.evaluate(frame, node.value) if node.value is not None else NONE)
    if frame.path is not None:
        frame.exits.append(frame.path)
    frame.path = None


def _raise(frame: Frame, node: ast.Raise) -> None:
    if node.exc is not None:
        expressions.evaluate(frame, node.exc)
    made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    frame.stop(made.id if isinstance(made, ast.Name) else made.attr if isinstance(made, ast.Attribute) else "Exception")


def _assert(frame: Frame, node: ast.Assert) -> None:
    yes, no = conditions.branch(frame, node.test)
    if yes is None and no is not None:
        frame.path = no
        frame.stop("AssertionError")
        return
    frame.path = yes


def _with(frame: Frame, node: ast.With | ast.AsyncWith) -> None:
    suppressed: frozenset[str] = frozenset()
    for item in node.items:
        expressions.evaluate(frame, item.context_expr)
        call = item.context_expr
        if isinstance(call, ast.Call) and expressions.last_word(call.func) == "suppress":
            suppressed |= frozenset(expressions.last_word(argument) for argument in call.args)
        if item.optional_vars is not None:
            assigning.bind(frame, item.optional_vars, UNKNOWN)
    if suppressed:
        _guarded(frame, node.body, [(suppressed, None, [])], [], [])
    else:
        block(frame, node.body)


def _try(frame: Frame, node: ast.Try) -> None:
    handlers = [(_caught_by(handler), handler.name, handler.body) for handler in node.handlers]
    _guarded(frame, node.body, handlers, node.orelse, node.finalbody)


def _caught_by(handler: ast.ExceptHandler) -> frozenset[str]:
    if handler.type is None:
        return frozenset({""})
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return frozenset(expressions.last_word(kind) for kind in kinds)


Handlers = list[tuple[frozenset[str], str | None, list[ast.stmt]]]


def _guarded(frame: Frame, body: list[ast.stmt], handlers: Handlers, orelse: list[ast.stmt], final: list[ast.stmt]) -> None:
    assert frame.path is not None
    before = forked(frame.path)
    takes = frozenset().union(*(kinds for kinds, _, handler in handlers if not _raises_again(handler))) if handlers else frozenset()
    inner = frame.at(frame.path)
    inner.raised, inner.catching = [], (*frame.catching, takes) if takes else frame.catching
    block(inner, body)
    ends = []
    may_raise = any(isinstance(part, (ast.Call, ast.Subscript, ast.Raise)) for statement in body for part in ast.walk(statement))
    for kinds, name, handler in handlers:
        entries = [path for error, path in inner.raised if _takes(kinds, error)]
        if may_raise and not kinds <= {"ImportError", "ModuleNotFoundError"}:
            entries += [before, *([forked(inner.path)] if inner.path else [])]
        entry = frame.at(frame.merge([forked(path) for path in entries]))
        if entry.path is not None and name:
            entry.set(name, UNKNOWN)
        block(entry, handler)
        ends.append(entry.path)
    frame.raised += [(error, path) for error, path in inner.raised if not any(_takes(kinds, error) for kinds, _, _ in handlers)]
    rest = frame.at(inner.path)
    block(rest, orelse)
    after = frame.merge([rest.path, *ends])
    if after is None and final:
        ending = frame.at(before)
        block(ending, final)
        frame.path = None
        return
    frame.path = after
    block(frame, final)


def _takes(kinds: frozenset[str], error: str) -> bool:
    return bool(kinds & (_CATCHES.get(error) or {error, "Exception", "BaseException", ""}))


def _raises_again(handler: list[ast.stmt]) -> bool:
    return bool(handler) and isinstance(handler[-1], ast.Raise)


def _define(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    for decorator in node.decorator_list:
        expressions.evaluate(frame, decorator)
    for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None:
            expressions.evaluate(frame, default)
    frame.set(node.name, one(Function(frame.module, node, frame.owner if frame.locals is None else None)))
    if frame.locals is not None and node.decorator_list:
        calls.inner_function(frame, node)  # a decorator may hand it on; any other is run where it is mentioned


def _define_class(frame: Frame, node: ast.ClassDef) -> None:
    for part in (*node.bases, *node.decorator_list, *(keyword.value for keyword in node.keywords)):
        expressions.evaluate(frame, part)
    frame.set(node.name, one(Class(frame.module, node)))
    if frame.locals is not None:
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                calls.inner_function(frame, statement)


def _delete(frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            frame.set(target.id, UNBOUND)


def _match(frame: Frame, node: ast.Match) -> None:
    assert frame.path is not None
    expressions.evaluate(frame, node.subject)
    ends: list[Path | None] = [frame.path]
    for case in node.cases:
        inner = frame.at(forked(frame.path))
        for part in ast.walk(case.pattern):
            name = getattr(part, "name", None)
            if isinstance(name, str):
                inner.set(name, UNKNOWN)
        block(inner, case.body)
        ends.append(inner.path)
    frame.path = frame.merge(ends)


def _nothing(frame: Frame, node: ast.stmt) -> None:
    pass


_STATEMENTS: dict[type[ast.stmt], Callable[[Frame, ast.stmt], None]] = {
    ast.Expr: _expression,  # type: ignore[dict-item]
    ast.Assign: _assign,  # type: ignore[dict-item]
    ast.AnnAssign: _annotated,  # type: ignore[dict-item]
    ast.AugAssign: _augmented,  # type: ignore[dict-item]
    ast.If: _if,  # type: ignore[dict-item]
    ast.For: _loop,  # type: ignore[dict-item]
    ast.AsyncFor: _loop,  # type: ignore[dict-item]
    ast.While: _loop,  # type: ignore[dict-item]
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Return: _return,  # type: ignore[dict-item]
    ast.Raise: _raise,  # type: ignore[dict-item]
    ast.Assert: _assert,  # type: ignore[dict-item]
    ast.With: _with,  # type: ignore[dict-item]
    ast.AsyncWith: _with,  # type: ignore[dict-item]
    ast.Try: _try,  # type: ignore[dict-item]
    ast.Import: importing.plain,  # type: ignore[dict-item]
    ast.ImportFrom: importing.from_module,  # type: ignore[dict-item]
    ast.FunctionDef: _define,  # type: ignore[dict-item]
    ast.AsyncFunctionDef: _define,  # type: ignore[dict-item]
    ast.ClassDef: _define_class,  # type: ignore[dict-item]
    ast.Delete: _delete,  # type: ignore[dict-item]
    ast.Match: _match,  # type: ignore[dict-item]
    ast.Global: _nothing,
    ast.Nonlocal: _nothing,
    ast.Pass: _nothing,
}
