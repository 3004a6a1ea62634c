"""Why nothing may be refreshed from a log: parity, the ledger, throttling, a restless control."""

from __future__ import annotations

import pytest

from harness.store import ratchet
from harness.store.ledger import Entry, Ledger
from harness.store.results import Result
from harness.store.timing import Timing


def _result(**more) -> Result:
    return Result(**{"cell": "o[p-a]", "op": "o", "provider": "p", "case": "a", "status": "pass", "platform": "cuda", **more})


def _times(*control: float, stop: str = "converged") -> list[Timing]:
    return [Timing("graph", 50, 50, 50, 20, stop, control="copy", control_us=us) for us in control]


KNOWN = Ledger([Entry("o", "p", "a known bug", status="mismatch")])


@pytest.mark.parametrize(
    ("result", "ledger", "says"),
    [
        (_result(status="mismatch"), Ledger(), "ended with mismatch"),
        (_result(status="error"), Ledger(), "ended with error"),
        (_result(), KNOWN, "settle the ledger first"),
        (_result(timings=_times(*[67] * 8) + _times(67, stop="throttled")), Ledger(), "1 of 9 runs were taken on a throttled device"),
        (_result(timings=_times(67, 75, 80)), Ledger(), "the control copy varied by"),
    ],
)
def test_a_refresh_is_refused(result, ledger, says):
    (line,) = ratchet.objections([result], ledger)
    assert says in line


def test_a_cell_without_a_run_on_a_cool_device_is_named():
    first, second = ratchet.objections([_result(timings=_times(67, 67, stop="throttled"))], Ledger())
    assert "o[p-a] was timed on a throttled device, in every run" in first
    assert "2 of 2 runs" in second


@pytest.mark.parametrize(
    "result",
    [
        _result(timings=_times(67, 67.1, 66.9)),
        _result(timings=_times(*[67] * 9) + _times(67, stop="throttled")),
        _result(status="refused"),
        _result(status="mismatch"),
    ],
)
def test_a_refresh_is_not_refused(result):
    ledger = KNOWN if result.status == "mismatch" else Ledger()
    assert ratchet.objections([result], ledger) == []
