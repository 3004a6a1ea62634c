"""Pure functions taken out of an installed module that does not import here, because it asks for what they never touch."""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import importlib.util
import linecache
from collections.abc import Iterator, Mapping
from types import CodeType, SimpleNamespace
from typing import Any

from harness.errors import Missing, Unsupported


class _Absent:
    """Stands for a name of the module that was not given; any use of it makes the cell unsupported."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _touched(self, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(f"code taken out of {self._module} reached {self._name}, which only the whole module has")

    __call__ = __getattr__ = __getitem__ = __iter__ = __bool__ = _touched


def isolate(module: str, *names: str, given: Mapping[str, Any]) -> SimpleNamespace:
    """The functions, classes and constants `names` of an installed module, executed without importing it.

    `given` holds the globals they need; any other name raises Unsupported when it is touched. Source lines stay those of
    the file, so that Triton finds the source of a kernel. Raises Missing where the module or a name does not exist.
    """
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError as error:
        raise Missing(f"unbound: {module} (no module {error.name})") from error
    if spec is None or spec.origin is None:
        raise Missing(f"unbound: {module} (no such module)")
    return _execute(module, spec.origin, names, tuple(given.items()))


@functools.lru_cache(maxsize=64)
def _execute(module: str, origin: str, names: tuple[str, ...], given: tuple[tuple[str, Any], ...]) -> SimpleNamespace:
    tree = ast.parse("".join(linecache.getlines(origin)), origin)  # where Triton reads a kernel's source too
    wanted = [node for node in tree.body if _bound(node) & set(names)]
    lost = set(names).difference(*map(_bound, wanted))
    if lost:
        raise Missing(f"unbound: {module}:{sorted(lost)[0]} (no such name in {origin})")
    code = compile(ast.Module(wanted, []), origin, "exec", flags=__future__.annotations.compiler_flag)
    space: dict[str, Any] = {"__name__": module, **dict(given)}
    for name in _names(code):
        if name not in names and not hasattr(builtins, name):
            space.setdefault(name, _Absent(module, name))
    exec(code, space)
    return SimpleNamespace(**{name: space[name] for name in names})


def forget() -> None:
    """Reads every source anew: what was taken out before stays as it is."""
    _execute.cache_clear()


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
