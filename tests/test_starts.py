"""Which machine start it is: a boot of a device, whatever container asks."""

from __future__ import annotations

import socket

import pytest

from harness.machine.starts import start_of


@pytest.fixture
def host(tmp_path):
    """Files of a machine: (boot id or None, boot time or None) -> its root."""

    def make(boot: str | None = None, since: int | None = None):
        root = tmp_path / f"{boot}-{since}"
        (root / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        if boot:
            (root / "proc/sys/kernel/random/boot_id").write_text(boot + "\n")
        if since is not None:
            (root / "proc/stat").write_text(f"cpu 1 2 3\nbtime {since}\nprocesses 9\n")
        return root

    return make


def test_a_start_is_a_boot_and_a_device(host, monkeypatch):
    first = start_of("GPU-1", host("a", 7))
    assert len(first) == 12
    assert int(first, 16) >= 0
    assert len({first, start_of("GPU-2", host("a", 7)), start_of("GPU-1", host("b", 7))}) == 3
    monkeypatch.setattr(socket, "gethostname", lambda: "another container")
    assert start_of("GPU-1", host("a", 7)) == first


def test_without_a_boot_id_the_boot_time_and_the_name_tell(host, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "one")
    first = start_of("GPU-1", host(since=7))
    assert first == start_of("GPU-1", host(since=7)) != start_of("GPU-1", host(since=8))
    monkeypatch.setattr(socket, "gethostname", lambda: "two")
    assert start_of("GPU-1", host(since=7)) != first


def test_where_nothing_tells_nothing_is_made_up(host):
    assert start_of("GPU-1", host()) == ""
    assert start_of("GPU-1", host(since=0)) == ""
