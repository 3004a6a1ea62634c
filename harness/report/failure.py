"""One failure in words: the call with its shapes, what was expected, what came, and how to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from harness.store.ledger import Verdict
from harness.store.results import Result


def explain(result: Result, verdict: Verdict, *, plugins: Sequence[str] = (), ledger: str | None = None) -> str:
    """The text of a result that is not as it should be; `plugins` and `ledger` as they were given, for the command that runs it again."""
    arguments = ", ".join(f"{name}={shape}" for name, shape in result.inputs.items())
    case = ", ".join(f"{axis}={value}" for axis, value in result.values.items())
    lines = [
        f"{result.cell}: {result.status}" + (f" ({result.reason})" if result.reason else "") + f", {result.evidence} on {where(result)}",
        f"case: {case}" + (f", seed {result.seed}" if result.seed else "") if case else "",
        f"call: {result.op}({arguments})" if arguments else "",
        result.detail,
    ]
    if verdict.kind == "gone" and verdict.entry:
        lines.append(f"{verdict.why}; remove or narrow {verdict.entry.place}")
    elif verdict.entry:
        lines.append(verdict.why)
    lines += [f"note: {note}" for note in result.notes]
    if result.case:
        options = shlex.quote(result.cell) + "".join(f" --plugin {shlex.quote(name)}" for name in plugins)
        options += (f" --seed {result.seed}" if result.seed else "") + (" --platform cpu" if result.platform in ("cpu", "interpret") else "")
        judged = f" --ledger {shlex.quote(ledger)}" if ledger else ""
        lines.append(f"again: kernel-parity run --cell {options}{judged}   alone: kernel-parity repro {options}")
    return "\n".join(line for line in lines if line)


def where(result: Result) -> str:
    """The device and the library versions, short."""
    device = result.device.get("name", "no device")
    named = " ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"{device} ({named})" if named else device
