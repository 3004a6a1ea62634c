"""An error of the device that a provider leaves behind is its own, and reaches no other cell. Seen here with a described device error."""

from __future__ import annotations

import dataclasses

import pytest

from harness.contracts import op
from harness.faults.shelf import right
from harness.machine import execute
from harness.machine.execute import Bench
from harness.machine.platforms import open_device
from harness.providers import Provider, providers

CASE = op("merge_state").axes.parse("t3-h2-d16-fp32")


def provider(run) -> Provider:
    return dataclasses.replace(providers()["merge_state", "torch_eager"], make=lambda: run)


class Right:
    ran = False

    def prepare(self, x, scratch):
        self.x = x

    def run(self):
        self.ran = True
        return right(self.x)


class Refuses(Right):
    def run(self):
        self.ran = True
        raise ValueError("no such shape")


@pytest.mark.parametrize(("made", "status"), [(Right, "pass"), (Refuses, "refused")])
@pytest.mark.parametrize("left", [False, True])
def test_what_is_left_behind_is_the_providers_own(monkeypatch, made, status, left):
    run = made()

    def synchronise(device):
        if left and run.ran:
            raise RuntimeError("CUDA error: invalid argument")

    monkeypatch.setattr(execute, "synchronise", synchronise)
    bench = Bench(open_device("cpu"))
    result, healthy = bench.run(CASE, provider(run), "cpu")
    assert healthy is not left
    assert (result.status, result.reason) == (("crash", "device error") if left and made is Right else (status, result.reason))
