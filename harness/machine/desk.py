"""Cells in this very process, without a worker around them: for a desk, where a quick look matters more than isolation."""

from __future__ import annotations

import time

import torch

from harness.contracts import Case, make_inputs, op
from harness.errors import HarnessError
from harness.machine.execute import Bench
from harness.machine.platforms import open_device
from harness.machine.timed import Ready
from harness.providers import Provider
from harness.store.results import Result


class Desk:
    """The machine's device, opened here. Raises HarnessError where torch does not see it."""

    def __init__(self, machine: str) -> None:
        device = open_device(machine)
        if machine == "cpu":
            torch.set_num_threads(1)  # as a worker has it
        self._bench = Bench(device)

    def run(self, case: Case, provider: Provider, platform: str, seed: int) -> Result:
        """The cell, judged. Raises HarnessError where the call leaves this process' device unusable."""
        result, healthy = self._bench.run(case, provider, platform, seed)
        if not healthy:
            said = f"{result.cell} ended with {result.status} ({result.reason})"
            raise HarnessError(f"{said} and left this process' device unusable; without --benchmark-only each cell runs in a worker that it cannot harm")
        return result

    def ready(self, case: Case, provider: Provider, seed: int) -> Ready:
        """A call of the cell, prepared, on inputs of its own. Raises what preparing it raises."""
        device = self._bench.device
        return Ready(op(case.op), make_inputs(case, device.string, seed), provider, device)


def settled_seconds() -> float:
    """The host's clock once the device has done everything; in seconds. The clock of pytest-benchmark, so that it times kernels and not
    their launches alone."""
    torch.cuda.synchronize()
    return time.perf_counter()
