"""Breaks each call that the adapters make of AITER and runs the adapters on the stand-in: every break must be caught.

`python tests/standin/mutants.py [MODULE...]` (in an environment whose path holds a built stand-in) prints what survived, as JSON. A break
changes one thing: a keyword's name, the order of two neighbouring arguments, one tensor's layout, one keyword left out, one call that
makes metadata left out.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from aiter.jit.utils.chip_info import get_gfx

from harness.contracts import op
from harness.machine import execute
from harness.machine.execute import Bench
from harness.machine.platforms import open_device
from harness.providers import registry

# cases on which every argument matters, by adapter module; a provider takes those that it accepts
CASES: dict[str, dict[str, list[str]]] = json.loads((Path(__file__).parent / "cases.json").read_text())
# of the library, not a fault of the adapter: one split of fp8 queries leaves the log-sum-exp unwritten
KNOWN = ("mla_decode", "aiter_split_fp8_lse")
_MADE = ("attend", "reduce")  # attributes that hold a function of AITER's


def is_site(node: ast.AST) -> bool:
    """Whether a call reaches AITER: `self.attend(..)`, `call(..)`, `resolve(..)(..)`, or an operator of torch.ops.aiter."""
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    if isinstance(func, ast.Name):
        return func.id == "call"
    if isinstance(func, ast.Call):
        return getattr(func.func, "id", "") == "resolve"
    if isinstance(func, ast.Attribute):
        owner = func.value
        registered = isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "registered"
        return func.attr in _MADE or registered or getattr(owner, "id", "") == "ops"
    return False


def breaks(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Every mutant of a module: what was broken, and the broken tree."""
    sites = [node for node in ast.walk(tree) if is_site(node)]
    for number, site in enumerate(sites):
        assert isinstance(site, ast.Call)
        for kind, index in _sites_breaks(site):
            broken = copy.deepcopy(tree)
            call = [node for node in ast.walk(broken) if is_site(node)][number]
            assert isinstance(call, ast.Call)
            said = _apply(call, kind, index)
            if said:
                yield f"line {site.lineno}: {said}", broken
    yield from _without_calls(tree)
    yield from _plans(tree)


def _sites_breaks(site: ast.Call) -> Iterator[tuple[str, int]]:
    start = 1 if isinstance(site.func, ast.Name) else 0  # the function that `call` is given
    for index in range(start, len(site.args) - 1):
        yield "order", index
    for index in range(start, len(site.args)):
        yield "layout", index
    for index in range(len(site.keywords)):
        yield "name", index
        yield "left out", index
        yield "keyword layout", index
        if index + 1 < len(site.keywords):
            yield "keyword order", index


def _apply(call: ast.Call, kind: str, index: int) -> str:
    """Breaks the call in place; an empty string where that changes nothing."""
    keyword = call.keywords[index] if "order" not in kind and kind != "layout" else None
    if kind == "order":
        first, second = call.args[index : index + 2]
        if isinstance(first, ast.Starred) or isinstance(second, ast.Starred) or ast.dump(first) == ast.dump(second):
            return ""
        call.args[index : index + 2] = [second, first]
        return f"{ast.unparse(first)} and {ast.unparse(second)} swapped"
    if kind == "layout":
        argument = call.args[index]
        if isinstance(argument, (ast.Starred, ast.Constant)):
            return ""
        call.args[index] = _bent(argument)
        return f"{ast.unparse(argument)} bent"
    if kind == "keyword order":
        first, second = call.keywords[index : index + 2]
        if None in (first.arg, second.arg) or "optional" in (first.arg, second.arg) or ast.dump(first.value) == ast.dump(second.value):
            return ""
        first.value, second.value = second.value, first.value
        return f"{first.arg} and {second.arg} swapped"
    assert keyword is not None
    if keyword.arg is None:
        return ""
    if keyword.arg == "optional":
        assert isinstance(keyword.value, ast.Dict)
        if kind == "left out":
            keyword.value = ast.Dict([], [])
            return "optional arguments left out"
        return ""
    if kind == "name":
        keyword.arg += "_"
        return f"{keyword.arg} misnamed"
    if kind == "left out":
        del call.keywords[index]
        return f"{keyword.arg} left out"
    if isinstance(keyword.value, ast.Constant):
        return ""
    keyword.value = _bent(keyword.value)
    return f"{keyword.arg} bent"


def _bent(argument: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("_bend", ast.Load()), [argument], [])


def bend(value: Any) -> Any:
    """A tensor in another layout: two axes exchanged, or widened to int64 where it has one; other values as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype == torch.uint8:
        raise Unbent
    wide = [axis for axis, size in enumerate(value.shape) if size > 1]
    if len(wide) >= 2:
        return value.transpose(*wide[:2])
    if value.dim() >= 2:
        raise Unbent
    return value.long() if value.dtype == torch.int32 else torch.cat((value, value))


class Unbent(Exception):
    """The argument is no tensor: this break does not apply."""


def _without_calls(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Each statement left out that is nothing but a call of AITER."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and is_site(node.value)]
    for number, statement in enumerate(statements):
        broken = copy.deepcopy(tree)
        found = [node for node in ast.walk(broken) if isinstance(node, ast.Expr) and is_site(node.value)][number]
        found.value = ast.Constant(None)
        yield f"line {statement.lineno}: the call left out", broken


def _plans(tree: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    """Each entry of a returned dict of arguments (the plan, the scales) left out, and each misnamed."""
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict) and len(node.value.keys) > 2]
    for number, statement in enumerate(returns):
        assert isinstance(statement.value, ast.Dict)
        for index, key in enumerate(statement.value.keys):
            broken = copy.deepcopy(tree)
            chosen = [n for n in ast.walk(broken) if isinstance(n, ast.Return) and isinstance(n.value, ast.Dict) and len(n.value.keys) > 2][number].value
            assert isinstance(chosen, ast.Dict)
            del chosen.keys[index], chosen.values[index]
            assert isinstance(key, ast.Constant)
            yield f"line {statement.lineno}: {key.value} not in the plan", broken


class Shop:
    """Runs a module's adapters, broken or whole, on its cases."""

    def __init__(self, name: str) -> None:
        self.module = importlib.import_module(f"harness.providers.aiter.{name}")
        self.tree = ast.parse(Path(str(self.module.__file__)).read_text())
        torch.set_num_threads(1)
        execute._KEEP = 64  # every case's golden result is kept
        self.bench = Bench(dataclasses.replace(open_device("cpu"), facts={"arch": get_gfx()}))
        registry.providers()
        self.cells: list[tuple[str, str, Any]] = []
        for op_name, ids in CASES[name].items():
            for provider in registry.providers_of(op_name):
                if provider.source.startswith(self.module.__name__ + ":"):
                    self.cells += [(op_name, provider.name, op(op_name).axes.parse(case_id)) for case_id in ids]

    def status(self, op_name: str, provider: str, case: Any) -> str:
        """How a cell ends."""
        chosen = dataclasses.replace(registry.providers()[op_name, provider], platforms=frozenset({"cpu"}))
        result, _ = self.bench.run(case, chosen, "cpu")
        return f"{result.status} {result.reason} {result.detail}"

    def whole(self) -> None:
        """Keeps the cells that pass unbroken."""
        ended = [(cell, self.status(*cell)) for cell in self.cells]
        self.cells = [cell for cell, said in ended if said.startswith("pass")]
        ended = [(cell, said) for cell, said in ended if said.startswith("pass") or cell[:2] != KNOWN]
        bad = [(cell, said) for cell, said in ended if not said.startswith(("pass", "unsupported", "refused gate", "refused Unsupported"))]
        if bad:
            raise SystemExit(f"the unbroken adapters fail: {bad[:3]}")
        covered = {(op_name, provider) for op_name, provider, _ in self.cells}
        missing = {(op_name, provider) for op_name, provider, _ in (cell for cell, _ in ended)} - covered
        if missing:
            raise SystemExit(f"no case passes on {sorted(missing)}")

    def survives(self, broken: ast.Module) -> bool | None:
        """Whether every cell still passes; None where the break does not apply."""
        space = {"__name__": self.module.__name__, "__file__": self.module.__file__, "_bend": bend}
        kept, unbent = dict(registry._providers), False
        try:
            exec(compile(ast.fix_missing_locations(broken), "<mutant>", "exec"), space)
            for cell in list(self.cells):
                said = self.status(*cell)
                if "Unbent" in said:
                    unbent = True
                elif not said.startswith("pass"):
                    self.cells.remove(cell)  # the next break, near this one, is likely caught by the same cell
                    self.cells.insert(0, cell)
                    return False
        finally:
            registry._providers.clear()
            registry._providers.update(kept)
        return None if unbent else True


def main(name: str) -> dict[str, Any]:
    """The survivors of a module and how many breaks there were."""
    shop = Shop(name)
    shop.whole()
    ended = [(said, shop.survives(broken)) for said, broken in breaks(shop.tree)]
    caught = sum(survived is False for _, survived in ended)
    return {"caught": caught, "survivors": [said for said, survived in ended if survived], "cells": len(shop.cells)}


if __name__ == "__main__":
    print(json.dumps({name: main(name) for name in sys.argv[1:] or CASES}, indent=1))
