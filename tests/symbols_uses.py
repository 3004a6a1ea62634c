"""What fails on one platform in a module's functions, by the plain reading of symbols_plain."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

from symbols_plain import BROKEN, NONE, UNBOUND, Function, Plain, caught, local_names, word

from harness.offline.symbols.tree import functions

# back ends and kernels of other vendors: the facts of sglang.toml name them `foreign`, nobody constructs them on ROCm
_FOREIGN = re.compile(
    r"flash_?infer|flash_?attention|flash_?attn|trtllm|cutlass|cute|flash_?mla|xpu|amx|npu|hpc_?ops|tokenspeed|nvidia|dual_?chunk|minicpm|sm\d\d|ascend|_cpu",
    re.I,
)
_ABOUT_NAMES = {"NameError", "AttributeError", "TypeError", "Exception", "BaseException", ""}
_ABOUT_IMPORTS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", ""}


@dataclass(frozen=True, order=True)
class Fault:
    """A name that fails in a function, `<module>` at the top."""

    module: str
    function: str
    name: str


def faults(plain: Plain, module: str, syntax: ast.Module) -> set[Fault]:
    """The names that fail in the functions of the module that something may call, and at its top."""
    found: set[Fault] = set()
    if _FOREIGN.search(module):
        return found
    for node in plain.live(module, syntax.body, frozenset())[0]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            continue
        for part in plain.pruned(module, node, frozenset()):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and _unbound(plain, module, part.id):
                found.add(Fault(module, "<module>", part.id))
    if plain.dead(module):
        found.add(Fault(module, "<module>", ""))
    for qualname, function, owner in functions(syntax):
        names = set(_in_function(plain, module, function))
        if names and not _dead(plain, module, qualname, function, owner) and _called(plain, module, syntax, function):
            found |= {Fault(module, qualname, name) for name in names}
    return found


def _dead(plain: Plain, module: str, qualname: str, function: Function, owner: ast.ClassDef | None) -> bool:
    """Whether nothing calls the function: no other mention of its name, a method for another platform, a back end of another vendor."""
    name, scenario = function.name, plain.scenario
    if _FOREIGN.search(qualname.rpartition(".")[0]) or name in scenario.never:
        return True
    twin = scenario.twin.get(name)
    if twin and owner and any(getattr(node, "name", "") == twin for node in owner.body):
        return True
    if (name.startswith("__") and name.endswith("__")) or function.decorator_list:
        return False
    others = plain.tree.mentions(name)
    return len(others) <= 1 and len(re.findall(rf"\b{name}\b", plain.tree.text(module))) <= 1


def _called(plain: Plain, module: str, syntax: ast.Module, function: Function) -> bool:
    """Whether the platform runs a mention of the function, where only its own module has any."""
    if len(plain.tree.mentions(function.name)) > 1 or function.decorator_list or function.name.startswith("__"):
        return True
    bodies = [(syntax.body, frozenset()), *((other.body, local_names(other)) for _, other, _ in functions(syntax) if other is not function)]
    nodes = (part for body, local in bodies for node in plain.live(module, body, local)[0] for part in plain.pruned(module, node, local))
    return any(word(node) == function.name for node in nodes if isinstance(node, (ast.Name, ast.Attribute)))


def _unbound(plain: Plain, module: str, name: str) -> bool:
    return plain.held(module, name) == UNBOUND and not hasattr(builtins, name) and not name.startswith("__") and not plain.open(module)


def _in_function(plain: Plain, module: str, function: Function) -> Iterator[str]:
    local = local_names(function)
    imported: dict[str, str] = {}
    nodes = [part for node in plain.live(module, function.body, local)[0] for part in plain.pruned(module, node, local)]
    about_names, about_imports = _handled(function, _ABOUT_NAMES), _handled(function, _ABOUT_IMPORTS)
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno not in about_imports:
            bound = plain.imported(module, node)
            source = plain.tree.absolute(module, node.module, node.level) if isinstance(node, ast.ImportFrom) else node.names[0].name
            if bound is None or (source in plain.tree.paths and plain.dead(source)):
                yield source
            for name, value in bound or ():
                held = value if isinstance(value, str) else plain.followed(value) if not isinstance(value, bool) else ""
                if held == UNBOUND and not plain.open(source):
                    yield name
                imported[name] = str(held)
    used = {id(n.func) for n in nodes if isinstance(n, ast.Call)} | {id(n.value) for n in nodes if isinstance(n, (ast.Attribute, ast.Subscript))}
    tested = _tested(function)
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno not in about_names:
            if node.id not in local and _unbound(plain, module, node.id):
                yield node.id
            held = imported.get(node.id, "") if node.id in local else plain.held(module, node.id)
            if held in (NONE, BROKEN) and id(node) in used and node.id not in tested:
                yield node.id
        if isinstance(node, ast.Attribute) and _unregistered(plain, node) and node.lineno not in about_names:
            yield node.attr


def _unregistered(plain: Plain, node: ast.Attribute) -> bool:
    """`torch.ops.package.name` of an operator that the platform's build does not register."""
    base = node.value
    if not (isinstance(base, ast.Attribute) and isinstance(base.value, ast.Attribute) and ast.unparse(base.value) == "torch.ops"):
        return False
    return node.attr not in plain.scenario.registered.get(base.attr, {node.attr})


def _handled(function: Function, kinds: set[str]) -> set[int]:
    """The lines in a try whose handlers take one of the errors."""
    tries = [node for node in ast.walk(function) if isinstance(node, ast.Try) and caught(node) & kinds]
    return {line for node in tries for line in range(node.lineno, (node.body[-1].end_lineno or 0) + 1)}


def _tested(function: Function) -> set[str]:
    """The names that some test in the function asks about: taken as guarded from None there."""
    tests = [node.test for node in ast.walk(function) if isinstance(node, (ast.If, ast.IfExp, ast.Assert, ast.While))]
    tests += [value for node in ast.walk(function) if isinstance(node, ast.BoolOp) for value in node.values]
    names = [test.operand if isinstance(test, ast.UnaryOp) else test.left if isinstance(test, ast.Compare) else test for test in tests]
    return {word(name) for name in names}
