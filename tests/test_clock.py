"""The clock, on a device with nothing behind it: what is timed, what is left out, and what is said of it."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from clockwork import FLUSH
from hypothesis import given
from hypothesis import strategies as st

from harness import checks
from harness.contracts import make_inputs, op
from harness.machine.clock import Timer
from harness.machine.clock.cache import Flush, cache_bytes
from harness.machine.clock.control import Controls
from harness.machine.memory import Scratch
from harness.machine.remedy import Padded, first_heads
from harness.providers import providers
from harness.speed.stopping import CONVERGED, LIMIT, NOISY, Rule, halfwidth, steady

CASE = op("merge_state").axes.case(tokens=3, heads=2, dim=16, dtype="fp32")


# ---- samples ----


def test_a_steady_kernel_is_known_after_the_least_samples(clock):
    taken = Timer("cpu", "sm_90").take([lambda: clock.launch(100.0)], "copy")
    assert (taken.us, taken.stop, taken.host_bound) == (pytest.approx([100.0] * 20), CONVERGED, 0.0)
    assert taken.control == pytest.approx([70.0] * 2)
    assert taken.clock == (1980, 1980)


def test_a_host_that_is_too_slow_is_said(clock):
    def many():
        for _ in range(200):
            clock.launch(1.0)

    taken = Timer("cpu", "sm_90").take([many], "copy")
    assert taken.host_bound == 1.0
    assert sorted(taken.us)[10] > 200.0  # what was timed is the host


def test_the_first_launch_after_the_host_waited_is_not_late(clock):
    """A host that needs longer than one flush takes, but less than a flush and the kernel, is never behind."""

    def slowly():
        clock.host += 1.5 * FLUSH
        clock.launch(100.0)

    taken = Timer("cpu", "sm_90").take([slowly], "copy")
    assert (taken.us, taken.host_bound) == (pytest.approx([100.0] * 20), 0.0)


def test_neither_the_flush_nor_what_is_put_back_is_in_the_time(clock):
    taken = Timer("cpu", "sm_90").take([lambda: clock.launch(50.0)], "copy", restore=lambda: clock.launch(500.0))
    assert taken.us == pytest.approx([50.0] * 20)


def test_input_sets_take_turns(clock):
    called = []
    Timer("cpu", "sm_90").take([lambda: called.append("a"), lambda: called.append("b")], "copy")
    sampled = called[6:]  # three of each to warm up
    assert sampled == ["a", "b"] * (len(sampled) // 2)


def test_samples_of_a_throttled_device_are_left_out(clock):
    launches = itertools.count()

    def kernel():
        clock.factor = 1.3 if 43 <= next(launches) < 53 else 1.0  # the fifth batch, its control too
        clock.launch(100.0)

    taken = Timer("cpu", "sm_90", rule=Rule(close=0.0, least=100, most=100)).take([kernel], "copy")
    assert (len(taken.us), taken.discarded) == (90, 10)
    assert max(taken.us) == pytest.approx(100.0)


@pytest.mark.parametrize(("rates", "stop"), [((), "throttled"), ((1980, 1695), "throttled"), ((1980, 1980), "noisy")])
def test_a_device_that_is_mostly_slow_is_said_and_nothing_left_out(clock, monkeypatch, rates, stop):
    """Throttled, unless the driver says that its clock stood still."""
    launches, told = itertools.count(), iter(rates)
    monkeypatch.setattr("harness.machine.clock.timer._clock_rate", lambda: tuple(itertools.islice(told, 1)))

    def kernel():
        clock.factor = 1.3 if (next(launches) - 3) // 10 % 3 == 0 else 1.0
        clock.launch(100.0)

    taken = Timer("cpu", "sm_90", rule=Rule(close=0.0, least=90, most=90)).take([kernel], "copy")
    assert (taken.stop, taken.discarded, len(taken.us)) == (stop, 0, 180)


def test_a_device_that_was_throttled_at_first_is_timed_for_longer(clock):
    launches = itertools.count()

    def kernel():
        clock.factor = 1.3 if next(launches) < 13 else 1.0  # warming up, and the first batch
        clock.launch(100.0)

    taken = Timer("cpu", "sm_90", rule=Rule(close=1.0, least=20, most=200)).take([kernel], "copy")
    assert (taken.stop, taken.discarded, len(taken.us)) == ("converged", 10, 40)


def test_the_control_is_warm_before_it_is_timed(clock, monkeypatch):
    calls = itertools.count()
    monkeypatch.setattr(Controls, "_copy", lambda self: lambda: clock.launch(40_000.0 if next(calls) == 0 else 66.0))
    taken = Timer("cpu", "sm_90").take([lambda: clock.launch(50.0)], "copy")
    assert max(taken.control) < 100.0


def test_a_slow_kernel_ends_by_the_time_it_may_take(clock):
    taken = Timer("cpu", "sm_90", rule=Rule(close=-1.0), seconds=0.0).take([lambda: clock.launch(1e6)], "matmul")
    assert (taken.stop, len(taken.us)) == (LIMIT, 10)


# ---- padded heads ----


@pytest.mark.parametrize("name", ["mla_decode", "decode_attention", "merge_state", "concat_mla_k"])
@pytest.mark.parametrize("law", ["padheads", "repheads"])
def test_a_padded_call_gives_what_the_plain_one_gives(name, law):
    declared = op(name)
    if law not in declared.relations:
        pytest.skip(f"{name} has no {law}")
    small = {"batch": 2, "tokens": 3, "heads": 6, "kv_heads": 2, "length": 9, "dim": 16, "dtype": "fp32"}
    point = {axis: value for axis, value in small.items() if axis in declared.axes.by_name}
    case = declared.axes.case(**point, relation=law)
    provider = providers()[name, "torch_eager"]
    made = Padded(declared, declared.relations[law], provider.make())
    x, scratch = make_inputs(case, "cpu", 0), Scratch("cpu")
    made.prepare(x, scratch)
    for name_, value in vars(x).items():  # what the buffers are refilled with is what counts
        if isinstance(value, torch.Tensor) and value.is_floating_point() and vars(made._padded)[name_].shape != value.shape:
            first_heads(vars(made._padded)[name_], value.shape, int(case.point.get("kv_heads", 1))).fill_(float("nan"))
    outputs = made.run()
    expected = declared.impl.reference(make_inputs(case, "cpu", 0), provider.semantics_on("cpu"))
    for output, value in outputs.items():
        assert value.is_contiguous()
        assert checks.judge(value, expected[output], confirm=False).right


# ---- the cache ----


@pytest.mark.parametrize(
    ("arch", "told", "mib"), [("gfx950", 4 << 20, 256), ("sm_90", 50 << 20, 60), ("sm_90", 0, 60), ("sm_999", 0, 256), ("sm_999", 40 << 20, 40)]
)
def test_the_last_level_cache(arch, told, mib):
    assert cache_bytes(arch, told) == mib << 20


def test_twice_the_cache_is_written(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=5 << 20))
    flush = Flush("cpu", "sm_999")
    flush.memory.fill_(7)
    flush()
    assert flush.memory.numel() == 10 << 20
    assert not flush.memory.any()


# ---- the stopping rule ----

STEADY = [100.0 + 2 * math.sin(7.0 * place) for place in range(200)]


def test_enough_is_converged_or_noisy_or_at_the_limit():
    rule = Rule(close=0.002, least=20, most=200)
    assert rule.decide(STEADY[:19]) == ""
    assert rule.decide([100.0] * 20) == CONVERGED
    assert rule.decide(STEADY[:50]) == ""
    assert Rule(close=0.001, least=20, most=200).decide(STEADY) == NOISY
    assert Rule(close=0.001, least=20, most=200).decide([100.0 + place for place in range(200)]) == LIMIT


@given(st.lists(st.floats(1.0, 1e4), min_size=20, max_size=60), st.floats(0.1, 100.0))
def test_the_rule_knows_no_unit_and_no_order_of_size(samples, unit):
    assert halfwidth([unit * value for value in samples]) == pytest.approx(halfwidth(samples), rel=1e-9, abs=1e-12)
    assert halfwidth(sorted(samples)) == pytest.approx(halfwidth(samples))


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    generator = torch.Generator().manual_seed(7)
    held = 0
    for _ in range(400):
        samples = (100 * torch.exp(0.05 * torch.randn(50, generator=generator))).tolist()
        middle = sorted(samples)[25]
        held += abs(middle - 100) <= 1.2 * halfwidth(samples) * middle
    assert held / 400 >= 0.93


def test_a_drift_is_not_steady():
    assert steady(STEADY)
    assert not steady([100.0 + 0.1 * place for place in range(200)])
