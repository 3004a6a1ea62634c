"""Takes the time of one cell in this process: prepares it anew, without the guards of a judged call, captures it and takes samples."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from harness.contracts import Case, Inputs, Op, make_inputs, op
from harness.machine.classify import classify, poisons, words_of
from harness.machine.clock import Timer
from harness.machine.delay import delayed
from harness.machine.graphs import NoGraph, capture
from harness.machine.kernels import profiled
from harness.machine.memory import Scratch
from harness.machine.platforms import Device, synchronise
from harness.machine.remedy import Padded
from harness.machine.shares import Shares
from harness.providers import Provider
from harness.speed.roofline import control_for
from harness.store.results import Result
from harness.store.timing import NO_GRAPH, Kernel, Timing

if TYPE_CHECKING:
    from harness.machine.execute import Bench

_SETS = 2  # of inputs, in turn, so that no launch finds its own data where the last one left it
_SET_BYTES = 4 << 30  # that all sets together may take; one set where they would take more


class Ready:
    """One prepared call on inputs of its own, which lie in memory as those of the judged call did; of a case with a law about head counts
    the varied call."""

    def __init__(self, declared: Op, x: Inputs, provider: Provider, device: Device) -> None:
        scratch = Scratch(device.string)
        self._changed = [(scratch.copy(getattr(x, name)), getattr(x, name)) for name in declared.mutates]
        mine = x.copy_with(**{name: copy for name, (copy, _) in zip(declared.mutates, self._changed, strict=True)})
        law = declared.relation(x.case)
        made = Padded(declared, law, provider.make()) if law else provider.make()
        began = time.perf_counter()
        made.prepare(mine, scratch)
        synchronise(device)
        self.plan = 1e6 * (time.perf_counter() - began)
        self.run: Callable[[], Any] = made.run

    def restore(self) -> None:
        """Puts back what the op overwrites."""
        for mine, original in self._changed:
            mine.copy_(original)


def _twin(x: Inputs) -> Inputs:
    """The same inputs elsewhere in memory, views of one tensor still of one: a copy takes a fraction of the time that making them takes."""
    return copy.deepcopy(x, {id(x.case): x.case})


class Stopwatch:
    """Takes times in the process and on the device of a bench."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._timer: Timer | None = None
        self._inputs: tuple[tuple[str, str, int] | None, list[Inputs]] = None, []  # of the last case: its providers follow each other

    def run(
        self, case: Case, provider: Provider, platform: str, seed: int = 0, *, mode: str = "graph", why: str = "", delay: float = 0.0
    ) -> tuple[Result, bool]:
        """The cell with its timing, or with what came in the way, and whether the process is of further use. `mode` as in `Timing`;
        `delay`: microseconds that the device waits in every launch on top.

        A call that no graph takes is `unsupported`, `no graph`: the process is then of no more use, and a fresh one should be asked for
        plain calls with that as the reason `why`.
        """
        result = self._bench.row(case, provider, platform, seed)
        shares, healthy = Shares(), True
        try:
            result.timings = [self._time(case, provider, seed, shares, mode=mode, why=why, delay=delay)]
        except NoGraph as error:
            result.status, result.reason, result.detail = "unsupported", NO_GRAPH, str(error)
            healthy = False
        except Exception as error:
            self._inputs = None, []  # a call that broke off may have changed them
            result.status, result.reason = classify(error)
            result.detail = f"in the timed calls: {type(error).__name__}: {words_of(error)}"[:4000]
            healthy = not poisons(error) and self._bench.settled()
        result.seconds = {f"timing, {share}": seconds for share, seconds in shares.close().items()}
        return result, healthy

    def kernels(self, cells: Sequence[tuple[Case, Provider, int]]) -> list[tuple[Kernel, ...]]:
        """What plain calls of the cells (with their seeds) launch, in one session of the profiler. Raises what a call raises."""

        def prepared(case: Case, provider: Provider, seed: int) -> Callable[[], Any]:
            return Ready(op(case.op), make_inputs(case, self._bench.device.string, seed), provider, self._bench.device).run

        return profiled([partial(prepared, *cell) for cell in cells])

    def _sets(self, case: Case, seed: int) -> list[Inputs]:
        """The input sets of a case, made once for all its providers: what is timed has been judged, and leaves its inputs as they are."""
        key = (case.op, case.id, seed)
        if self._inputs[0] != key:
            self._inputs = None, []  # the old ones make room first, and the private memory of their graphs, which nothing else takes back
            torch.cuda.empty_cache()
            inputs = [make_inputs(case, self._bench.device.string, seed)]
            if sum(tensor.nbytes for _, tensor in inputs[0].tensors()) * _SETS <= _SET_BYTES:
                inputs += [_twin(inputs[0]) for _ in range(_SETS - 1)]
            synchronise(self._bench.device)
            self._inputs = key, inputs
        return self._inputs[1]

    def _time(self, case: Case, provider: Provider, seed: int, shares: Shares, *, mode: str, why: str, delay: float) -> Timing:
        device = self._bench.device
        self._timer = self._timer or Timer(device.string, device.facts["arch"])
        declared = op(case.op)
        with shares.phase("inputs"):
            inputs = self._sets(case, seed)
        self._bench.begun()
        with shares.phase("prepare"):
            sets = [Ready(declared, x, provider, device) for x in inputs]
        launches = []
        for call in (delayed(one.run, delay) for one in sets):
            torch.manual_seed(2 * seed)  # a rejection sampler goes round as often as its numbers say: those of a graph are its capture's
            with shares.phase("kernel"):
                launches.append(capture(call)[0].replay if mode == "graph" else call)

        def restore() -> None:
            for one in sets:
                one.restore()

        work = declared.impl.work(case)
        control = control_for(work.flops, work.bytes)
        with shares.phase("samples"):
            taken = self._timer.take(launches, control, restore)
        low, median, high = (round(float(value), 4) for value in np.percentile(taken.us, (25, 50, 75)))
        return Timing(
            mode=mode,
            why=why,
            median=median,
            low=low,
            high=high,
            samples=len(taken.us),
            stop=taken.stop,
            discarded=taken.discarded,
            host_bound=round(taken.host_bound, 4),
            control=control,
            control_us=round(float(np.median(taken.control)), 4),
            plan=round(sets[0].plan, 1),
            clock=taken.clock,
            start=device.start,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
