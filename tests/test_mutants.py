"""Mutants of a library's kernels: one changed node each, planted and taken out again, found by the checks and by nothing else."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import linecache
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import HarnessError, UsageError
from harness.faults.mutants import equivalents, planting, population, runner, sites
from harness.faults.mutants.operators import OPERATORS
from harness.faults.mutants.process import Server
from harness.faults.mutants.server import Timed
from harness.machine.platforms import worker_environment

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


MERGE = ("merge_state[sglang_triton-t2-h3-d64-fp32]", "merge_state[sglang_triton-t4-h12-fp32-far]", "merge_state[sglang_triton-t4-h12-fp32-empty]")


@pytest.fixture(scope="module")
def merged():
    pytest.importorskip("sglang")
    said = []
    made = runner.run(24, 3, 1, ("merge_state_kernel",), said.append, names=MERGE)
    assert sorted(map(repr, said)) == sorted(map(repr, made))
    return made


def test_real_mutants_are_killed_and_say_by_what(merged):
    judged = [outcome for outcome in merged if not outcome.equivalent and outcome.reached]
    assert len(judged) >= 15
    assert sum(outcome.killed for outcome in judged) >= 0.8 * len(judged)
    assert all(outcome.by.partition(":")[0] in ("mismatch", "crash", "build-failed", "hang") and outcome.cell in MERGE for outcome in judged if outcome.killed)
    assert len({outcome.operator for outcome in judged}) >= 5


def test_the_summary_counts_what_the_outcomes_say(merged):
    said = runner.summary(merged)
    row = said["kernels"]["sglang.kernels.ops.attention.merge_state:merge_state_kernel"]
    assert json.loads(json.dumps(said)) == said
    assert said["killed"] == row["killed"] == sum(outcome.killed for outcome in merged)
    assert said["mutants"] == row["mutants"] == sum(not outcome.equivalent for outcome in merged)
    assert [survivor["key"] for survivor in said["survivors"]] == [o.key for o in merged if not o.killed and not o.equivalent]


SABOTAGED = """
import sys
from harness import checks
from harness.faults.mutants import server

judge = checks.judge
checks.judge = lambda actual, expected, confirm: judge(expected.value.to(expected.dtype), expected, confirm)
server.serve(int(sys.argv[1]))
"""


def test_a_sabotaged_check_lets_mutants_live(tmp_path, monkeypatch):
    """Numbers are no longer judged: what is left are crashes and strays."""
    pytest.importorskip("sglang")
    script = tmp_path / "sabotaged.py"
    script.write_text(SABOTAGED)
    monkeypatch.setattr("harness.faults.mutants.process.command", lambda descriptor: [sys.executable, str(script), str(descriptor)])
    made = runner.run(24, 3, 1, ("merge_state_kernel",), names=MERGE)
    judged = [outcome for outcome in made if not outcome.equivalent and outcome.reached]
    assert not any(outcome.by in ("mismatch:numerics", "mismatch:unwritten") for outcome in judged)
    assert sum(outcome.killed for outcome in judged) < 0.7 * len(judged)


def test_a_cell_that_gives_a_finding_by_itself_stops_the_run():
    pytest.importorskip("sglang")
    with pytest.raises(HarnessError, match=r"merge_state.*gives mismatch .* without a mutant"):
        runner.run(3, names=("merge_state[sglang_triton-t4-h12-fp32-bothempty]",))


def test_an_unknown_kernel_is_named_with_its_neighbours():
    pytest.importorskip("sglang")
    with pytest.raises(UsageError, match="unknown kernel 'merge_stat_kernel'"):
        runner.run(3, workers=1, kernels=("merge_stat_kernel",), names=MERGE[:1])
    with pytest.raises(UsageError, match="at least one"):
        runner.run(3, workers=0)


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setattr("harness.faults.mutants.runner.LIBRARIES", ("kernel_parity_of_no_release",))
    with pytest.raises(UsageError, match="kernel_parity_of_no_release"):
        runner.run(3, workers=1, names=())


def test_the_process_needs_no_interpreter_in_its_parent():
    code = "import sys; from harness.faults.mutants import run; print([m for m in ('torch', 'triton', 'sglang') if m in sys.modules])"
    env = {key: value for key, value in os.environ.items() if key not in worker_environment("cpu")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, cwd=Path(__file__).resolve().parent.parent)
    assert done.stdout.strip() == "[]"


def test_a_process_that_meets_an_op_late_still_plants_in_what_it_met_before():
    pytest.importorskip("sglang")
    penalty, other = "penalties[sglang_torch-b1-v111-fq0-ps0-rp2]", "merge_state[torch_eager-t3-h2-d16-fp32]"
    with contextlib.closing(Server()) as server:
        (target,) = runner.survey([server], [penalty], ("apply_scaling_penalties",))
        swapped = next(mutant for mutant in target.reached if mutant.operator == "function")
        for cells in ([Timed(penalty, 0.1)], [Timed(other, 0.1)], [Timed(penalty, 0.1)]):
            killed = bool(server.attempt(swapped, cells).by)
            assert killed == (cells[0].name == penalty)
