"""A gate's outcome as JUnit XML, which CI systems show: a test case a cell, and one a trial of the gate's own power."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from harness.report.gate import Night
from harness.speed.ladder import Called, Tried
from harness.store.ledger import Verdict
from harness.store.results import QUIET, Result

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold, escaped or not


def junit(night: Night) -> str:
    """The document. Characters that XML cannot hold are written as `\\x1b`."""
    suite = ET.Element("testsuite", name="kernel-parity gate")
    for result, verdict in night.rows:
        _cell(suite, result, verdict, night.called.get(result.cell))
    shown = {result.cell for result, _ in night.rows}
    for one in night.called.values():
        if one.cell not in shown:
            _fail(_case(suite, one.cell.partition("[")[0], one.cell), one)
    for trial in night.trials:
        _trial(suite, trial)
    for kind in ("failure", "error", "skipped"):
        suite.set(f"{kind}s" if kind != "skipped" else kind, str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("tests", str(len(suite)))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=False).join(('<?xml version="1.0" encoding="utf-8"?>\n', "\n"))


def _case(suite: ET.Element, group: str, name: str, seconds: float = 0.0) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_plain(group), name=_plain(name), time=f"{seconds:.3f}")


def _cell(suite: ET.Element, result: Result, verdict: Verdict, called: Called | None) -> None:
    case = _case(suite, result.op, result.cell, sum(result.seconds.values()))
    if verdict.bad or verdict.kind == "error":
        kind = "error" if verdict.kind == "error" else "failure"
        _said(case, kind, result.status, f"{result.status} {result.reason or verdict.why}".strip(), result.detail)
    elif called is not None and called.fails:
        _fail(case, called)
    elif result.status in QUIET:
        _said(case, "skipped", result.status, f"{result.status}: {result.detail.partition(chr(10))[0]}", "")


def _fail(case: ET.Element, called: Called) -> None:
    if not called.fails:
        return
    times = f"{called.us:.4g} us, {called.ratio:.3f} of {called.was:.4g} us" if called.was and called.us else f"{called.us:.4g} us"
    kernels = f"kernels then: {', '.join(called.identity.then) or '-'}\nkernels now: {', '.join(called.identity.now) or '-'}"
    _said(case, "failure", called.word, f"{called.word} {called.why}".strip(), f"{times}\n{kernels}\nremedy: {called.remedy or '-'}")


def _trial(suite: ET.Element, trial: Tried) -> None:
    case = _case(suite, "power", f"{trial.wanted}: {trial.cell}")
    if not trial.seen:
        _said(case, "failure", "blind", f"called {trial.got.word}, not {trial.wanted}", trial.by)


def _said(case: ET.Element, tag: str, kind: str, message: str, text: str) -> None:
    ET.SubElement(case, tag, type=_plain(kind), message=_plain(message)).text = _plain(text)


def _plain(text: str) -> str:
    return _FORBIDDEN.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
