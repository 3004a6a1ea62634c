"""The clock, on a device with nothing behind it: what is timed, what is left out, and what is said of it."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from clockwork import FLUSH, Clockwork
from hypothesis import given
from hypothesis import strategies as st

from harness import checks
from harness.contracts import make_inputs, op, ops
from harness.contracts.inputs import fingerprint
from harness.machine import execute
from harness.machine.clock import Timer
from harness.machine.clock.cache import Flush, cache_bytes
from harness.machine.clock.control import Controls
from harness.machine.memory import Scratch
from harness.machine.platforms import Device
from harness.machine.remedy import Padded, first_heads
from harness.machine.timed import Ready, Stopwatch, _twin
from harness.providers import implements, providers, registry
from harness.selection import DEFAULT_CASES, preset_cases
from harness.speed.stopping import CONVERGED, LIMIT, NOISY, Rule, halfwidth, steady

CASE = op("merge_state").axes.case(tokens=3, heads=2, dim=16, dtype="fp32")


@pytest.fixture
def clock(monkeypatch):
    device = Clockwork()
    device.install(monkeypatch)
    return device


@pytest.fixture
def watch(clock):
    """Times a provider of merge_state that is made as told, in a mode."""

    def run(made, mode="graph", name="timed", case=CASE):
        implements(case.op, library="torch", name=name, platforms={"cpu"})(made)
        provider = registry._providers.pop((case.op, name))
        return Stopwatch(execute.Bench(Device("cpu", "cpu", {"name": "described", "arch": "sm_90"}))).run(case, provider, "cpu", mode=mode)

    return run


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


# ---- a cell ----


class Kernels:
    """A provider that launches kernels and returns nothing of use: it is not judged here."""

    clock: Clockwork

    def prepare(self, x, scratch):
        self.clock.host += 250.0

    def run(self):
        self.clock.launch(30.0)
        self.clock.launch(40.0)


def test_a_cell_is_timed_by_replays_of_its_graph(clock, watch):
    result, healthy = watch(type("Made", (Kernels,), {"clock": clock}))
    (timing,) = result.timings
    assert (result.status, healthy, timing.mode, timing.stop) == ("pass", True, "graph", CONVERGED)
    assert timing.median == pytest.approx(70.0)
    assert (timing.control, timing.control_us) == ("copy", 70.0)
    assert timing.plan >= 0


def test_the_inputs_of_a_case_are_made_once_for_its_providers(clock, monkeypatch):
    made = []
    monkeypatch.setattr("harness.machine.timed.make_inputs", lambda case, device, seed: made.append((case.id, seed)) or make_inputs(case, device, seed))
    watch = Stopwatch(execute.Bench(Device("cpu", "cpu", {"name": "described", "arch": "sm_90"})))
    other = op(CASE.op).axes.case(**{**CASE.point, "tokens": 4})
    for case, seed in ((CASE, 0), (CASE, 0), (CASE, 1), (other, 1)):
        watch._sets(case, seed)
    assert made == [(CASE.id, 0), (CASE.id, 1), (other.id, 1)]


def test_inputs_that_a_call_broke_off_on_are_made_anew(clock, monkeypatch):
    class Fails(Kernels):
        def run(self):
            raise ValueError("no more")

    watch = Stopwatch(execute.Bench(Device("cpu", "cpu", {"name": "described", "arch": "sm_90"})))
    monkeypatch.setattr(torch, "ones", lambda *shape, device: None)
    implements(CASE.op, library="torch", name="breaks", platforms={"cpu"})(type("Made", (Fails,), {"clock": clock}))
    assert watch.run(CASE, registry._providers.pop((CASE.op, "breaks")), "cpu", mode="eager")[0].status == "refused"
    assert watch._inputs == (None, [])


def test_the_inputs_of_a_case_make_room_before_the_next_are_made(clock, monkeypatch):
    kept = []
    watch = Stopwatch(execute.Bench(Device("cpu", "cpu", {"name": "described", "arch": "sm_90"})))
    monkeypatch.setattr("harness.machine.timed.make_inputs", lambda *told: kept.append(list(watch._inputs[1])) or make_inputs(*told))
    watch._sets(CASE, 0)
    watch._sets(CASE, 1)
    assert kept == [[], []]


def test_a_provider_that_empties_a_list_of_its_inputs_takes_nothing_from_the_next(clock):
    x = make_inputs(CASE, "cpu", 0)
    x.named = [1, 2]

    class Empties(Kernels):
        def prepare(self, x, scratch):
            x.named.clear()

    provider = SimpleNamespace(make=type("Made", (Empties,), {"clock": clock}))
    Ready(op(CASE.op), x, provider, Device("cpu", "cpu", {}))
    assert x.named == [1, 2]


def test_a_call_that_no_graph_takes_asks_for_a_fresh_process(clock, watch):
    clock.refuses = "operation not permitted when stream is capturing"
    result, healthy = watch(type("Made", (Kernels,), {"clock": clock}))
    assert (result.status, result.reason, healthy, result.timings) == ("unsupported", "no graph", False, [])
    assert "not permitted" in result.detail
    result, healthy = watch(type("Made", (Kernels,), {"clock": clock}), mode="eager")
    assert (result.timings[0].mode, result.timings[0].median, healthy) == ("eager", pytest.approx(70.0), True)


def test_a_call_that_fails_when_it_is_timed_keeps_its_own_reason(clock, watch, monkeypatch):
    monkeypatch.setattr(torch, "ones", lambda *shape, device: None)

    class Fails(Kernels):
        def run(self):
            raise ValueError("no more")

    result, healthy = watch(type("Made", (Fails,), {"clock": clock}), mode="eager")
    assert (result.status, result.reason, healthy) == ("refused", "ValueError", True)
    assert result.detail == "in the timed calls: ValueError: no more"


def test_what_an_op_overwrites_is_put_back_before_each_launch(clock, watch):
    case = op("token_bitmask").axes.case(batch=1, vocab=64, dtype="fp32")
    seen = []

    class InPlace:
        def prepare(self, x, scratch):
            self.logits = x.logits

        def run(self):
            seen.append(self.logits.clone())
            self.logits.fill_(float("-inf"))
            clock.launch(10.0)

    watch(InPlace, mode="eager", case=case)
    assert len(seen) > 20
    assert all(torch.equal(seen[0], other) and not seen[0].isinf().all() for other in seen)


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


@pytest.mark.parametrize("name", ops())
def test_the_second_set_of_inputs_is_the_first_elsewhere(name):
    for case in preset_cases(DEFAULT_CASES, "smoke", name)[:3]:
        x = make_inputs(case, "cpu", 1)
        for (called, tensor), (again, copied) in zip(x.tensors(), _twin(x).tensors(), strict=True):
            assert (again, copied.stride(), int(fingerprint(copied))) == (called, tensor.stride(), int(fingerprint(tensor)))
            assert not tensor.numel() or copied.data_ptr() != tensor.data_ptr()
