"""What several modules of tests share."""

from __future__ import annotations

import signal
import sys

import pytest
from clockwork import Clockwork
from hypothesis import settings
from timed_logs import DEVICE, H200

from harness import cli
from harness.store import baselines

# how long an example takes says how busy the machine is; what must be quick has a test of its own
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it leaves in the background; what tests interrupt would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def clock(monkeypatch):
    device = Clockwork()
    device.install(monkeypatch)
    return device


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path):
    """Types a command in this process, in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kernel-parity", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def refresh(typed, tmp_path):
    """Types a refresh into the folder `kept`, without a ledger."""

    def run(*arguments: str):
        return typed("refresh", "--ledger", "none", "--baselines", str(tmp_path / "kept"), *arguments)

    return run


@pytest.fixture
def kept(tmp_path):
    """The baselines that lie there, by family."""

    def read():
        return {path.stem: baselines.load(path, H200) for path in sorted((tmp_path / "kept" / DEVICE).glob("*.json"))}

    return read
