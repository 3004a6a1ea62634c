"""Times from a result to the table: which cells are timed, in which runs, what is kept, and what the profiler's trace says ran."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import report
from harness.commands import timing
from harness.machine.kernels import by_range
from harness.providers import providers
from harness.selection import Cell
from harness.session import Session
from harness.speed.roofline import COPIED, SIDE, ceilings, fraction
from harness.store.results import Result, decode, encode
from harness.store.timing import Kernel, Remedy, Timing

EAGER = providers()["merge_state", "torch_eager"]


def cell(case: str = "t3-h2-d16-fp32", provider=EAGER) -> Cell:
    from harness.contracts import op

    return Cell("merge_state", provider, op("merge_state").axes.parse(case), "cuda")


def row(one: Cell, **more) -> Result:
    return Result(one.id, "merge_state", one.provider.name, one.case.id, "pass", "cuda", "measured", values=dict(one.case.point), **more)


def timed(us: float, mode: str = "graph", **more) -> Timing:
    return Timing(mode, us, us, us, 20, "converged", control="copy", control_us=67.0, **more)


class Workers:
    """Stands for the workers of a session: what they are asked, and what they answer."""

    def __init__(self, answers) -> None:
        self.answers, self.asked, self.profiled = answers, [], []

    def __call__(self, slot: int):
        return SimpleNamespace(run=self.run, kernels=self.kernels)

    def kernels(self, requests):
        """A call whose case is t5 fails, and with it all that are asked together with it."""
        self.profiled.append(len(requests))
        return [] if any(request.case.startswith("t5-") for request in requests) else [(Kernel(f"k-{request.case}"),) for request in requests]

    def run(self, request):
        self.asked.append((request.case, request.task, request.why))
        return self.answers(request)


@pytest.fixture
def session(monkeypatch):
    def make(answers):
        one = Session("cuda")
        workers = Workers(answers)
        monkeypatch.setattr(one, "_worker", workers)
        return one, workers

    return make


def answer(request, **more) -> Result:
    return Result("", request.op, request.provider, request.case, "pass", "cuda", "measured", **more)


# ---- runs ----


def test_once_a_call_is_in_no_graph_all_cells_of_it_are_timed_by_plain_calls(session):
    def answers(request):
        if request.task == "graph":
            return Result("", request.op, request.provider, request.case, "unsupported", "cuda", reason="no graph", detail="a sync inside")
        return answer(request, timings=[timed(9.0, request.task, why=request.why)])

    one, workers = session(answers)
    first, second = one.time(cell()), one.time(cell("t5-h2-d16-fp32"))
    assert [asked[1:] for asked in workers.asked] == [("graph", ""), ("eager", "a sync inside"), ("eager", "a sync inside")]
    assert first.timings[0].why == second.timings[0].why == "a sync inside"


def test_each_run_goes_over_all_cells_and_is_kept_as_it_comes(session):
    times = iter(range(1, 100))
    one, workers = session(lambda request: answer(request, timings=[timed(float(next(times)))]))
    cells = [cell(), cell("t5-h2-d16-fp32")]
    results = {each.id: row(each) for each in cells}
    kept = []
    failed = timing.take(one, cells, results, runs=3, step=lambda result: kept.append(encode(result)))
    assert failed == []
    assert [asked[0] for asked in workers.asked] == ["t3-h2-d16-fp32", "t5-h2-d16-fp32"] * 3
    assert [len(decode(line).timings) for line in kept] == [1, 1, 2, 2, 3, 3, 3]
    assert decode(kept[-1]).timings[-1].kernels == (Kernel("k-t3-h2-d16-fp32"),)
    assert [each.median for each in results[cells[0].id].timings] == [1.0, 3.0, 5.0]


def test_a_run_that_was_broken_off_goes_on_with_what_is_left():
    cells = [cell(), cell("t5-h2-d16-fp32")]
    results = {cells[0].id: row(cells[0], timings=[timed(1.0), timed(1.0)]), cells[1].id: row(cells[1], timings=[timed(1.0)])}
    assert timing.timeable(cells, results, 3) == [[], [cells[1]], cells]


def test_only_what_is_right_on_a_device_in_one_plain_call_is_timed():
    wrong, interpreted, law, right = row(cell()), row(cell()), row(cell()), row(cell())
    wrong.status, interpreted.evidence, law.values["relation"] = "mismatch", "interpreted", "repeat"
    assert [bool(timing.timeable([cell()], {cell().id: one}, 1)[0]) for one in (wrong, interpreted, law, right)] == [False, False, False, True]


def test_what_nobody_waits_for_is_not_timed():
    one = cell()
    assert timing.timeable([replace(one, awaited=False)], {one.id: row(one)}, 1) == [[]]


def test_what_ends_a_timed_call_is_not_asked_again_and_told(session):
    one, workers = session(lambda request: Result(cell().id, request.op, request.provider, request.case, "crash", "cuda", reason="signal SIGABRT"))
    each = cell()
    (failed,) = timing.take(one, [each], {each.id: row(each)}, runs=3, step=lambda result: None)
    assert (failed.status, len(workers.asked)) == ("crash", 1)


def test_a_call_that_fails_under_the_profiler_takes_no_other_with_it(session):
    one, workers = session(lambda request: answer(request))
    cells = [cell(f"t{tokens}-h2-d16-fp32") for tokens in (1, 2, 3, 4, 5)]
    assert list(one.kernels(cells)) == [each.id for each in cells[:4]]
    assert workers.profiled == [5, 2, 3, 1, 2, 1, 1]


def test_nothing_is_timed_without_a_device(typed):
    code, out, err = typed("run", "--timing", "--platform", "cpu", "--op", "merge_state")
    assert (code, out) == (2, "")
    assert "--timing needs a GPU" in err
    assert len(err.splitlines()) == 1


# ---- the table ----


def test_the_table_says_how_near_to_the_roofline_and_what_to_doubt():
    one = cell("t64-h8-fp32")
    result = row(one, timings=[timed(100.0), timed(102.0, host_bound=0.5), timed(104.0)])
    text = timing.tables([result, row(cell())])
    (line,) = text.splitlines()[2:]
    from harness.contracts import op

    moved = op("merge_state").impl.work(one.case).bytes
    share = 100 * (moved / (2 * COPIED / 67e-6)) / 102e-6
    for word in (one.id, "graph", "102.00", "3.92 %", f"{share:.1f} %", "host-bound"):
        assert word in line


def test_a_step_between_head_counts_and_a_gap_between_providers_are_shown():
    other = providers()["merge_state", "sglang_triton"]
    slow, wide = cell("t64-h12-fp32"), cell("t64-h16-fp32")
    rows = [row(slow, timings=[timed(250.0), timed(251.0), timed(252.0)]), row(wide, timings=[timed(100.0), timed(101.0), timed(100.5)])]
    rows.append(row(cell("t64-h12-fp32", other), timings=[timed(50.0)]))
    text = timing.tables(rows)
    step = next(line for line in text.splitlines() if "heads 12 -> 16" in line)
    pad = 1e6 * 2 * moved_by_heads(16) / (2 * COPIED / 67e-6)
    for word in (slow.id, "251.00", "100.50", f"{pad:.2f}", f"{251.0 / (100.5 + pad):.2f}", "heads of zeros"):
        assert word in step
    gap = next(line for line in text.splitlines() if "sglang_triton" in line and "times" in line)
    assert gap.split() == [slow.id, "5.0", "times", "sglang_triton", "graph"]


def test_padding_is_tried_where_heads_have_a_cliff(session):
    def answers(request):
        padded = request.case.endswith("-padheads")
        return answer(request, timings=[] if request.task == "judge" else [timed(104.0 if padded else 251.0)])

    one, workers = session(answers)
    slow, wide = cell("t64-h12-fp32"), cell("t64-h16-fp32")
    results = {slow.id: row(slow, timings=[timed(250.0), timed(251.0)]), wide.id: row(wide, timings=[timed(100.0), timed(101.0)])}
    timing.remedies(one, [slow, wide], results, [slow.id], runs=2, step=lambda result: None)
    assert [asked[:2] for asked in workers.asked] == [("t64-h12-fp32-padheads", task) for task in ("judge", "graph", "graph")]
    assert results[slow.id].remedy == Remedy("padheads", "pass", [104.0, 104.0], pytest.approx(16 / 12, rel=1e-3))
    assert results[wide.id].remedy is None
    assert "padheads: right, 104.00 us, 2.41 times as fast with 1.33 of the arithmetic" in timing.tables(list(results.values()))


def test_a_remedy_that_gives_wrong_numbers_is_not_timed(session):
    one, workers = session(lambda request: Result("", request.op, request.provider, request.case, "mismatch", "cuda", reason="numerics"))
    slow, wide = cell("t64-h12-fp32"), cell("t64-h16-fp32")
    results = {slow.id: row(slow, timings=[timed(250.0), timed(251.0)]), wide.id: row(wide, timings=[timed(100.0), timed(101.0)])}
    timing.remedies(one, [slow, wide], results, [slow.id], runs=2, step=lambda result: None)
    assert results[slow.id].remedy == Remedy("padheads", "mismatch", [], pytest.approx(16 / 12, rel=1e-3))
    assert "padheads: mismatch" in timing.tables(list(results.values()))
    assert len(workers.asked) == 1


def moved_by_heads(heads: int) -> int:
    from harness.contracts import op

    impl = op("merge_state").impl
    return (impl.work(cell("t64-h2-fp32").case).bytes - impl.work(cell("t64-h1-fp32").case).bytes) * heads


def test_runs_of_two_modes_and_noise_are_said():
    noisy = timed(2.0, "eager")
    noisy.stop = "noisy"
    text = report.timed([row(cell(), timings=[timed(1.0), noisy])], lambda result, us: None)
    assert "noisy, runs of two modes" in text


# ---- the roofline ----


def test_ceilings_come_from_the_controls():
    measured = ceilings([("copy", 67.0), ("copy", 69.0), ("copy", 300.0), ("matmul", 200.0)])
    assert measured.bandwidth == pytest.approx(2 * COPIED / 69e-6)
    assert measured.rate == pytest.approx(2 * SIDE**3 / 200e-6)
    assert fraction(69.0, measured.least(0, 2 * COPIED)) == pytest.approx(1.0)
    assert fraction(400.0, measured.least(2 * SIDE**3, 8)) == pytest.approx(0.5)


def test_without_the_control_that_bounds_it_there_is_no_share():
    copies, products = ceilings([("copy", 67.0)]), ceilings([("matmul", 200.0)])
    assert copies.least(10**6, 10) is products.least(10, 10) is None
    assert copies.least(10, 10) > 0 < products.least(10**6, 10)
    assert fraction(1.0, None) is None


@given(st.integers(0, 10**15), st.integers(1, 10**12), st.integers(1, 1000))
def test_more_work_of_a_kind_takes_as_much_more(flops, moved, more):
    measured = ceilings([("copy", 67.0), ("matmul", 200.0)])
    assert measured.least(flops * more, moved * more) == pytest.approx(more * measured.least(flops, moved))


# ---- the profiler's trace ----


def kernel_event(name: str, ts: float, cat: str = "kernel", **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": 3.25, "args": args}


def call_event(number: int, ts: float, dur: float, cat: str = "user_annotation"):
    return {"ph": "X", "cat": cat, "name": f"kernel-parity call {number}", "ts": ts, "dur": dur, "args": {}}


def test_kernels_are_those_within_the_range_of_their_call():
    shape = {"grid": [12, 1, 1], "block": [128, 1, 1], "registers per thread": 64, "shared memory": 49152}
    events = [
        {"ph": "M", "name": "process_name"},
        call_event(1, 200.0, 50.0),
        call_event(0, 100.0, 50.0),
        call_event(0, 101.0, 40.0, "gpu_user_annotation"),
        kernel_event("second", 130.0),
        kernel_event("first", 110.0, **shape),
        kernel_event("between", 170.0),
        kernel_event("Memset (Device)", 210.0, "gpu_memset"),
        kernel_event("cudaLaunchKernel", 105.0, "cuda_runtime"),
    ]
    found = by_range(json.loads(json.dumps(events)))
    assert found == {0: (Kernel("first", (12, 1, 1), (128, 1, 1), 64, 49152, 3.25), Kernel("second", us=3.25)), 1: (Kernel("Memset (Device)", us=3.25),)}


def test_a_call_without_a_kernel_is_there_too():
    assert by_range([call_event(0, 1.0, 1.0)]) == {0: ()}
