"""The reader of AITER's sources, on small synthetic ones, and the committed facts against each other."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.offline.aiter import cxx, python, tables
from harness.offline.aiter.__main__ import main
from harness.offline.aiter.facts import read_tree, written
from harness.providers.aiter.known import FOLDER, all_facts, span

STAGE = """
// a comment with { and "quotes
std::string get_heuristic_kernel_mla(std::string q_type, int gqa, int ps, CFG* cfgs, int lse = 0)
{
    for(const auto& el : *cfgs)
    {
        if (cfg.qType != q_type) continue;
        if (cfg.Gqa != gqa || cfg.ps != ps) continue;
        if (cfg.lse != lse) continue;
        return el.first;
    }
    AITER_CHECK(false, "no kernel");
    return "";
}
AITER_C_ITFS
void mla_decode_stage1_asm_fwd(aiter_tensor_t* Q, aiter_tensor_t* KV, int max_seqlen_q, aiter_tensor_t* lse, hipStream_t stream)
{
    auto q_dtype = Q->dtype();
    std::string q_type;
    bool persistent = (work == nullptr);
    if(q_dtype == AITER_DTYPE_bf16) q_type = "bf16";
    else AITER_CHECK(false, "dtype");
    int ps = persistent ? 1 : 0;
    int config_gqa = gqa_ratio;  /* folded
                                    below */
    if(gqa_ratio == 32 && !persistent){
        config_gqa = 16;
    } else if (max_seqlen_q > 2) {
        AITER_CHECK(false, __func__, ": too many, got ", max_seqlen_q);
    }
    int lse_flag = (lse != nullptr && persistent) ? 1 : 0;
    std::string kernelName = get_heuristic_kernel_mla(q_type, config_gqa, ps, config_map, lse_flag);
}
"""
CSV = "qType,Gqa,ps,lse,knl_name,co_name\nbf16,16,0,0,split16,a.co\nbf16,16,1,0,plan16,b.co\nbf16,8,0,0,one,c.co\nbf16,8,0,0,other,d.co\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for arch in tables.ARCHES:
        path = tmp_path / "hsa" / arch / "mla" / "mla_asm.csv"
        path.parent.mkdir(parents=True)
        path.write_text(CSV)
    (tmp_path / "csrc/py_itfs_cu").mkdir(parents=True)
    (tmp_path / tables.MLA).write_text(STAGE)
    return tmp_path


def outcomes(rows: list[dict], **fixed: object) -> dict[str, tuple[str, str]]:
    return {row.get("kernel") or row["refused"]: (row["heads"], row["queries"]) for row in rows if all(row[k] == v for k, v in fixed.items())}


def test_dispatch_is_run_over_the_grid(tree: Path) -> None:
    found = tables.stage1(tree)
    bf16 = outcomes(found, arch="gfx942", q="bf16", kv="bf16", ps=0)
    assert bf16["split16"] == ("32", "1-8")  # the fold comes first, so its queries are not counted
    assert bf16["one"] == ("8", "1-2")
    check = next(n for n, line in enumerate(STAGE.splitlines(), 1) if "too many" in line)
    assert f"{tables.MLA}:{check}" in bf16
    assert set(outcomes(found, arch="gfx942", q="bf16", kv="bf16", ps=1, lse=1)) == {f"{tables.MLA}:{check}", f"{tables.MLA}:12"}
    assert all("refused" in row for row in found if row["q"] == "fp8")


def test_a_changed_gate_changes_the_table(tree: Path) -> None:
    before = tables.stage1(tree)
    (tree / tables.MLA).write_text(STAGE.replace("gqa_ratio == 32 && !persistent", "gqa_ratio == 48 && !persistent"))
    after = tables.stage1(tree)
    assert before != after
    assert outcomes(after, arch="gfx950", q="bf16", kv="bf16", ps=0)["split16"] == ("48", "1-8")


def test_kernels_that_the_selection_cannot_tell_apart(tree: Path) -> None:
    assert tables.ambiguous(tables.kernel_rows(tree, "gfx942", "mla")) == [["one", "other"]]


def test_the_reduction_router() -> None:
    source = "#define R(NUM_HEAD, HEAD_DIM)\\\n MLA_REDUCE_CASE_IF(NUM_HEAD, 16, HEAD_DIM, 512, x)\\\n // MLA_REDUCE_CASE_EF(NUM_HEAD, 9, HEAD_DIM, 9)\n"
    assert tables.reduce_router(source + "MLA_REDUCE_CASE_EF(\n  NUM_HEAD,  8, HEAD_DIM, 128, y)") == [[8, 128], [16, 512]]


def run(body: str, **values: object) -> dict[str, object]:
    _, _, statements = cxx.function(cxx.stripped("void f()\n{\n" + body + "\n}\n"), "f")
    machine = cxx.Machine(values, frozenset())
    machine.run(statements)
    return machine.values


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("int a = 1; if(x == 2) a = 2; else if(x > 2) { a = 3; } else a = 4;", {"a": 3}),
        ("bool b = !(x == 3) || (x != 3 && true);", {"b": False}),
        ('std::string s = "a,b; {"; const int c = (x + 5) / 4;', {"s": "a,b; {", "c": 2.0}),
        ("int a = 1; if(unknown(x)) { a = 2; }", {}),
        ("for(int i = 0; i < 3; ++i) { if(x) { int d = 1; } } int e = 7;", {"e": 7}),
        ("#ifdef DEBUG\nint f = 1;\n#endif\nint g = (x == 3) ? 5 : 6;", {"g": 5}),
        ('static AiterAsmKernel impl("name", "file.co"); k = &impl;', {"k": "name"}),
    ],
)
def test_statements(body: str, expected: dict[str, object]) -> None:
    values = run(body, x=3)
    assert {name: values.get(name) for name in expected} == expected
    assert "unknown" not in body or "a" not in values


@pytest.mark.parametrize(("x", "refused"), [(1, True), (2, False)])
def test_checks_refuse_with_their_line(x: int, refused: bool) -> None:
    if refused:
        with pytest.raises(cxx.Refused) as caught:
            run('AITER_CHECK(x == 2,\n "only two, got ", x);\nint after = 1;', x=x)
        assert (caught.value.line, caught.value.macro) == (3, "AITER_CHECK")
    else:
        assert run("TORCH_CHECK(x == 2)\n int after = 1;", x=x) is not None
    assert run("AITER_CHECK(q.is_contiguous(), 1); int after = 1;", x=x)["after"] == 1  # unknown: passed over


@given(
    st.recursive(
        st.sampled_from(["x", "y", "3"]), lambda part: st.tuples(part, st.sampled_from(["&&", "||", "==", "<"]), part).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    )
)
def test_expressions_agree_with_python(text: str) -> None:
    expected = eval(text.replace("&&", " and ").replace("||", " or "), {"x": 3, "y": 0})
    assert cxx.evaluate(text, {"x": 3, "y": 0}) == expected


@pytest.mark.parametrize("text", ["__import__('os')", "x.y", "f(x)", "x[0]", "(lambda: 1)()"])
def test_calls_and_attributes_are_never_evaluated(text: str) -> None:
    with pytest.raises(cxx.Unknown):
        cxx.evaluate(text, {"x": "a", "f": len})


@given(st.lists(st.integers(0, 200), unique=True).map(sorted))
def test_ranges_and_their_reading_agree(numbers: list[int]) -> None:
    assert not numbers or span(tables.ranges(numbers)) == frozenset(numbers)


def test_signatures_defaults_and_bindings() -> None:
    module = ast.parse(
        textwrap.dedent(
            """
            @compile_ops("module_x", ffi_type="ctypes")
            def a(q: Tensor, n: int = 3, *, k=KIND.x): ...
            @compile_ops("module_x")
            def b(w=(-1, 0)): ...
            def c(): ...
            direct_register_custom_op("c", c, [])
            def d(x): ...
            """
        )
    )
    functions = {name: python.find_function(module, name) for name in "abcd"}
    assert python.signature(functions["a"]) == [
        {"name": "q", "type": "Tensor"},
        {"name": "n", "type": "int", "default": 3},
        {"name": "k", "default_text": "KIND.x", "keyword": True},
    ]
    assert [python.binding(module, functions[name]) for name in "abcd"] == ["ctypes", "pybind", "custom_op", "python"]


def test_python_gates() -> None:
    source = """
    def gate(nhead, q):
        assert nhead % 2 == 0
        assert mystery(nhead)
        if nhead == 16 or (get_gfx() == "gfx950" and q.dtype == dtypes.fp8):
            pass
        elif nhead in range(32, 65, 16):
            nhead = 16
        else:
            assert False, "no"
    """
    function = python.find_function(ast.parse(textwrap.dedent(source)), "gate")
    values = {"get_gfx": lambda: "gfx942", "dtypes": tables._DTYPES, "q": tables.SimpleNamespace(dtype="fp8")}
    assert [python.last_resort(function, {**values, "nhead": n}) for n in (16, 32, 24)] == [("native", 5), ("fold", 7), ("refused", 10)]
    assert python.last_resort(function, {**values, "nhead": 24, "get_gfx": lambda: "gfx950"}) == ("native", 5)
    assert (python.failed_assert(function, {"nhead": 3}), python.failed_assert(function, {"nhead": 4})) == (3, 0)


def test_routes_and_what_they_are_not_handed() -> None:
    source = """
    def forward(q, sink, window):
        swa = window > 0
        def can_fast():
            ret = not swa
            ret = ret and q.dtype == dtypes.bf16
            return ret
        if can_fast():
            out = fast(q, window)
        else:
            out = slow(q, window, sink=sink)
        return out
    """
    function = python.find_function(ast.parse(textwrap.dedent(source)), "forward")
    assert [arm[:3] for arm in python.routes(function)] == [("can_fast", "fast", ["q", "window"]), ("", "slow", ["q", "sink", "window"])]
    tests = python.nested(function, {"swa": False, "q": tables.SimpleNamespace(dtype="bf16"), "dtypes": tables._DTYPES})
    assert tests["can_fast"]() is True


def test_another_tree_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no mla_decode_fwd"):
        read_tree(tmp_path, "c" * 40)
    done = CliRunner().invoke(main, [str(tmp_path), "--commit", "x"])
    assert done.exit_code == 2
    assert done.output.count("\n") == 1


def test_committed_facts_are_as_the_reader_writes_them() -> None:
    for path in FOLDER.glob("*.json"):
        facts = json.loads(path.read_text())
        assert written(facts) == path.read_text()
        assert len(facts["commit"]) == 40


@pytest.mark.parametrize("facts", all_facts(), ids=lambda facts: facts.label)
def test_stubs_and_their_compiled_entry_points_agree(facts) -> None:  # type: ignore[no-untyped-def]
    """AITER keeps the Python stub and the C++ function apart: they must take as many arguments (the stream is added)."""
    for name, native in facts.data["native"].items():
        place = f"aiter.ops.attention:{name}"
        if place in facts.data["functions"] and native["parameters"]:
            stub = facts.parameters(place)
            assert len(stub) == len([p for p in native["parameters"] if p != "stream"]), name


def test_what_the_two_commits_are_known_for() -> None:
    """Facts that other tests and documents rest on, so that a change of the reader that loses one is seen."""
    old, new = all_facts()
    assert (old.label, new.label) == ("v0.1.9.post1", "e4048607a5")
    assert [row["name"] for row in new.data["undefined"]] == ["aiter.hk_mla_decode_fwd"]
    assert old.data["undefined"] == []
    assert not new.reduces(12, 128)
    assert new.reduces(24, 512)
    assert not old.reduces(48, 128)
    assert new.outcome("mla_prefill", 12, arch="gfx942", q="bf16", kv="bf16", causal=0).aborts
    assert not old.outcome("mla_prefill", 12, arch="gfx942", q="bf16", kv="bf16", causal=0).aborts
    assert new.data["ambiguous_kernels"]["gfx950"]
