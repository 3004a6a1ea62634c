"""`kernel-parity refresh` with runs of its own, on a device that is described, and what of a run need not be timed."""

from __future__ import annotations

import pytest
from clockwork import Clockwork
from timed_logs import H200, log, result

from harness.contracts import op
from harness.machine.execute import Bench
from harness.machine.platforms import Device
from harness.machine.timed import Stopwatch
from harness.providers import implements, providers, registry
from harness.selection import DEFAULT_CASES
from harness.session import Session
from harness.store import baselines
from harness.store.results import Result, read
from harness.store.timing import Kernel


class Here:
    """A worker in this process, whose device is a clockwork; `starts`: the machine start of each fresh process."""

    def __init__(self, clock, start: str) -> None:
        self.clock, self.start = clock, start
        self.renewed = 0
        self.renew()

    def renew(self) -> None:
        self.renewed += 1
        self.bench = Bench(Device("cuda", "cpu", H200, self.start))
        self.stopwatch = Stopwatch(self.bench)

    def run(self, request):
        provider, case = providers()[request.op, request.provider], op(request.op).axes.parse(request.case)
        if request.task == "judge":
            return self.bench.run(case, provider, request.platform, request.seed)[0]
        return self.stopwatch.run(case, provider, request.platform, request.seed, mode=request.task, why=request.why)[0]

    def kernels(self, requests):
        return [(Kernel("merge_state_kernel"),) for _ in requests]

    def close(self) -> None:
        pass


@pytest.fixture
def described(monkeypatch, tmp_path):
    """A merging op's provider whose kernel takes `us` of a described device, alone in a preset of three cases: (worker, provider)."""
    clock = Clockwork()
    clock.install(monkeypatch)
    cases = tmp_path / "cases"
    (cases / "presets/baseline").mkdir(parents=True)
    (cases / "presets/baseline/merge_state.txt").write_text("t3-h2-d16-fp32\nt4-h2-d16-fp32\nt5-h2-d16-fp32\n")
    (cases / "kernels.toml").write_bytes((DEFAULT_CASES / "kernels.toml").read_bytes())
    plain = providers()["merge_state", "torch_eager"]

    class Timed:
        us = 100.0

        def prepare(self, x, scratch):
            self.made = plain.make()
            self.made.prepare(x, scratch)

        def run(self):
            clock.launch(self.us)
            return self.made.run()

    implements("merge_state", library="torch", name="described", platforms={"cuda"}, semantics=plain.semantics)(Timed)
    monkeypatch.setitem(registry._providers, ("merge_state", "described"), registry._providers.pop(("merge_state", "described")))
    worker = Here(clock, "boot-1")
    monkeypatch.setattr(Session, "_worker", lambda self, slot: self._workers.setdefault(slot, worker))
    return worker, Timed


def test_without_a_log_the_preset_is_run_and_timed(described, refresh, kept, tmp_path):
    worker, provider = described
    own = ("--cases", "cases", "--platform", "cuda", "--preset", "baseline", "--append")
    code, out, _ = refresh(*own)
    cells = kept()["merging"].cells
    assert (code, set(cells)) == (0, {f"merge_state[described-t{tokens}-h2-d16-fp32]" for tokens in (3, 4, 5)})
    assert all(cell == baselines.Cell("graph", {"boot-1": [100.0] * 3}, 100.0, ["merge_state_kernel"], beside=70.0) for cell in cells.values())
    assert kept()["controls"].cells["control-copy"].runs == {"boot-1": [70.0] * 3}
    assert kept()["merging"].starts["boot-1"].driver == "580.159"
    assert (tmp_path / "results-baseline.jsonl").is_file()
    assert worker.renewed == 4
    worker.start, provider.us = "boot-2", 120.0
    code, out, _ = refresh(*own)
    assert (code, out.count("# slower")) == (1, 3)
    assert "--results results-baseline.jsonl" in out
    code, _, _ = refresh(
        "--append", "--cases", "cases", "--results", "results-baseline.jsonl", "--accept", "merge_state[described-*=a slower kernel, on purpose"
    )
    assert code == 0
    assert {tuple(cell.runs) for cell in kept()["merging"].cells.values()} == {("boot-2",)}
    worker.start = "boot-3"
    code, _, _ = refresh(*own, "--only", "merge_state[described-t3-h2-d16-fp32]")
    runs = {name: list(cell.runs) for name, cell in kept()["merging"].cells.items()}
    assert (code, sorted(map(len, runs.values()))) == (0, [1, 1, 2])
    assert "boot-3" not in kept()["controls"].starts


def test_a_wrong_kernel_stops_it(described, refresh, tmp_path):
    _, provider = described
    provider.run = lambda self: tuple(value + 1 for value in self.made.run())
    code, out, _ = refresh("--cases", "cases", "--platform", "cuda")
    assert (code, out.count("ended with mismatch; a baseline needs what is right")) == (1, 3)
    assert not (tmp_path / "kept").exists()


def test_a_call_that_fails_only_when_it_is_timed_stops_it_from_the_log_too(described, refresh, monkeypatch, tmp_path):
    worker, _ = described
    plain = worker.run

    def run(request):
        """The second timed run of one case dies."""
        if request.task != "judge" and request.case.startswith("t5-"):
            asked.append(request.case)
        if len(asked) < 2 or not request.case.startswith("t5-"):
            return plain(request)
        return Result(f"merge_state[described-{request.case}]", "merge_state", "described", request.case, "crash", "cuda", reason="signal SIGABRT")

    asked: list[str] = []
    monkeypatch.setattr(worker, "run", run)
    assert refresh("--cases", "cases", "--platform", "cuda")[0] == 1
    code, out, _ = refresh("--cases", "cases", "--results", "results-baseline.jsonl")
    assert (code, "merge_state[described-t5-h2-d16-fp32] ended with crash" in out) == (1, True)
    runs = {row.case: len(row.timings) for row in read(tmp_path / "results-baseline.jsonl") if row.timings}
    assert list(runs.values()) == [3, 3, 1], "the run before it is kept"


def test_what_nobody_waits_for_need_not_be_timed(refresh, tmp_path):
    """Plain PyTorch, and draws that a judge counts; another row without times means that the run was broken off."""
    plain = result("mla_decode[torch_eager-b32-h12-s4096-pg64-bf16]")
    many, few = result("sample[flashinfer-b4-v1000-n20000]"), result("sample[flashinfer-b4-v1000]")
    assert refresh("--results", log(tmp_path / "x.jsonl", plain, many))[0] == 0
    code, out, _ = refresh("--results", log(tmp_path / "y.jsonl", plain, many, few))
    assert code == 1
    assert f"{few.cell} passed and was not timed" in out
    assert "torch_eager" not in out
    named = result("mla_decode[torch_eager-b32-h16-s4096-pg64-bf16]", 95.0)
    assert f"{plain.cell} passed and was not timed" in refresh("--results", log(tmp_path / "z.jsonl", plain, named))[1]
