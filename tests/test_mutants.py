"""Mutants of a library's kernels: one changed node each, planted and taken out again, found by the checks and by nothing else."""

from __future__ import annotations

import ast
import importlib
import json
import linecache
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.faults.mutants import equivalents, planting, population, sites
from harness.faults.mutants.operators import OPERATORS

SAMPLE = '''
import triton
import triton.language as tl

@triton.jit(do_not_specialize=["n"])
def kernel(x, y, n, stride_xt, stride_xh, scale: tl.constexpr, BLOCK: tl.constexpr):
    """Nothing here is changed: 1 < 2."""
    tl.static_assert(BLOCK > 0)
    acc = tl.zeros([BLOCK], tl.float32)
    low = -float("inf")
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(
            x + at * stride_xt,  # spread over lines
            mask=at < n,
            other=0.0,
        )
        new = tl.maximum(low, tl.max(value, 0))
        acc = acc * tl.exp(low - new) + tl.where(at[:, None] < n, value, 0.5)
        acc += 1 if scale is None else 2
        low = new
    if scale and not BLOCK % 2 == 0:
        acc *= 3
    tl.store(y + at * stride_xh, acc // 2, mask=(at < n) & (at >= 0), eviction_policy="evict_first")
    assert n > 0, f"{n + 1}"


class Sampler:
    def keep(self, probs, k):
        raise_to: int = 2
        return probs.cumsum(dim=-1) - probs <= k**raise_to
'''


def all_of(source: str) -> list[sites.Mutant]:
    return [mutant for function in sites.functions(source) for mutant in sites.mutants(source, "sample", "sample.py", function)]


EVERY = all_of(SAMPLE)


def changed_places(before: ast.AST, after: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """The smallest subtrees that differ: a node whose own kind or fields differ, or the list of statements."""
    if type(before) is not type(after):
        return [(before, after)]
    found = []
    for name, old in ast.iter_fields(before):
        new = getattr(after, name, None)
        if isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                return [(before, after)]
            pairs = list(zip(old, new, strict=True))
        else:
            pairs = [(old, new)]
        for one, other in pairs:
            if isinstance(one, ast.AST) and isinstance(other, ast.AST):
                found += changed_places(one, other)
            elif one != other:
                return [(before, after)]
    return found


def test_every_operator_has_a_place_in_the_sample():
    assert {mutant.operator for mutant in EVERY} == set(OPERATORS)


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.key)
def test_a_mutant_differs_in_one_node_and_keeps_every_line(mutant):
    text = mutant.applied(SAMPLE)
    compile(text, "sample.py", "exec")
    assert text.count("\n") == SAMPLE.count("\n")
    places = changed_places(ast.parse(SAMPLE), ast.parse(text))
    assert places
    # a changed call differs in its name or its arguments; all that differs lies inside the node that was replaced
    first = SAMPLE[: SAMPLE.encode().index(SAMPLE.encode()[mutant.span[0] : mutant.span[1]])]
    assert first.count("\n") <= mutant.line
    data, made = SAMPLE.encode(), text.encode()
    start, end = mutant.span
    assert made[:start] == data[:start]
    assert made.endswith(data[end:])
    kept = ast.unparse(ast.parse(textwrap.dedent(data[start:end].decode()) if mutant.expression else mutant.before))
    assert "".join(kept.split()) == "".join(mutant.before.split())


ASIDE = """
def chooses(logits, k):
    if logits.ndim != 2:
        raise ValueError("two dimensions")
    if logits.is_cuda and k > 3:
        return launches(logits, 7)
    elif k < 5:
        k = k + 6
    best = logits.max(dim=-1)
    width = logits.shape[-1]
    return best.sum(-1) if k > -float("inf") else -1
"""


def test_guards_branches_of_a_device_and_signs_of_an_axis_are_left_alone():
    made = {(mutant.operator, mutant.before) for mutant in all_of(ASIDE)}
    assert not [before for _, before in made if any(word in before for word in ("ndim", "is_cuda", "launches", "k > 3"))]
    assert {("arithmetic", "k + 6"), ("bound", "k < 5"), ("constant", "-1"), ("axis", "logits.max(dim=-1)")} <= made
    assert sum(operator == "constant" and before == "-1" for operator, before in ((m.operator, m.before) for m in all_of(ASIDE))) == 1
    assert ("bound", "k > -float('inf')") not in made, "one less than infinity is infinity"


def test_what_cannot_be_wrong_is_left_alone():
    before = " ".join(mutant.before for mutant in EVERY if mutant.operator not in ("mask", "statement"))
    for word in ("1 < 2", "BLOCK > 0", "evict_first", "n > 0", "n + 1", "do_not_specialize"):
        assert word not in before
    assert not any(mutant.before == "raise_to: int = 2" for mutant in EVERY)


def test_keys_name_no_lines_and_no_key_is_given_twice():
    keys = [mutant.key for mutant in EVERY]
    assert len(set(keys)) == len(keys)
    moved = SAMPLE.replace("    acc = tl.zeros", "    unused = x\n\n    acc = tl.zeros")
    assert [mutant.key for mutant in all_of(moved)] == keys


names = st.sampled_from(["a", "b", "stride_a", "stride_b"])
expressions = st.recursive(
    names | st.sampled_from(["1", "0.5", "-1.0", 'float("-inf")']),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "<", "<=", "==", "&", "|", "and", "or", ">>", "^"]), inner).map(
            lambda part: f"({part[0]} {part[1]} {part[2]})"
        ),
        inner.map(lambda part: f"tl.max({part}, axis=1)"),
        inner.map(lambda part: f"tl.load({part}, mask={part},\n        other=0)"),
        inner.map(lambda part: f"(not {part})"),
        st.tuples(inner, inner, inner).map(lambda part: f"({part[0]} if {part[1]} else {part[2]})"),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(expressions, min_size=1, max_size=4))
def test_any_function_gives_mutants_that_compile_with_the_rest_untouched(lines):
    body = "".join(f"    b = {line}  # ü\n" for line in lines)
    source = f"def f(a, b, stride_a, stride_b):\n{body}    return b\n"
    found = all_of(source)
    assert len({mutant.key for mutant in found}) == len(found)
    for mutant in found:
        text = mutant.applied(source)
        compile(text, "sample.py", "exec")
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
        assert text.encode().endswith(source.encode()[mutant.span[1] :])


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1), st.integers(0, 100), st.integers(0, 5))
def test_a_draw_is_even_over_functions_and_the_same_for_a_seed(sizes, count, seed):
    piles = {name: EVERY[:size] for name, size in sizes.items()}
    drawn = population.draw(piles, count, seed)
    assert drawn == population.draw(piles, count, seed)
    assert len(drawn) == min(count, sum(sizes.values()))
    whole = population.draw(piles, None, seed)
    assert whole[: len(drawn)] == drawn
    assert sorted(mutant.key for mutant in whole) == sorted(mutant.key for pile in piles.values() for mutant in pile)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 50))
def test_a_draw_is_even_over_operators(seed):
    kinds = {mutant.operator for mutant in EVERY}
    first = population.draw({"kernel": EVERY}, len(kinds), seed)
    assert {mutant.operator for mutant in first} == kinds


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module with a function of which another module could hold a reference."""
    (tmp_path / "planted_sample.py").write_text("def f(a):\n    return a + 1\n\n\nclass C:\n    def g(self):\n        return 2.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("planted_sample")
    sys.modules.pop("planted_sample", None)


def test_planting_reaches_what_was_made_before_and_is_undone(module):
    source, held = planting.source_of(module.__file__), module.f
    made = [m for function in sites.functions(source) for m in sites.mutants(source, "planted_sample", module.__file__, function)]
    plus = next(m for m in made if m.operator == "arithmetic")
    double = next(m for m in made if m.operator == "constant")
    assert (held(1), module.C().g()) == (2, 2.5)
    with planting.planted(plus):
        assert (held(1), module.f(1)) == (0, 0)
        assert "a - 1" in "".join(linecache.getlines(module.__file__))
    with planting.planted(double):
        assert (held(1), module.C().g()) == (2, 5.0)
    assert (held(1), module.C().g()) == (2, 2.5)
    assert "".join(linecache.getlines(module.__file__)) == source
    with pytest.raises(ZeroDivisionError), planting.planted(plus):
        raise ZeroDivisionError
    assert held(1) == 2


def test_equivalents_that_match_nothing_are_named(tmp_path):
    path = tmp_path / "equivalents.toml"
    key = EVERY[0].key
    path.write_text(f'[[equivalent]]\nkeys = [{json.dumps(key)}, "gone"]\nwhy = "because"\n')
    known = equivalents.Equivalents(path)
    assert known.unmatched([mutant.key for mutant in EVERY]) == ["gone"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[equivalent]]\nkeys = ["a"]\n', "entry 1: needs why"),
        ('[[equivalent]]\nkeys = ["a"]\nwhy = "b"\n[[equivalent]]\nkeys = ["a"]\nwhy = "c"\n', "entry 2: 'a' is listed twice"),
        ('[[equal]]\nkeys = ["a"]\n', "not equal"),
        ('[[equivalent]]\nkeys = "a"\nwhy = "b"\n', "keys is a list of words"),
    ],
)
def test_a_mistake_in_the_equivalents_is_one_line(tmp_path, text, said):
    path = tmp_path / "equivalents.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        equivalents.Equivalents(path)
