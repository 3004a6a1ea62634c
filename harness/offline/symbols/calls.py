"""Calls, comparisons and attributes: what the facts answer, what environment variables give, and small functions run from their source."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

from harness.offline.symbols import environment, execute, expressions, shapes
from harness.offline.symbols.failing import dereference
from harness.offline.symbols.frames import NO_FLAGS, Frame, Path, forked
from harness.offline.symbols.values import (
    FALSE,
    NONE,
    SOMETHING,
    UNBOUND,
    UNKNOWN,
    Broken,
    Class,
    Const,
    External,
    Flag,
    Function,
    Instance,
    Module,
    Partial,
    Same,
    State,
    Value,
    constant,
    either,
    joined,
    one,
    truths,
)

if TYPE_CHECKING:
    from harness.offline.symbols.world import World

DEEPEST, _LONGEST = 5, 30
_WRAPPERS = {"lru_cache", "cache", "wraps", "staticmethod", "classmethod", "no_grad", "inference_mode", "property", "cached_property"}
_STRING_METHODS = {"lower", "upper", "strip", "startswith", "endswith", "split", "replace", "removeprefix"}


def call(frame: Frame, node: ast.Call) -> State:
    """What a call gives; the called thing and the arguments are evaluated, and a callee that cannot be called is recorded."""
    target = expressions.evaluate(frame, node.func)
    if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass") and node.args:
        expressions.evaluate(frame, node.args[0])  # the class is asked about, not used
        return UNKNOWN
    args = [expressions.evaluate(frame, argument) for argument in node.args]
    keywords = {keyword.arg or "**": expressions.evaluate(frame, keyword.value) for keyword in node.keywords}
    dereference(frame, node.func, target, "call")
    word = expressions.last_word(node.func)
    if frame.record is not None and word:
        plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
        frame.record.passed.setdefault(word, []).append((args, keywords) if plain else ([], {"**": UNKNOWN}))
    scenario, config = frame.world.scenario, frame.world.config
    if word in scenario.answers:
        return constant(scenario.answers[word])
    text = expressions.dotted(node.func)
    for reader in (text, word):
        if reader in config.env_readers and args:
            return environment.variable(frame, args, keywords, config.env_readers[reader])
    if word in ("get", "is_set") and isinstance(node.func, ast.Attribute):
        state = environment.field(frame, node.func, target, word)
        if state is not None:
            return state
    return joined(*(_result(frame, value, node, args, keywords) for value in target)) if target else UNKNOWN


def _result(frame: Frame, value: Value, node: ast.Call, args: list[State], keywords: dict[str, State]) -> State:
    world = frame.world
    if isinstance(value, Function):
        return invoke(frame, value, args, keywords, _receiver(frame, node))
    if isinstance(value, Partial):
        return invoke(frame, value.function, args, {**dict(value.keywords), **keywords})
    if isinstance(value, Class):
        if value.node.name in world.config.words("lazy_import"):
            return _lazy(frame, args)
        member = any("Enum" in expressions.last_word(base) for base in value.node.bases)  # Backend("triton"): which member is not followed
        return one(Instance(value, () if member else tuple(args[:3])))
    if isinstance(value, Same):
        return args[0] if args else one(Same())
    if isinstance(value, External):
        return _external(frame, value.path, node, args, keywords)
    return UNKNOWN


def _receiver(frame: Frame, node: ast.Call) -> State | None:
    return (
        expressions.evaluate(Frame(frame.world, frame.module, frame.path, frame.locals, frame.owner), node.func.value)
        if isinstance(node.func, ast.Attribute)
        else None
    )


def _lazy(frame: Frame, args: list[State]) -> State:
    """An import that happens at the first call: broken where the package is absent."""
    named = [next(iter(arg)) for arg in args[:2] if len(arg) == 1]
    path = ".".join(str(value.value) for value in named if isinstance(value, Const))
    top = path.split(".")[0]
    if top == frame.world.tree.package and len(named) == 2:
        return frame.world.member(*path.rsplit(".", 1))
    return one(Broken(path, "ImportError")) if top in frame.world.scenario.absent else SOMETHING


def _external(frame: Frame, path: str, node: ast.Call, args: list[State], keywords: dict[str, State]) -> State:
    world, short = frame.world, path.rpartition(".")[2]
    if f"{path}()" in world.scenario.values:
        return either(world.scenario.values[f"{path}()"])
    if path in ("functools.lru_cache", "functools.cache"):
        return args[0] if args and any(isinstance(v, (Function, Partial)) for v in args[0]) else one(Same())
    if path == "functools.partial" and args:
        return joined(*(one(Partial(v, tuple(keywords.items()))) if isinstance(v, Function) else SOMETHING for v in args[0]))
    first = next(iter(args[0])) if args and len(args[0]) == 1 else None
    if path == "importlib.util.find_spec" and isinstance(first, Const):
        return SOMETHING if world.present(str(first.value)) else NONE
    if path == "importlib.import_module" and isinstance(first, Const):
        if not world.present(str(first.value)):
            frame.stop("ImportError")
            return UNKNOWN
        return one(Module(first.value)) if first.value in world.tree else world.external(str(first.value))
    if path in ("builtins.hasattr", "builtins.getattr") and len(args) > 1:
        return _getattr(frame, node, args, short == "hasattr")
    if path in ("builtins.bool", "builtins.callable") and args:
        known = frozenset().union(*(truths(value) for value in args[0]))
        return joined(*(constant(truth) for truth in known)) if known else UNKNOWN
    return UNKNOWN


def _getattr(frame: Frame, node: ast.Call, args: list[State], asks: bool) -> State:
    name = next(iter(args[1])) if len(args[1]) == 1 else None
    if not isinstance(name, Const) or not isinstance(name.value, str) or len(args[0]) != 1:
        return UNKNOWN
    (held,) = args[0]
    world = frame.world
    if isinstance(held, External) and held.path:
        state = world.external(f"{held.path}.{name.value}")
        lacks = any(isinstance(v, Broken) for v in state)
        if lacks and asks:
            return FALSE
        return UNKNOWN if asks and state == one(External(f"{held.path}.{name.value}")) else (args[2] if lacks and len(args) > 2 else state)
    if isinstance(held, Module) and held.name in world.tree.paths and not world.names(held.name).dynamic:
        state = world.member(held.name, name.value)
        missing = state == UNBOUND
        return constant(not missing) if asks else args[2] if missing and len(args) > 2 else state
    flag = world.config.flag_of(name.value)
    if flag and not asks:
        return one(Flag(flag))
    return UNKNOWN


def invoke(frame: Frame, function: Function, args: list[State], keywords: dict[str, State], receiver: State | None = None) -> State:
    """What a function of the package gives for these arguments, run from its source where it is short; no value: it never returns."""
    node, world = function.node, frame.world
    if len(world.running) >= DEEPEST or isinstance(node, ast.AsyncFunctionDef):
        return UNKNOWN
    body, whole = _answering(world, node)
    if not body:
        return UNKNOWN
    if not all(expressions.last_word(d.func if isinstance(d, ast.Call) else d) in _WRAPPERS for d in node.decorator_list):
        return UNKNOWN
    given = [receiver or UNKNOWN, *args] if function.owner is not None and not shapes.is_static(node) else args
    key = (node, tuple(given), tuple(sorted(keywords.items(), key=lambda item: item[0])))
    if key in world.results:
        return world.results[key]
    if key in world.running:
        return UNKNOWN
    world.running.add(key)
    try:
        inner = Frame(world, function.module, Path(bound(node, given, keywords), NO_FLAGS), shapes.shape(node).local, function.owner)
        execute.block(inner, body)
    finally:
        world.running.discard(key)
    states = [*inner.returned, *([NONE if whole else UNKNOWN] if inner.path is not None else [])]
    result = joined(*states) if states else frozenset()
    if world.modules.get(function.module) is None or world.modules[function.module].done:
        world.results[key] = result
    return result


def _answering(world: World, node: ast.FunctionDef) -> tuple[list[ast.stmt], bool]:
    """What of a function is run to know what it gives, and whether that is all: of one that does more than answer a question, the guards it begins with."""
    if node not in world.answering:
        lines = (node.end_lineno or 0) - node.body[0].lineno
        if shapes.yields(node):
            world.answering[node] = [], False
        elif lines > _LONGEST or shapes.loops(node):
            guards = list(itertools.takewhile(_is_guard, node.body))
            world.answering[node] = guards if any(isinstance(part, ast.If) for part in guards) else [], False
        else:
            world.answering[node] = node.body, True
    return world.answering[node]


def _is_guard(statement: ast.stmt) -> bool:
    leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], (ast.Return, ast.Raise)) and len(statement.body) <= 2
    return leaves or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def bound(node: ast.FunctionDef | ast.AsyncFunctionDef, args: list[State], keywords: dict[str, State]) -> dict[str, State]:
    """Parameters with what is passed; one that is not passed has its default where that is a plain constant."""
    arguments = node.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    env = dict.fromkeys(shapes.parameters(arguments), UNKNOWN)
    for name, default in [
        *zip(reversed(names), reversed(arguments.defaults), strict=False),
        *zip((a.arg for a in arguments.kwonlyargs), arguments.kw_defaults, strict=True),
    ]:
        if isinstance(default, ast.Constant) and "**" not in keywords:
            env[name] = constant(default.value)
    env.update(zip(names, args, strict=False))
    env.update({name: state for name, state in keywords.items() if name in env})
    return env


def inner_function(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Runs a function inside another where it is first mentioned: it sees the names around it as they are there."""
    if frame.record is None or frame.path is None or node in frame.record.ran:
        return
    frame.record.ran.add(node)
    around = forked(frame.path, dict.fromkeys(shapes.parameters(node.args), UNKNOWN))
    inner = Frame(frame.world, frame.module, around, shapes.shape(node).local | (frame.locals or frozenset()), frame.owner, frame.record, frame.catching)
    execute.block(inner, node.body)


def names_passed(frame: Frame, call: ast.Call) -> dict[str, str]:
    """Parameters of the called function by the caller's local name that each is given."""
    for value in expressions.evaluate(frame, call.func):
        if isinstance(value, Function):
            names = [a.arg for a in (*value.node.args.posonlyargs, *value.node.args.args)]
            names = names[1:] if value.owner is not None and not shapes.is_static(value.node) else names
            given = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
            return {parameter: node.id for parameter, node in given if isinstance(node, ast.Name) and node.id in (frame.locals or ())}
    return {}


def inlined(frame: Frame, test: ast.expr) -> tuple[Frame, ast.expr] | None:
    """A call of a function that only returns an expression: that expression, with what is passed."""
    if not isinstance(test, ast.Call):
        return None
    for value in expressions.evaluate(frame, test.func):
        if isinstance(value, Function):
            body = [s for s in value.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
                receiver = [_receiver(frame, test) or UNKNOWN] if value.owner is not None and not shapes.is_static(value.node) else []
                args = [*receiver, *(expressions.evaluate(frame, a) for a in test.args)]
                keywords = {k.arg or "**": expressions.evaluate(frame, k.value) for k in test.keywords}
                env = bound(value.node, args, keywords)
                return Frame(frame.world, value.module, Path(env, NO_FLAGS), shapes.shape(value.node).local, value.owner), body[0].value
    return None
