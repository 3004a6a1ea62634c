"""Seeded mutants of a package's real sources for the tests of the symbols scan: a binding that ROCm makes taken away, or a guard that keeps ROCm out.

Drawn from syntax alone: nothing here asks the scan. What a mutant breaks is told by `Plain`; one that breaks no name by it is excluded, with the reason.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from symbols_plain import NONE, UNBOUND, Plain, local_names, word
from symbols_uses import Fault, faults

from harness.offline.symbols.facts import Scenario
from harness.offline.symbols.tree import Tree, functions, statements

KINDS = ("binding lost", "binding None", "platform test", "None test", "handler lost")
Place = tuple[str, int, int, int]
# what a module has in its text where a rule could name a place in it
_WORDS = re.compile(r"is_(?:cuda|hip|rocm)|IS_HIP|aiter|except .*(?:ImportError|ModuleNotFound|Exception)")
_PLATFORM = re.compile(r"_?(?:is_(?:cuda|hip|rocm)|IS_HIP|IS_CUDA)")


@dataclass(frozen=True)
class Mutant:
    """A place to change: where its node is in the module, and what is put there.

    name        the binding that goes, or the text of the test
    scenario    the one that runs the code
    """

    kind: str
    module: str
    line: int
    place: Place
    name: str
    scenario: str

    def syntax(self, tree: Tree) -> ast.Module:
        """The module's syntax with the change made."""
        changed = copy.deepcopy(tree.syntax(self.module))
        assert changed is not None
        _put(changed, next(node for node in ast.walk(changed) if _place(node) == self.place), self)
        return ast.fix_missing_locations(changed)


def _place(node: ast.AST) -> Place:
    return type(node).__name__, getattr(node, "lineno", 0), getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)


def _put(syntax: ast.Module, node: ast.AST, mutant: Mutant) -> None:
    if mutant.kind in ("platform test", "None test"):
        _replace(syntax, node, [ast.Constant(_opened(node))])
    elif mutant.kind == "handler lost":
        assert isinstance(node, ast.Try)
        _replace(syntax, node, [*node.body, *node.orelse, *node.finalbody])
    else:
        assert isinstance(node, ast.stmt)
        _replace(syntax, node, _not_on_rocm(node, mutant))


def _not_on_rocm(node: ast.stmt, mutant: Mutant) -> list[ast.AST]:
    """The statement with one of its bindings made everywhere but on ROCm, which has nothing or None in its place."""
    rest: list[ast.AST] = []
    lone = copy.deepcopy(node)
    if isinstance(node, (ast.Import, ast.ImportFrom)) and isinstance(lone, (ast.Import, ast.ImportFrom)):
        lone.names = [alias for alias in node.names if _called(alias) == mutant.name]
        node.names = [alias for alias in node.names if _called(alias) != mutant.name]
        rest = [node] if node.names else []
    here: ast.stmt = ast.Pass() if mutant.kind == "binding lost" else ast.Assign([ast.Name(mutant.name, ast.Store())], ast.Constant(None))
    asks = ast.ImportFrom("sglang.srt.utils", [ast.alias("is_hip")], 0)
    return [*rest, asks, ast.If(ast.Call(ast.Name("is_hip", ast.Load()), [], []), [here], [lone])]


def _replace(syntax: ast.Module, node: ast.AST, new: list[ast.AST]) -> None:
    for parent in ast.walk(syntax):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, new[0])
                return
            if isinstance(value, list) and any(part is node for part in value):
                at = next(number for number, part in enumerate(value) if part is node)
                value[at : at + 1] = [ast.copy_location(part, node) for part in new]
                return


def _called(alias: ast.alias) -> str:
    return (alias.asname or alias.name).split(".")[0]


def _opened(test: ast.AST) -> bool:
    """What the test says where nothing keeps ROCm out: CUDA's answer, or that a name is there."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.IsNot)
    return "cuda" in ast.unparse(test).lower() or _PLATFORM.search(ast.unparse(test)) is None


def candidates(tree: Tree, modules: list[str], plains: dict[str, Plain]) -> list[Mutant]:
    """Every place of the modules that a rule names, in order."""
    found: list[Mutant] = []
    for module in modules:
        syntax = tree.syntax(module) if _WORDS.search(tree.text(module)) else None
        if syntax is not None and not plains["hip"].dead(module):
            found += _bindings(module, syntax, plains)
            found += _guards(module, syntax, plains["hip"])
    return found


def _bindings(module: str, syntax: ast.Module, plains: dict[str, Plain]) -> Iterator[Mutant]:
    """Imported names, and assignments, that ROCm makes at the top of the module under a platform test or in a try."""
    done: set[tuple[int, str]] = set()
    for scenario, plain in plains.items():
        for node in plain.conditional(module, syntax.body, inside=False):
            names = [_called(alias) for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else [ast.unparse(_target(node))]
            for name in names:
                if (id(node), name) not in done and name.isidentifier():
                    done.add((id(node), name))
                    for kind in ("binding lost", "binding None"):
                        yield Mutant(kind, module, node.lineno, _place(node), name, scenario)


def _target(node: ast.stmt) -> ast.expr:
    return node.targets[0] if isinstance(node, ast.Assign) else node.target  # type: ignore[attr-defined]


def _guards(module: str, syntax: ast.Module, plain: Plain) -> Iterator[Mutant]:
    """Platform tests in functions, tests of a global for None, and handlers of an import that fails on ROCm, anywhere."""
    none = {name for name in plain.top(module) if plain.held(module, name) == NONE}
    for qualname, function, _ in functions(syntax):
        kinds = [(part, kind) for node in ast.walk(function) for part in _tests(node) if (kind := _kind(part, none))]
        local = local_names(function) if kinds else frozenset()
        for part, kind in kinds:
            if _asked(part) not in local and plain.holds(module, part, local) is not None:
                yield Mutant(kind, module, part.lineno, _place(part), f"{ast.unparse(part)} in {qualname}", "hip")
    for node in statements(syntax.body):
        if isinstance(node, ast.Try) and plain.tries_absent(module, node):
            yield Mutant("handler lost", module, node.lineno, _place(node), ast.unparse(node.body[0])[:60], "hip")


def _kind(part: ast.expr, none: set[str]) -> str:
    if isinstance(part, ast.Compare):
        other = part.comparators[0]
        asks = isinstance(part.ops[0], (ast.Is, ast.IsNot)) and isinstance(other, ast.Constant) and other.value is None
        return "None test" if asks and _asked(part) in none else ""
    if _asked(part) in none:
        return "None test"
    return "platform test" if _PLATFORM.fullmatch(word(part.func if isinstance(part, ast.Call) else part)) else ""


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    """The parts of a test that are no `and`, `or` or `not`."""
    todo = [node.test] if isinstance(node, (ast.If, ast.IfExp, ast.Assert)) else []
    while todo:
        part = todo.pop()
        if isinstance(part, ast.BoolOp):
            todo += part.values
        elif isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
            todo.append(part.operand)
        else:
            yield part


def _asked(test: ast.expr) -> str:
    name = test.left if isinstance(test, ast.Compare) else test
    return name.id if isinstance(name, ast.Name) else ""


@dataclass(frozen=True)
class Drawn:
    """A mutant, its text, what it breaks by the plain reading, and in which modules; `excluded`: why it breaks nothing."""

    mutant: Mutant
    text: str
    broken: frozenset[Fault]
    excluded: str

    @property
    def modules(self) -> list[str]:
        return sorted({self.mutant.module, *(fault.module for fault in self.broken)})


def drawn(tree: Tree, modules: list[str], scenarios: dict[str, Scenario], seed: int, number: int) -> list[Drawn]:
    """Mutants in a random order: of each kind until so many of them break something, four times as many at most."""
    plains = {name: Plain(tree, scenario) for name, scenario in scenarios.items()}
    draw = random.Random(seed)
    found = candidates(tree, modules, plains)
    chosen: list[Drawn] = []
    for kind in KINDS:
        of_kind = [mutant for mutant in found if mutant.kind == kind]
        draw.shuffle(of_kind)
        good = 0
        for mutant in of_kind[: 4 * number]:
            if good == number:
                break
            chosen.append(judged(tree, mutant, plains[mutant.scenario]))
            good += not chosen[-1].excluded
    return chosen


def judged(tree: Tree, mutant: Mutant, plain: Plain) -> Drawn:
    """The mutant with what it breaks: what fails by the plain reading now, in its module and in those that import the name, and did not before."""
    syntax = mutant.syntax(tree)
    changed = plain.with_module(mutant.module, syntax)
    users = [mutant.module]
    if mutant.kind.startswith("binding"):
        users += [m for m in tree.mentions(mutant.name) if m != mutant.module and plain.imports(m, mutant.module, mutant.name) and not plain.dead(m)]
    broken: set[Fault] = set()
    for module in users:
        before = tree.syntax(module)
        assert before is not None
        broken |= faults(changed, module, syntax if module == mutant.module else before) - faults(plain, module, before)
    excluded = ""
    if not broken:
        excluded = "what it opens uses no name that ROCm lacks"
        if mutant.kind.startswith("binding"):
            same = changed.held(mutant.module, mutant.name) not in (NONE, UNBOUND)
            excluded = "another statement binds the name" if same else "no use of the name that ROCm runs, or each behind a test or handler"
    return Drawn(mutant, ast.unparse(syntax), frozenset(broken), excluded)
