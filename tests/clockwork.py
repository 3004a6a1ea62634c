"""A device with nothing behind it: time passes on it as launches say, beside the host's, and events and graphs see that time."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from harness.machine.clock import timer

CALL = 4.0  # microseconds of the host that one call of the runtime takes
FLUSH = 60.0  # microseconds of the device that emptying the cache takes


class Clockwork:
    """`host` and `device` are at so many microseconds, `factor` slows the device down."""

    def __init__(self) -> None:
        self.host = self.device = 0.0
        self.factor = 1.0
        self.refuses = ""  # why a capture fails
        self.capturing: list[float] | None = None

    def launch(self, us: float) -> None:
        """A kernel that takes so long."""
        self.host += CALL
        if self.capturing is not None:
            self.capturing.append(us)
        else:
            self.device = max(self.device, self.host) + self.factor * us

    def synchronize(self) -> None:
        self.host = max(self.host, self.device)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes torch.cuda speak of this device."""
        clock = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                clock.host += CALL / 4
                self.at = max(clock.device, clock.host)

            def query(self) -> bool:
                return self.at <= clock.host

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) / 1000

        class Graph:
            def __init__(self) -> None:
                self.kernels: list[float] = []

            def capture_begin(self) -> None:
                if clock.refuses:
                    raise RuntimeError(clock.refuses)
                clock.capturing = self.kernels

            def capture_end(self) -> None:
                clock.capturing = None

            def replay(self) -> None:
                clock.host += CALL
                clock.device = max(clock.device, clock.host) + clock.factor * sum(self.kernels)

        class Controls:
            def __init__(self, device: str) -> None:
                pass

            def __getitem__(self, name: str):
                return lambda: clock.launch({"copy": 70.0, "matmul": 200.0}[name])

        stream = SimpleNamespace(wait_stream=lambda other: None)
        for name, value in {
            "Event": Event,
            "CUDAGraph": Graph,
            "synchronize": self.synchronize,
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": lambda stream: contextlib.nullcontext(),
            "clock_rate": lambda: 1980,
            "_sleep": lambda cycles: clock.launch(cycles / 1980),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(timer, "Flush", lambda device, arch: lambda: clock.launch(FLUSH))
        monkeypatch.setattr(timer, "Controls", Controls)
