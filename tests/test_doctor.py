"""The doctor: what works here, and why not."""

from __future__ import annotations

import json

import pytest

from harness.commands import doctor


@pytest.fixture
def few_libraries(monkeypatch):
    monkeypatch.setattr(doctor, "LIBRARIES", {name: doctor.LIBRARIES[name] for name in ("torch", "aiter")})


def test_the_doctor_says_what_works_and_why_not(typed, few_libraries):
    code, out, _ = typed("doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["platform"] == "cpu"
    assert found["device"]["arch"] == "cpu"
    imports = {row["library"]: row["import"] for row in found["libraries"]}
    assert imports["torch"].startswith("ok")
    assert imports["aiter"] == "not installed"
    rows = {row["provider"]: row for row in found["providers"]}
    assert "merge_state" in rows["torch_eager"]["ops"]
    assert "top_k_renorm" in rows["flashinfer"]["not"]["unsupported: serves cuda; this machine is cpu"]


def test_the_doctor_ends_with_3_where_no_worker_opens_the_device(typed, few_libraries):
    code, out, _ = typed("doctor", "--platform", "cuda")
    assert code == 3
    assert "sees no cuda device" in out
