"""What a search draws from: every example is a case that exists, and bounds hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import COST, HERE, RIGHT, hunt, space, wrong

from harness.contracts import number, op, real, words
from harness.errors import UsageError
from harness.providers import providers
from harness.search.bounds import bounds_of
from harness.search.space import SEEDS, Space
from harness.search.spans import EDGES, span

# ---- spans and spaces ----

numbers = st.builds(
    lambda least, default, low, width: number("size", "z", "a size", default, least=least, search=(max(low, least), max(low, least) + width)),
    st.integers(-1, 2),
    st.none() | st.integers(2, 300),
    st.integers(-1, 40),
    st.integers(0, 100_000),
)


@given(numbers)
def test_a_span_is_plain_first_then_ascending_and_stays_within_its_bounds(axis):
    low, high = axis.search
    one = span(axis)
    assert one.plain == (axis.default if axis.default is not None else min(max(low, 1), high))
    rest = [value for value in one.values if value != one.plain]
    assert rest == sorted(rest)
    assert all(low <= value <= high for value in rest)
    assert {edge for edge in EDGES if low <= edge <= high} <= set(one.values)
    assert {low, high} <= set(one.values)
    for value in one.values[:: max(1, len(one.values) // 10)]:
        assert set(one.plainer(value)) == {other for other in rest if other < value and value != one.plain} | ({one.plain} - {value})


def test_edges_are_tried_more_often_than_their_neighbours():
    one = span(number("heads", "h", "heads"))
    assert one.places.count(48) > 2 * one.places.count(46)
    assert one.places.count(129) > 2 * one.places.count(131)


def test_a_default_is_half_of_the_words_and_of_the_real_numbers():
    assert span(words("form", ("scalar", "rows", "mixed"), "form", default="rows")).places == ("rows", "rows", "scalar", "mixed")
    assert span(real("cap", "cap", "cap", 0.0, search=(5.0, 30.0))).places == (0.0, 0.0, 5.0, 30.0)
    assert span(real("p", "p", "mass", search=(0.9, 0.5))).places == (0.9, 0.5)


@pytest.mark.parametrize("bad", [lambda: number("a", "a", "a", search=(5, 4)), lambda: number("a", "a", "a", search=(0, 4))])
def test_bounds_that_hold_nothing_are_a_mistake_of_the_axis(bad):
    with pytest.raises(UsageError, match="axis 'a'"):
        bad()


SPACES = [Space(provider, platform, cost=COST) for provider, platform in HERE]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_example_is_a_case_that_the_provider_takes_and_that_is_cheap(data):
    one = data.draw(st.sampled_from(SPACES), label="space")
    case, seed = data.draw(one.strategy())
    declared = op(one.provider.op)
    assert declared.axes.parse(case.id) == case
    assert one.provider.declines(case, one.platform) is None
    assert one.provider.gated(case) is None
    work = declared.impl.work(case)
    assert work.flops + work.bytes <= COST
    assert one.platform != "interpret" or getattr(case, "batch", 1) * case.point.get("heads", 1) < 150
    assert 0 <= seed < SEEDS


def test_every_provider_gets_cases_and_few_draws_are_thrown_away():
    thrown, total = 0, 0
    for one in SPACES:
        draw = random.Random(f"{one.provider.op} {one.provider.name}")  # whatever other providers are loaded
        drawn = [{name: draw.choice(span.places) for name, span in one.spans.items()} for _ in range(12)]
        made = [one.mended(point) for point in drawn]
        assert any(made), one.provider
        thrown, total = thrown + made.count(None), total + len(made)
    assert thrown / total < 0.03


def test_a_held_axis_stays_at_its_default_unless_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("harness.search.space.HELD", frozenset({"values"}))
    assert "values" not in space().spans
    one, described = hunt(wrong(lambda case: case.heads > 3))
    one.search(40, seed=1)
    assert {op("merge_state").axes.parse(asked[0]).values for asked in described.asked} == {"random"}
    assert space(values=["far"]).spans["values"].values == ("far",)


def test_what_is_impossible_is_mended_and_not_thrown_away():
    one = space(providers()["decode_attention", "torch_eager"])
    plain = {axis: span.plain for axis, span in one.spans.items()}
    case = one.mended({**plain, "heads": 48, "kv_heads": 36, "length": 9})
    assert (case.heads, case.kv_heads, case.length) == (48, 24, 9)
    paged = one.mended({**plain, "heads": 160, "kv_heads": 160, "batch": 24, "length": 2, "page": 108})
    assert paged.batch * paged.kv_heads * paged.page * 128 * 8 <= COST  # what the pool holds, though only two tokens of each page are read
    dear = one.mended({**plain, "heads": 12, "length": 4097, "batch": 33})
    assert dear.heads == 12
    assert dear.batch * dear.length < 33 * 4097


# ---- bounds ----


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("depth=1..3", "axes? of the chosen ops|for an axis of the chosen ops"),
        ("heads", "AXIS=1..64"),
        ("heads=0..3", "at least 1, not 0"),
        ("heads=9..3", "write 3..9"),
        ("heads=a", "takes numbers"),
        ("dtype=fp7", "fp32, fp16, bf16"),
    ],
)
def test_an_impossible_bound_is_one_line(text, words):
    with pytest.raises(UsageError, match=words) as caught:
        bounds_of([text], ["merge_state"])
    assert "\n" not in str(caught.value)


def test_bounds_hold():
    one, described = hunt(lambda case, seed: RIGHT, **bounds_of(["heads=9..11", "dtype=fp16", "tokens=4,6"], ["merge_state"]))
    one.search(60, seed=1)
    cases = [op("merge_state").axes.parse(asked[0]) for asked in described.asked]
    assert {case.heads for case in cases} == {9, 10, 11}
    assert {case.tokens for case in cases} == {4, 6}
    assert {case.dtype for case in cases} == {"fp16"}
