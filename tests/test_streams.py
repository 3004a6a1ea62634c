"""Streams and graphs, with a stand-in for the device: what is replayed is judged, what is not written shows, a capture that fails is said."""

from __future__ import annotations

import contextlib

import pytest
import torch

from harness.contracts import Case, op
from harness.errors import UsageError
from harness.faults import FAULTS, relating
from harness.machine import execute
from harness.machine.graphs import capture
from harness.machine.platforms import Device
from harness.providers import implements, registry
from tests.recording import RecordedGraph

CPU = Device("cpu", "cpu", {"name": "a cpu", "arch": "cpu"})
MERGE = op("merge_state").axes.case(tokens=3, heads=2, dim=16, dtype="fp32", relation="replay")
SAMPLE = FAULTS["fault_DrawsBeforeTheGraph"].case
GROWN = FAULTS["fault_ReadsLengthsOnTheDevice"].case


class Stream:
    def wait_stream(self, other):
        pass

    def synchronize(self):
        pass


class Graph:
    """Replays by calling again what was captured."""

    captured = staticmethod(lambda: None)

    def capture_begin(self):
        pass

    def capture_end(self):
        pass

    def replay(self):
        type(self).captured()


@pytest.fixture
def device(monkeypatch):
    """torch.cuda as far as it is used, with nothing behind it; and cells are judged as if this were a device."""
    for name, value in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "current_stream": Stream,
        "synchronize": lambda: None,
        "_sleep": lambda cycles: None,
        "stream": lambda stream: contextlib.nullcontext(),
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(execute, "impossible_here", lambda case, device: None)
    yield monkeypatch
    Graph.captured = staticmethod(lambda: None)


def judged(made, case: Case = MERGE, name: str = "captured"):
    implements(case.op, library="torch", name=name, platforms={"cpu"})(made)
    provider = registry._providers.pop((case.op, name))
    return execute.Bench(CPU).run(case, provider, "cpu")


class Merge:
    """Right, and replayable by its buffers."""

    def prepare(self, x, scratch):
        self.x, self.out = x, (scratch.output("o", like=x.v_a), scratch.output("lse", like=x.s_a))
        Graph.captured = staticmethod(self.run)

    def run(self):
        for buffer, value in zip(self.out, relating.right(self.x), strict=True):
            buffer.copy_(value)


def test_a_right_call_passes_on_another_stream_and_replayed(device):
    assert judged(Merge)[0].status == "pass"
    beside = op("merge_state").axes.case(**{**MERGE.point, "relation": "stream"})
    assert judged(Merge, beside)[0].status == "pass"


def test_what_a_replay_does_not_write_shows(device):
    class Once(Merge):
        def prepare(self, x, scratch):
            super().prepare(x, scratch)
            Graph.captured = staticmethod(lambda: None)

    result, _ = judged(Once)
    assert (result.status, result.reason) == ("mismatch", "unwritten")
    assert result.detail.startswith("in the call with the same inputs, captured in a graph and replayed twice: ")


def test_replays_that_differ_break_the_promise(device):
    class Counting(Merge):
        calls = 0

        def run(self):
            super().run()
            type(self).calls += 1
            self.out[1].copy_(torch.nextafter(self.out[1], self.out[1] + self.calls))

    result, _ = judged(Counting)
    assert result.status == "pass"  # always one ulp up: equal
    Counting.run = lambda self: (Merge.run(self), setattr(Counting, "calls", Counting.calls + 1), self.out[1].mul_(1 + (Counting.calls % 2) * 2.0**-23))[0]
    result, _ = judged(Counting)
    assert (result.status, result.reason) == ("nondeterministic", "repeat")
    assert "two replays of one graph are not equal to the bit" in result.detail


def test_replays_that_draw_alike_are_found(device):
    result, _ = judged(relating.DrawsBeforeTheGraph, SAMPLE)
    assert (result.status, result.reason) == ("mismatch", "reused-random")
    assert "two replays of one graph drew the same 48 tokens" in result.detail


def test_a_call_that_cannot_be_captured_is_unsupported_and_the_worker_given_up(device):
    def refuse(_):
        raise RuntimeError("operation not permitted when stream is capturing")

    device.setattr(Graph, "capture_begin", refuse)
    result, healthy = judged(Merge)
    assert (result.status, healthy) == ("unsupported", False)
    assert "cannot be captured in a graph: RuntimeError: operation not permitted" in result.detail


def test_a_capture_that_breaks_off_is_ended_and_keeps_the_words_of_the_call(device):
    ended = []

    def end(_):
        ended.append(True)
        raise RuntimeError("the stream is not capturing")

    class Fails(Merge):
        def run(self):
            if Stream.capturing:
                raise RuntimeError("a length was asked for")
            return super().run()

    device.setattr(Graph, "capture_begin", lambda _: setattr(Stream, "capturing", True))
    device.setattr(Graph, "capture_end", end)
    device.setattr(Stream, "capturing", False, raising=False)
    result, healthy = judged(Fails, name="fails")
    assert (result.status, healthy, ended) == ("unsupported", False, [True])
    assert "RuntimeError: a length was asked for" in result.detail


def test_a_call_is_captured_on_the_stream_that_it_was_warmed_up_on(device):
    entered = []
    device.setattr(torch.cuda, "stream", lambda stream: entered.append(stream) or contextlib.nullcontext())
    capture(lambda: entered.append("called"))
    assert entered == [entered[0], "called", entered[0], "called"]


# ---- graphs replayed when the requests have grown ----


@pytest.fixture
def recorded(device):
    device.setattr(torch.cuda, "CUDAGraph", RecordedGraph)
    return device


def test_a_graph_that_reads_its_lengths_on_the_device_holds_for_longer_ones(recorded):
    result, healthy = judged(relating.ReadsLengthsOnTheDevice, GROWN)
    assert (result.status, healthy) == ("pass", True), result.detail
    assert result.figures["o"]["apart"] == 0.0


@pytest.mark.parametrize("fault", [relating.PlansForTheLengthsOfTheCapture, relating.KeepsThePagesOfTheCapture])
def test_what_the_host_settled_at_the_capture_shows_when_requests_grow(recorded, fault):
    case = FAULTS[f"fault_{fault.__name__}"].case
    result, _ = judged(fault, case)
    assert (result.status, result.reason) == ("mismatch", "numerics")
    assert result.detail.startswith("in the call with a graph captured while the requests were short, replayed as they are now: Output 'o'")
    replayed = op(case.op).axes.case(**{**case.point, "relation": "replay"})
    assert judged(fault, replayed)[0].status == "pass"  # lengths that stay hide it


def test_a_refill_that_overwrites_nothing_shows_in_the_replay_at_the_capture(recorded):
    class Forgets(relating.ReadsLengthsOnTheDevice):
        def refill(self, x):
            pass

    result, _ = judged(Forgets, GROWN)
    assert (result.status, result.reason) == ("mismatch", "numerics")
    assert result.detail.startswith("in the replay at the lengths of the capture: Output 'o'")


def test_a_length_brought_to_the_host_cannot_be_captured(recorded):
    class Asks(relating.ReadsLengthsOnTheDevice):
        def run(self):
            self.bound = int(self.lengths.max())
            super().run()

    result, healthy = judged(Asks, GROWN)
    assert (result.status, healthy) == ("unsupported", False)
    assert "operation not permitted when stream is capturing" in result.detail


def test_a_provider_that_cannot_be_refilled_says_so(recorded):
    result, healthy = judged(relating.right, GROWN)
    assert (result.status, result.reason, healthy) == ("unsupported", "declined", True)
    assert result.detail.startswith("it has no refill(x)")


def test_cases_that_cannot_grow_are_refused():
    for name, case, why in (
        ("mla_decode", "b2-q4-h5-s4-fp32-longer", "as short as those of a capture"),
        ("verify_attention", "b3-h6-kv2-n4-p1-d16-fp32-longer", "as short as those of a capture"),
        ("verify_attention", "b3-h6-kv2-n4-p40-d16-pg8-fp32-longer", "where a page begins"),
    ):
        with pytest.raises(UsageError, match=why):
            op(name).axes.parse(case)
