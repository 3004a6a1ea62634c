"""Code run out of a source tree without importing it: names are linked on first use, what nobody described raises, and a cut function decides as the whole."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.offline.routes.linking import Linker, Undescribed
from harness.offline.routes.objects import Instance, argument_defaults
from harness.offline.routes.parsing import Tree
from harness.offline.routes.slicing import cut
from harness.offline.routes.world import Described, Opaque, world
from harness.offline.targets import load_targets

CASES = Path(__file__).resolve().parent.parent / "cases"


def tree(folder: Path, **modules: str) -> Tree:
    """A source tree of package `sglang`; module names are given with __ for a dot."""
    for name, text in {"": "", **modules}.items():
        path = folder.joinpath("sglang", *name.split("__")).with_suffix(".py") if name else folder / "sglang" / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))
    return Tree(folder)


def linker(folder: Path, known: dict[str, Any] | None = None, answers: dict[str, Any] | None = None, **modules: str) -> Linker:
    return Linker(tree(folder, **modules), known or {}, answers or {})


def test_names_are_followed_through_imports(tmp_path: Path) -> None:
    code = linker(
        tmp_path,
        a="from sglang.b import one as uno\nfrom .c import *\nfrom sglang import b\ndef f():\n    from .b import two\n    return uno + two + three + b.one",
        b="one = 1\ntwo = 2",
        c="three = 3",
    )
    assert code.load("sglang.a", "f")() == 7


def test_only_what_is_used_is_run(tmp_path: Path) -> None:
    code = linker(tmp_path, a="import nowhere\nfrom nowhere.else_ import x\nboom = 1 / 0\ndef f():\n    return 4")
    assert code.load("sglang.a", "f")() == 4


@pytest.mark.parametrize(
    "body",
    [
        "return unheard_of",
        "import torch\n    return torch.version.cuda",
        "import requests\n    return 1",
        "from sglang.b import nothing\n    return 1",
        "return self_filled",
        "try:\n        return unheard_of\n    except Exception:\n        return False",
    ],
)
def test_what_nobody_described_raises(tmp_path: Path, body: str) -> None:
    torch = Described("torch", {"version": Described("torch.version", {"hip": "7.0"})})
    code = linker(tmp_path, {"torch": torch}, a=f"self_filled = []\ndef f():\n    {body}", b="")
    with pytest.raises(Undescribed):
        code.load("sglang.a", "f")()


def test_half_a_block_binds_nothing(tmp_path: Path) -> None:
    code = linker(tmp_path, a="if True:\n    x = 1\n    y = unheard_of\ndef f():\n    return x")
    for _ in range(2):
        with pytest.raises(Undescribed, match="unheard_of"):
            code.load("sglang.a", "f")()


def test_a_described_absence_is_an_attribute_error(tmp_path: Path) -> None:
    code = linker(tmp_path, {"torch": Described("torch", {}, absent=["hpu"])}, a="import torch\ndef f():\n    return hasattr(torch, 'hpu')")
    assert code.load("sglang.a", "f")() is False


def test_an_opaque_value_may_be_handed_on_but_not_used(tmp_path: Path) -> None:
    code = linker(tmp_path, {"torch": Described("torch", {"x": Opaque("x")})}, a="import torch\ndef f():\n    y = torch.x\n    return bool(y)")
    with pytest.raises(Undescribed, match="x"):
        code.load("sglang.a", "f")()


def test_conditions_are_seen_and_can_be_turned_round(tmp_path: Path) -> None:
    code = linker(tmp_path, a="def f(n):\n    if n == 16 or n == 128:\n        return 'fast'\n    return 'slow' if n > 3 else 'tiny'")
    f = code.load("sglang.a", "f")
    assert f(12) == "slow"
    seen = [(place.line, place.text, was) for place, was in code.trace.seen]
    assert seen == [(2, "n == 16 or n == 128", False), (4, "n > 3", True)]
    code.trace.forced = {code.trace.seen[0][0]: True}
    assert f(12) == "fast"


def test_a_module_of_the_tree_is_never_imported(tmp_path: Path) -> None:
    import sys

    code = linker(tmp_path, zz_only_here="x = 5")
    assert code.load("sglang.zz_only_here", "x") == 5
    assert "sglang.zz_only_here" not in sys.modules


def test_the_environment_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_USE_AITER", "1")
    target = load_targets(CASES / "targets.toml")["gfx950"]
    code = linker(tmp_path, world(target, {}), a="import os\ndef f():\n    return os.getenv('SGLANG_USE_AITER', 'unset'), os.environ.get('PATH')")
    assert code.load("sglang.a", "f")() == ("unset", None)


def test_literal_defaults_of_arguments(tmp_path: Path) -> None:
    sources = tree(
        tmp_path,
        srt__server_args="class ServerArgs:\n    page_size: int = None\n    computed: int = f()\n    tp_size: int = 1",
        srt__arg_groups__fields__model="class Model:\n    model_impl: str = 'auto'",
    )
    assert argument_defaults(sources) == {"page_size": None, "tp_size": 1, "model_impl": "auto"}


_NAMES = "abcd"
_EXPRESSIONS = st.sampled_from([f"self.{name}" for name in _NAMES] + ["0", "1", "2", *(f"self.{name} + 1" for name in _NAMES), "x", "x - 1"])
_ASSIGNMENTS = st.builds(lambda target, value: f"{target} = {value}", st.sampled_from([*(f"self.{name}" for name in _NAMES), "x"]), _EXPRESSIONS)
_CALLS = st.sampled_from(["self.m()", "self.n()", "log('x')", "assert self.a != 77"])
_SIMPLE = st.one_of(_ASSIGNMENTS, _ASSIGNMENTS, _CALLS, st.just("return"))


def _blocks(children: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    def branch(test: str, body: list[str], other: list[str]) -> list[str]:
        return [f"if {test} > 1:", *("    " + line for line in body), "else:", *("    " + line for line in other)]

    one = st.one_of(st.builds(branch, _EXPRESSIONS, children, children), _SIMPLE.map(lambda line: [line]))
    return st.lists(one, min_size=1, max_size=4).map(lambda parts: [line for part in parts for line in part])


_PROGRAMS = st.recursive(st.lists(_SIMPLE, min_size=1, max_size=5), _blocks, max_leaves=12)


@settings(max_examples=300, deadline=None)
@example(["self.c = 0", "self.m()"], ["self.n()"], "d")
@given(_PROGRAMS, _PROGRAMS, st.sampled_from(_NAMES))
def test_a_cut_method_decides_as_the_whole(program: list[str], helper: list[str], wanted: str) -> None:
    body = [f"        {line}" for line in program]
    other = ["        " + line.replace("self.m()", "self.n()") for line in helper]
    head, tail = ["class C:", "    def f(self):", "        x = 0"], ["        return None", "    def n(self):", "        self.d = self.c"]
    text = "\n".join([*head, *body, "    def m(self):", "        x = 1", *other, *tail, "def log(text):", "    return None"])
    space: dict[str, Any] = {}
    exec(text, space)
    start = {"a": 0, "b": 1, "c": 2, "d": 3}
    whole = SimpleNamespace(**start)
    whole.m, whole.n = (lambda: space["C"].m(whole)), (lambda: space["C"].n(whole))
    space["C"].f(whole)

    owner = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
    small, only = cut(methods["f"], f"self.{wanted}", methods=methods)
    part = SimpleNamespace(**start)
    made: dict[str, Any] = {}
    for name, node in {"f": small, **{name: cut(methods[name], *only, methods=methods)[0] for name in "mn"}}.items():
        exec(compile(ast.fix_missing_locations(ast.Module([node], [])), "cut", "exec"), made)
        made[name + "_"] = made[name]
    part.m, part.n = (lambda: made["m_"](part)), (lambda: made["n_"](part))
    made["f_"](part)
    assert getattr(part, wanted) == getattr(whole, wanted), ast.unparse(small)


def test_a_cut_keeps_what_feeds_it_and_drops_the_rest(tmp_path: Path) -> None:
    code = linker(
        tmp_path,
        a="""
        from sglang.b import hand
        class Args:
            def choose(self):
                self.unrelated = undefined_name
                raise_if_bad(self)
                if self.arch == "V4":
                    hand(self, 1)
                elif self.arch == "next":
                    self.strategy()
                    self.backend = "good" if self.kind == "extra" else "plain"
            def strategy(self):
                check_the_disk()
                self.kind = "extra"
        """,
        b="def hand(args, n):\n    args.pages = what_is_this\n    args.backend = 'own'",
    )
    module = code.module("sglang.a")
    for arch, backend in (("V4", "own"), ("next", "good"), ("other", None)):
        args = Instance(code, module, "Args", {"arch": arch, "backend": None, "kind": "auto"})
        args.call("choose", "backend")
        assert args.backend == backend


def test_a_cut_keeps_a_try_that_decides(tmp_path: Path) -> None:
    code = linker(
        tmp_path,
        a="""
        class Args:
            def choose(self):
                try:
                    self.level = 3
                    self.backend = "a" if self.level == 3 else "b"
                except KeyError:
                    self.backend = "c"
                try:
                    undefined_name()
                finally:
                    self.other = 1
        """,
    )
    args = Instance(code, code.module("sglang.a"), "Args", {"backend": None})
    args.call("choose", "backend")
    assert args.backend == "a"


def test_a_method_that_is_not_there_is_undescribed(tmp_path: Path) -> None:
    code = linker(tmp_path, a="class Args:\n    pass")
    with pytest.raises(Undescribed, match="choose"):
        Instance(code, code.module("sglang.a"), "Args", {}).call("choose", "backend")
