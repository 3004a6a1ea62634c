"""A second, plainer reading of a package's sources for the mutants of the symbols scan: which code one platform runs, told by the words of its tests.

Names at the top of a module, three-valued platform tests, no callers, no values but constants; the reviewed facts shared with the scan, and no code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.offline.symbols.facts import Scenario
from harness.offline.symbols.tree import Tree, statements

BOUND, NONE, BROKEN, UNBOUND = "bound", "None", "broken", "unbound"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Ref:
    """A name of another module of the package."""

    module: str
    name: str


Held = bool | str | Ref
# asks whether a choice fell on a library or device that only the other vendor has
_OTHER_VENDOR = re.compile(r"(?:is|use)_(?:cute|cutlass|trtllm|flash_?mla|sm\d)\w*")
_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", ""}


def word(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_none(test: ast.Compare) -> bool:
    """Whether the test asks if something is None, or is not."""
    other = test.comparators[0]
    return isinstance(test.ops[0], (ast.Is, ast.IsNot)) and isinstance(other, ast.Constant) and other.value is None


def caught(node: ast.Try) -> set[str]:
    """The names of the errors that the handlers of a try take; "" for all."""
    kinds: set[str] = set()
    for handler in node.handlers:
        listed = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        kinds |= {word(kind) for kind in listed} if not isinstance(handler.body[-1], ast.Raise) else set()
    return kinds


@dataclass
class Plain:
    """One scenario's reading of a tree."""

    tree: Tree
    scenario: Scenario
    tops: dict[str, dict[str, Held]] = field(default_factory=dict)
    fails: set[str] = field(default_factory=set)
    opens: dict[str, bool] = field(default_factory=dict)

    def top(self, module: str) -> dict[str, Held]:
        """What the names at the top of a module hold: a truth value, one of the four words, or a name of another module."""
        if module not in self.tops:
            self.tops[module] = {}
            syntax = self.tree.syntax(module)
            if syntax is not None and not self._run(module, syntax.body, self.tops[module]):
                self.fails.add(module)
            self.tops[module].update(_changed(syntax.body if syntax and "global " in self.tree.text(module) else []))
        return self.tops[module]

    def dead(self, module: str) -> bool:
        """Whether importing the module fails: it imports an absent package at its top, with no test and no handler around it."""
        self.top(module)
        return module in self.fails

    def held(self, module: str, name: str, seen: tuple[Ref, ...] = ()) -> Held:
        """What a name at the top of a module holds, names of other modules followed."""
        value = self.top(module).get(name, UNBOUND)
        while isinstance(value, Ref) and value not in seen:
            seen = (*seen, value)
            outside = value.module not in self.tree.paths or (f"{value.module}.{value.name}" in self.tree and value.name not in self.top(value.module))
            value = BOUND if outside or self.open(value.module) else self.top(value.module).get(value.name, UNBOUND)
        return BOUND if isinstance(value, Ref) else value

    def followed(self, ref: Ref) -> Held:
        """What a name of another module holds."""
        outside = ref.module not in self.tree.paths or (f"{ref.module}.{ref.name}" in self.tree and ref.name not in self.top(ref.module))
        return BOUND if outside else self.held(ref.module, ref.name)

    def open(self, module: str) -> bool:
        """Whether the module may have names that no statement binds: `import *`, `__getattr__`, `globals()`."""
        if module not in self.opens:
            text = self.tree.text(module) if module in self.tree.paths else ""
            self.opens[module] = "import *" in text or "def __getattr__" in text or "globals()" in text
        return self.opens[module]

    def imports(self, module: str, source: str, name: str) -> bool:
        """Whether some import of the module is of that name of the source."""
        syntax = (
            self.tree.syntax(module)
            if re.search(rf"import[^=]*\b{name}\b", self.tree.text(module)) and source.rpartition(".")[2] in self.tree.text(module)
            else None
        )
        return any(
            isinstance(node, ast.ImportFrom) and self.tree.absolute(module, node.module, node.level) == source and any(a.name == name for a in node.names)
            for node in (ast.walk(syntax) if syntax else ())
        )

    def with_module(self, module: str, syntax: ast.Module) -> Plain:
        """The reading with another syntax of one module."""
        other = Plain(self.tree, self.scenario, {name: held for name, held in self.tops.items() if name != module}, self.fails - {module})
        other.tops[module] = {}
        if not other._run(module, syntax.body, other.tops[module]):
            other.fails.add(module)
        other.tops[module].update(_changed(syntax.body))
        return other

    def conditional(self, module: str, body: list[ast.stmt], inside: bool) -> Iterator[ast.Import | ast.ImportFrom | ast.Assign]:
        """The imports and assignments that the platform runs under a platform test or in a try, `inside`: in one already."""
        self.top(module)
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign)) and inside:
                if isinstance(node, ast.Assign) or self.imported(module, node) is not None:
                    yield node
                else:
                    return
            elif isinstance(node, ast.If):
                truth = self.holds(module, node.test)
                for part, wanted in ((node.body, True), (node.orelse, False)):
                    if truth in (None, wanted):
                        yield from self.conditional(module, part, inside or truth is not None)
            elif isinstance(node, ast.Try):
                yield from self.conditional(module, node.body, True)
                if self.tries_absent(module, node):
                    for handler in node.handlers:
                        yield from self.conditional(module, handler.body, True)
                else:
                    yield from self.conditional(module, node.orelse, True)

    def tries_absent(self, module: str, node: ast.Try) -> bool:
        """Whether the body imports an absent package, and a handler takes that."""
        imports = [part for part in node.body if isinstance(part, (ast.Import, ast.ImportFrom))]
        return bool(caught(node) & _IMPORT_ERRORS) and any(self.imported(module, part) is None for part in imports)

    def imported(self, module: str, node: ast.Import | ast.ImportFrom) -> list[tuple[str, Held]] | None:
        """The names that an import statement binds with what they hold; None where it fails."""
        source = node.module if isinstance(node, ast.ImportFrom) else None
        if isinstance(node, ast.ImportFrom):
            source = self.tree.absolute(module, node.module, node.level)
        tops = [(source or alias.name).split(".")[0] for alias in node.names]
        if any(top in self.scenario.absent for top in tops):
            return None
        found: list[tuple[str, Held]] = []
        for alias, top in zip(node.names, tops, strict=True):
            if source is None or top != self.tree.package:
                registered = self.scenario.registered.get(source or "")
                found.append((alias.asname or alias.name.split(".")[0], BROKEN if registered is not None and alias.name not in registered else BOUND))
            else:
                found.append((alias.asname or alias.name, Ref(source, alias.name)))
        return found

    def _run(self, module: str, body: list[ast.stmt], env: dict[str, Held]) -> bool:
        """Runs statements at the top of a module; False where one of them fails."""
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                bound = self.imported(module, node)
                if bound is None:
                    return False
                env.update(bound)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                env[node.name] = BOUND
            elif isinstance(node, ast.If):
                truth = self.holds(module, node.test)
                for part, wanted in ((node.body, True), (node.orelse, False)):
                    if truth in (None, wanted) and not self._run(module, part, env) and truth is not None:
                        return False
            elif isinstance(node, ast.Try):
                good = self._run(module, node.body, env)
                if not good and not caught(node) & _IMPORT_ERRORS:
                    return False
                rest = node.orelse if good else next(h.body for h in node.handlers if not isinstance(h.body[-1], ast.Raise))
                if not self._run(module, [*rest, *node.finalbody], env):
                    return False
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    env.update(self._assigned(module, target, node.value))
            else:
                env.update({n.id: BOUND for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
        return True

    def _assigned(self, module: str, target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Held]]:
        if isinstance(target, ast.Name):
            truth = self.holds(module, value)
            lazy = isinstance(value, ast.Call) and word(value.func) == "LazyImport" and isinstance(value.args[0], ast.Constant)
            if isinstance(value, ast.Constant) and value.value is None:
                yield target.id, NONE
            elif lazy and str(value.args[0].value).split(".")[0] in self.scenario.absent:  # type: ignore[attr-defined]
                yield target.id, BROKEN
            elif isinstance(value, ast.Name) and value.id in self.tops[module]:
                yield target.id, self.tops[module][value.id]
            else:
                yield target.id, BOUND if truth is None else truth
        else:
            yield from ((n.id, BOUND) for n in ast.walk(target) if isinstance(n, ast.Name))

    def holds(self, module: str, test: ast.expr, local: frozenset[str] = frozenset()) -> bool | None:
        """Whether a test holds; None where the platform does not say."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            truth = self.holds(module, test.operand, local)
            return None if truth is None else not truth
        if isinstance(test, ast.BoolOp):
            stops = isinstance(test.op, ast.Or)
            truths = [self.holds(module, part, local) for part in test.values]
            return stops if stops in truths else None if None in truths else not stops
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)) and isinstance(test.left, ast.Name):
            held = self.held(module, test.left.id) if test.left.id not in local else BOUND
            none = _is_none(test)
            return isinstance(test.ops[0], ast.Is) if none and held == NONE else None
        if isinstance(test, ast.Compare) and _is_none(test) and ast.unparse(test.left) in self.scenario.values:
            return (self.scenario.values[ast.unparse(test.left)] is None) is isinstance(test.ops[0], ast.Is)
        return self._atom(module, test, local)

    def _atom(self, module: str, test: ast.expr, local: frozenset[str]) -> bool | None:
        answers = self.scenario.answers
        if self.scenario.platform == "hip" and _OTHER_VENDOR.fullmatch(word(test.func if isinstance(test, ast.Call) else test)):
            return False
        if isinstance(test, ast.Constant) and isinstance(test.value, bool):
            return test.value
        if isinstance(test, ast.Call):
            first = test.args[0].value if test.args and isinstance(test.args[0], ast.Constant) else None
            if word(test.func) == "get_bool_env_var" and first == "SGLANG_USE_AITER":
                return "SGLANG_USE_AITER" in self.scenario.env
            return answers.get(word(test.func))
        if isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name) and test.value.id == "self":
            return answers.get(test.attr.lstrip("_"))
        if isinstance(test, ast.Name) and test.id not in local:
            held = self.held(module, test.id)
            if test.id == "TYPE_CHECKING" or held == NONE:
                return False
            return held if isinstance(held, bool) else answers.get(test.id.lstrip("_"))
        return None

    def live(self, module: str, body: list[ast.stmt], local: frozenset[str]) -> tuple[list[ast.AST], bool]:
        """The statements and expressions that are run, parts of a decided test apart; and whether the end of the block is reached."""
        found: list[ast.AST] = []
        for node in body:
            if isinstance(node, ast.If):
                truth = self.holds(module, node.test, local)
                found += [] if truth is not None else [node.test]
                ends = []
                for part, wanted in ((node.body, True), (node.orelse, False)):
                    if truth in (None, wanted):
                        inner, reached = self.live(module, part, local)
                        found += inner
                        ends.append(reached)
                if not any(ends):
                    return found, False
                continue
            for part in ("body", "orelse", "finalbody"):
                inner = getattr(node, part, None)
                if isinstance(inner, list) and not isinstance(node, ast.ClassDef) and (local or not isinstance(node, Function)):
                    found += self.live(module, inner, local)[0]
            for handler in getattr(node, "handlers", ()):
                found += self.live(module, handler.body, local)[0]
            found += [node] if not hasattr(node, "body") else [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.expr, ast.withitem))]
            if isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                return found, False
        return found, True

    def pruned(self, module: str, node: ast.AST, local: frozenset[str]) -> Iterator[ast.AST]:
        """The node and all in it that is evaluated: no arm of a conditional expression, `and` or `or` that the platform does not take."""
        parts: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.IfExp):
            truth = self.holds(module, node.test, local)
            parts = [node.test, node.body, node.orelse] if truth is None else [node.body if truth else node.orelse]
        elif isinstance(node, ast.BoolOp):
            parts = []
            for value in node.values:
                truth = self.holds(module, value, local)
                parts += [value] if truth is None else []
                if truth is isinstance(node.op, ast.Or):
                    break
        yield node
        for part in parts:
            yield from self.pruned(module, part, local)


def _changed(body: list[ast.stmt]) -> dict[str, Held]:
    """The globals that functions of a module change."""
    return {name: BOUND for node in statements(body) if isinstance(node, ast.Global) for name in node.names}


def local_names(node: Function) -> frozenset[str]:
    """The names that a function binds, those of the functions in it too."""
    nodes = list(ast.walk(node))
    found = {a.arg for a in nodes if isinstance(a, ast.arg)} | {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    found |= {(a.asname or a.name).split(".")[0] for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
    found |= {n.name for n in nodes[1:] if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    return frozenset(found - {name for part in nodes if isinstance(part, ast.Global) for name in part.names})
