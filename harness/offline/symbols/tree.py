"""The sources of a package as a tree of modules: text, syntax and who mentions a word, each read once and only when asked for."""

from __future__ import annotations

import ast
import contextlib
import re
import symtable
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from harness.errors import UsageError

_DEFINED = re.compile(r"^(?:async )?(?:def|class) (\w+)", re.MULTILINE)
_REBOUND = re.compile(r"^[ \t]*(?:del )?(\w+)[ \t]*(?::[^=\n]*)?(?:=[^=]|$)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_RENAMED = re.compile(r"\bas (\w+)")


class Tree:
    """The modules of one package under `root`; `leave` are dotted prefixes that are neither scanned nor taken as callers."""

    def __init__(self, root: Path, package: str, leave: Iterable[str] = ()) -> None:
        self.root, self.package, self._leave = root, package, tuple(leave)
        self._trees: dict[str, ast.Module | None] = {}
        self._texts: dict[str, str] = {}
        self._defined: dict[str, frozenset[str]] = {}
        self._plain: dict[str, frozenset[str]] = {}
        self._set_by_name: dict[str, bool] = {}
        self._loaded: dict[str, frozenset[str]] = {}

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Dotted module name -> file."""
        found = {}
        for path in sorted((self.root / self.package).rglob("*.py")):
            parts = path.relative_to(self.root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        if not found:
            raise UsageError(f"no Python files in {self.root / self.package}: give the package's folder, a checkout or a wheel")
        return found

    @cached_property
    def folders(self) -> set[str]:
        """Dotted names that exist as a package, also those without an __init__.py."""
        return {name.rpartition(".")[0] for name in self.paths} | {name for name in self.paths if self.is_package(name)}

    def is_package(self, module: str) -> bool:
        return module in self.paths and self.paths[module].name == "__init__.py"

    def __contains__(self, module: str) -> bool:
        return module in self.paths or module in self.folders

    def left_out(self, module: str) -> bool:
        return module.startswith(self._leave) if self._leave else False

    def file(self, module: str) -> str:
        """The module's file, relative to the folder that holds the package."""
        return str(self.paths[module].relative_to(self.root))

    def within(self, prefixes: Iterable[str]) -> list[str]:
        """The modules that are or lie in one of the dotted names, without those left out."""
        roots = tuple(prefixes)
        return [m for m in self.paths if any(m == root or m.startswith(root + ".") for root in roots) and not self.left_out(m)]

    def text(self, module: str) -> str:
        if module not in self._texts:
            self._texts[module] = self.paths[module].read_text(encoding="utf-8", errors="replace")
        return self._texts[module]

    def syntax(self, module: str) -> ast.Module | None:
        """The module's syntax tree; None for a file that is not Python of this version."""
        if module not in self.paths:
            return None
        if module not in self._trees:
            try:
                self._trees[module] = ast.parse(self.text(module))
            except (SyntaxError, ValueError, RecursionError):
                self._trees[module] = None
        return self._trees[module]

    @contextlib.contextmanager
    def changed(self, module: str, text: str) -> Iterator[None]:
        """The tree with another text of one module, for as long as the block runs; its words' index stays that of the files."""
        kept = self.text(module), self._trees.get(module)
        self._forget(module)
        self._texts[module] = text
        try:
            yield
        finally:
            self._forget(module)
            self._texts[module] = kept[0]
            if kept[1] is not None:
                self._trees[module] = kept[1]

    def _forget(self, module: str) -> None:
        """Drops what was worked out from a module's text."""
        for held in (self._trees, self._defined, self._plain, self._loaded):
            held.pop(module, None)
        self._set_by_name.clear()

    def loaded(self, module: str) -> frozenset[str]:
        """The names that functions of the module take for globals."""
        if module not in self._loaded:
            found: set[str] = set()
            todo = [symtable.symtable(self.text(module), module, "exec")] if self.syntax(module) else []
            while todo:
                table = todo.pop()
                todo += table.get_children()
                found.update(table.get_globals() if isinstance(table, symtable.Function) else ())
            self._loaded[module] = frozenset(found)
        return self._loaded[module]

    def plainly_defines(self, module: str, name: str) -> bool:
        """Whether `name` is a function or class at the top of the module, bound nowhere else: told from the text alone."""
        if module not in self._defined:
            self._defined[module] = frozenset(_DEFINED.findall(self.text(module)))
        if name not in self._defined[module]:
            return False
        if module not in self._plain:
            text = self.text(module)
            self._plain[module] = self._defined[module] - frozenset(_REBOUND.findall(text)) - frozenset(_RENAMED.findall(text))
        return name in self._plain[module]

    def sets_by_name(self, name: str) -> bool:
        """Whether anything in the package passes an argument of that name or assigns an attribute of it."""
        if name not in self._set_by_name:
            pattern = re.compile(rf"\.{re.escape(name)}\s*=[^=]|[(,]\s*{re.escape(name)}\s*=[^=]")
            self._set_by_name[name] = any(pattern.search(self.text(module)) for module in self.mentions(name))
        return self._set_by_name[name]

    def mentions(self, word: str) -> list[str]:
        """The modules, left out ones apart, whose text has the word."""
        return self._index.get(word, [])

    @cached_property
    def _index(self) -> dict[str, list[str]]:
        index: dict[str, list[str]] = {}
        for module in self.paths:
            if not self.left_out(module):
                for word in set(_WORD.findall(self.text(module))):
                    index.setdefault(word, []).append(module)
        return index

    def absolute(self, module: str, target: str | None, level: int) -> str:
        """The dotted name that an import in `module` means."""
        if not level:
            return target or ""
        base = module.split(".") if self.is_package(module) else module.split(".")[:-1]
        base = base[: len(base) - (level - 1)]
        return ".".join([*base, *([target] if target else [])])


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    """Functions and methods at any depth of classes and plain statements, not those inside functions: (qualified name, node, class)."""
    yield from _functions(tree, outer, None)


def _functions(tree: ast.AST, outer: str, owner: ast.ClassDef | None) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield outer + node.name, node, owner
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{outer}{node.name}.", node)
        elif isinstance(node, (ast.stmt, ast.ExceptHandler)):
            yield from _functions(node, outer, owner)


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, those inside others too, without a look at any expression."""
    todo = list(body)
    while todo:
        node = todo.pop()
        yield node
        for part in ("body", "orelse", "finalbody"):
            todo += getattr(node, part, ())
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            todo += handler.body
