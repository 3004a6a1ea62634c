"""Puts a mutant in the place of the original in this process, and takes it out again.

The file on disk stays as it is: the changed text goes into Python's line cache, where Triton's interpreter reads the source of a
kernel, and functions that were made already get the changed code.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from harness.faults.mutants.sites import Mutant
from harness.providers import isolate

Place = tuple[str, str, int]  # a function's file, name and first line


def source_of(file: str) -> str:
    """A file's text, as it is on disk."""
    return Path(file).read_text()


def made(folders: tuple[str, ...]) -> dict[Place, list[FunctionType]]:
    """The functions of this process that were made from files under the folders, by place."""
    found: dict[Place, list[FunctionType]] = {}
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename.startswith(folders):
            code = function.__code__
            found.setdefault((code.co_filename, code.co_name, code.co_firstlineno), []).append(function)
    return found


@contextlib.contextmanager
def planted(mutant: Mutant, functions: Mapping[Place, Sequence[FunctionType]] | None = None) -> Iterator[None]:
    """While the block runs, calls of the function run the mutant. `functions` is what `made` gave, if it was asked already.

    Raises SyntaxError for a mutant that does not compile.
    """
    text = mutant.applied(source_of(mutant.file))
    code = _code(compile(text, mutant.file, "exec", dont_inherit=True), mutant)
    held = linecache.cache.get(mutant.file)
    # without a time of change an entry is not held against the file
    linecache.cache[mutant.file] = (len(text), None, text.splitlines(keepends=True), mutant.file)
    isolate.forget()
    place = (mutant.file, code.co_name, code.co_firstlineno)
    originals = [(function, function.__code__) for function in (functions or made((mutant.file,))).get(place, ())]
    _forget_rewritten(mutant.file, code)
    try:
        for function, _ in originals:
            function.__code__ = code
        yield
    finally:
        for function, old in originals:
            function.__code__ = old
        linecache.cache.pop(mutant.file, None)
        if held is not None:
            linecache.cache[mutant.file] = held
        isolate.forget()
        _forget_rewritten(mutant.file, code)


def _code(code: CodeType, mutant: Mutant) -> CodeType:
    """The code of the mutant's function in that of its module."""
    for part in mutant.function.split("."):
        code = next(inner for inner in code.co_consts if isinstance(inner, CodeType) and inner.co_name == part)
    return code


def _forget_rewritten(file: str, code: CodeType) -> None:
    """Lets Triton's interpreter read the kernel's source anew."""
    rewritten = _rewritten()
    for function in [f for f in rewritten if (f.__code__.co_filename, f.__code__.co_name) == (file, code.co_name)]:
        del rewritten[function]


def _rewritten() -> dict[Any, Any]:
    try:
        from triton.runtime.interpreter import InterpretedFunction
    except ModuleNotFoundError:
        return {}
    return InterpretedFunction.rewritten_fn
