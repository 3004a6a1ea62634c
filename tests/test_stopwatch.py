"""A cell under the clock, on a device with nothing behind it: its inputs, its graph, and what ends it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from clockwork import Clockwork

from harness.contracts import make_inputs, op, ops
from harness.contracts.inputs import fingerprint
from harness.machine import execute
from harness.machine.platforms import Device
from harness.machine.timed import Ready, Stopwatch, _twin
from harness.providers import implements, registry
from harness.selection import DEFAULT_CASES, preset_cases
from harness.speed.stopping import CONVERGED

CASE = op("merge_state").axes.case(tokens=3, heads=2, dim=16, dtype="fp32")


@pytest.fixture
def watch(clock):
    """Times a provider of merge_state that is made as told, in a mode."""

    def run(made, mode="graph", name="timed", case=CASE):
        implements(case.op, library="torch", name=name, platforms={"cpu"})(made)
        provider = registry._providers.pop((case.op, name))
        return Stopwatch(execute.Bench(Device("cpu", "cpu", {"name": "described", "arch": "sm_90"}))).run(case, provider, "cpu", mode=mode)

    return run


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


@pytest.mark.parametrize("name", ops())
def test_the_second_set_of_inputs_is_the_first_elsewhere(name):
    for case in preset_cases(DEFAULT_CASES, "smoke", name)[:3]:
        x = make_inputs(case, "cpu", 1)
        for (called, tensor), (again, copied) in zip(x.tensors(), _twin(x).tensors(), strict=True):
            assert (again, copied.stride(), int(fingerprint(copied))) == (called, tensor.stride(), int(fingerprint(tensor)))
            assert not tensor.numel() or copied.data_ptr() != tensor.data_ptr()
