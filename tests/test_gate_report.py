"""The pages of a gate, whatever they are told: JUnit that every parser reads, tables that keep their rows, the drift lane."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.report.gate import Night, counts, markdown, power, text
from harness.report.junit import junit
from harness.speed.identity import Identity
from harness.speed.ladder import FAILS, WORDS, Called, Tried
from harness.store.ledger import Verdict
from harness.store.results import FINDINGS, QUIET, Result

words = st.text(max_size=30)
statuses = st.sampled_from(["pass", *FINDINGS, *QUIET, "error"])


def result(status: str, said: str = "", cell: str = "o[p-a]") -> Result:
    return Result(cell, "o", "p", "a", status, "cuda", "measured", said, said)


def judged(status: str, said: str) -> tuple[Result, Verdict]:
    return result(status, said), Verdict("error" if status == "error" else "finding" if status in FINDINGS else "ok", why=said)


def called(word: str, said: str = "", cell: str = "o[p-a]", **more) -> Called:
    return Called(cell, word, said, 110.0, 100.0, 1.1, 1.01, identity=Identity(now=(said,), then=("_fwd_kernel",)), remedy=said, **more)


@given(statuses, st.sampled_from(WORDS), words)
def test_junit_is_read_back_whatever_a_provider_says(status, word, said):
    night = Night(
        [judged(status, said)], {"o[p-a]": called(word, said), "o[p-b]": called("gone", said, "o[p-b]")}, [Tried("o[p-a]", "slow", said, called(word))]
    )
    suite = ET.fromstring(junit(night))
    assert suite.get("tests") == "3"
    bad = (status in FINDINGS) or (status != "error" and word in FAILS)
    assert suite.get("failures") == str(bad + 1 + (word != "slow"))
    assert suite.get("errors") == str(int(status == "error"))


def test_what_xml_cannot_hold_is_written_out():
    failure = ET.fromstring(junit(Night([judged("crash", "\x1b[31m \x00 \ud800 \U0001f600 <&>")]))).find("testcase/failure")
    assert failure.text == "\\x1b[31m \\x00 \\xd800 \U0001f600 <&>"


@settings(deadline=None)  # scipy is imported in the first
@given(st.lists(st.tuples(st.sampled_from(WORDS), words), max_size=5), words)
def test_every_finding_has_one_row_of_as_many_columns(cells, said):
    night = Night([judged("mismatch", said)], {str(number): called(word, told, str(number)) for number, (word, told) in enumerate(cells)})
    page = markdown(night, red=True)
    section = page.split("### Slower, or other kernels")[1] if night.failing else ""
    rows = [line for line in section.split("###")[0].split("\n") if line.startswith("|")]
    assert len(rows) == (2 + len(night.failing) if night.failing else 0)
    assert {row.replace("\\|", "").count("|") for row in rows} <= {11}
    for one in night.failing:
        assert f"{one.cell}: {one.word}" in text(night)


def test_findings_come_first_the_worst_kind_on_top():
    found = {word: called(word, cell=word) for word in ("same", "slow", "gone", "fallback", "fast")}
    night = Night([], found)
    assert [one.word for one in night.failing] == ["fallback", "slow", "gone"]
    assert counts(night).splitlines()[-1] == "speed and kernels: 1 fallback, 1 slow, 1 gone, 1 fast, 1 same; findings 3"


def test_the_drift_lane_holds_what_stands_out_over_all_cells_and_fails_nothing():
    cells = {str(number): called("same", cell=str(number), chance=0.3 + 0.01 * number) for number in range(40)}
    assert Night([], cells).drifts == []
    night = Night([], {**cells, "creeps": called("same", cell="creeps", chance=1e-5), "slow": called("slow", cell="slow", chance=1e-9)})
    assert [one.cell for one in night.drifts] == ["creeps"]
    assert "### Drift lane" in markdown(night, red=False)
    assert "creeps" in text(night)


def test_the_rates_of_the_power_check_are_printed():
    night = Night([], {}, [Tried("a", "slow", "3 us more", called("slow")), Tried("b", "slow", "3 us more", called("same"))])
    assert power(night) == [
        "power: a slow provider forced, not tried: no cell here shows it",
        "power: a delay on the device, seen as slow in 1 of 2 (3 us more, 3 us more)",
        "power: b by 3 us more was called same, not slow: this gate is blind",
    ]
    assert power(Night([], unjudged="no GPU here")) == []
