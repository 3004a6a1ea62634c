"""Case ids: parse and print are inverse, unknown tokens are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contracts import Axes, number, ops, real, words
from harness.errors import UsageError

HEADS, MASS, K = number("heads", "h", "heads", least=None), real("p", "p", "mass", default=1.0), number("k", "k", "k", default=5, least=None)
AXES = Axes("toy", [HEADS, MASS, K, words("dtype", ("fp32", "bf16"), "dtype")])


@given(st.integers(-(2**40), 2**40), st.integers(0, 10**10), st.integers(-5, 5), st.sampled_from(["fp32", "bf16"]))
def test_an_id_parses_back_to_its_case(heads, p, k, dtype):
    case = AXES.case(heads=heads, p=p / 10**10, k=k, dtype=dtype)
    assert AXES.parse(case.id) == case
    assert dict(AXES.parse(case.id).point) == dict(case.point)


def test_defaults_are_left_out_and_filled_in():
    assert AXES.case(heads=12, dtype="bf16").id == "h12-bf16"
    assert AXES.parse("h12-bf16").k == 5
    assert AXES.case(heads=-1, p=0.95, dtype="fp32").id == "hm1-p0.95-fp32"


@pytest.mark.parametrize("bad", ["h12", "h12-fp16", "h12-z4-bf16", "h1.5-bf16", "bf16"])
def test_a_bad_id_is_one_clear_error(bad):
    with pytest.raises(UsageError, match="toy"):
        AXES.parse(bad)


@pytest.mark.parametrize("bad", [{"heads": 1}, {"heads": 1, "dtype": "fp64"}, {"heads": 1, "dtype": "fp32", "depth": 2}])
def test_a_bad_point_is_one_clear_error(bad):
    with pytest.raises(UsageError, match="toy"):
        AXES.case(**bad)


@pytest.mark.parametrize(
    ("axis", "lowest"),
    [
        (number("rows", "r", "rows"), 1),
        (number("page", "pg", "page", default=16), 1),
        (number("prefix", "p", "prefix", default=0), 0),
        (number("window", "w", "window", default=-1), -1),
        (number("rows", "r", "rows", least=2), 2),
        (real("cap", "c", "cap", default=5.0, least=0.0), 0.0),
    ],
)
def test_a_size_below_the_least_is_one_clear_error(axis, lowest):
    axes = Axes("toy", [axis])
    assert axes.case(**{axis.name: lowest}).point[axis.name] == lowest
    with pytest.raises(UsageError, match=f"axis '{axis.name}' .* is at least {lowest:g}, not "):
        axes.parse(axis.token(lowest - 1))


def test_sizes_that_do_not_go_together_are_one_clear_error():
    axes = Axes("toy", [number("heads", "h", "heads"), number("group", "g", "group")], lambda case: "they do not part" if case.heads % case.group else None)
    assert axes.parse("h6-g3").heads == 6
    with pytest.raises(UsageError, match="op 'toy': there is no case 'h7-g3': they do not part"):
        axes.parse("h7-g3")


def test_axes_that_share_a_key_or_a_word_are_refused():
    with pytest.raises(UsageError, match="share"):
        Axes("toy", [number("a", "h", "a"), number("b", "h", "b")])
    with pytest.raises(UsageError, match="'m'"):
        number("a", "am", "a")


def test_a_case_is_immutable_and_names_a_wrong_axis():
    case = AXES.case(heads=1, dtype="fp32")
    with pytest.raises(AttributeError):
        case.heads = 2
    with pytest.raises(AttributeError, match="no axis 'depth'"):
        _ = case.depth


def test_every_declared_op_has_ids_that_parse():
    for op in ops().values():
        for axis in op.axes.axes:
            assert axis.key or axis.words


@pytest.mark.parametrize(
    ("op", "case_id", "why"),
    [
        ("chain_verify", "b1-n1-v9", "without drafts"),
        ("dspark_accept_sampling", "b1-n1-v9", "without drafts"),
        ("dspark_accept_sampling", "b1-n2-v5-w1", "5 apart"),
        ("dspark_accept_sampling", "b1-n2-v7", "does not fit 7 tokens"),
        ("dspark_accept_sampling", "b1-n2-v1-rejected-w0", "only token"),
        ("tree_build", "b1-n3-k1-d1-s1", "fewer than the 2 drafts"),
        ("kv_write", "t1-kv1-fp16-scaled", "fp8 pool alone"),
    ],
)
def test_what_means_nothing_is_no_case(op, case_id, why):
    with pytest.raises(UsageError, match=why):
        ops()[op].axes.parse(case_id)


@pytest.mark.parametrize(
    ("op", "case_id"),
    [("dspark_accept_sampling", "b1-n2-v8"), ("tree_build", "b1-n7-k2-d2-s1"), ("kv_write", "t1-kv1-fp16-e4m3fn-scaled"), ("chain_verify", "b1-n2-v1")],
)
def test_what_is_next_to_nothing_is_a_case(op, case_id):
    assert ops()[op].axes.parse(case_id).id == case_id
