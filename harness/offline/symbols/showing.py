"""Reports as text: hits by function, operators without a kernel, what two versions differ in, and the entries that would accept what is new."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator

from harness.offline.symbols.accepted import Entry, Judged, short
from harness.offline.symbols.package import Report
from harness.offline.symbols.scan import Hit
from harness.words import plural

_TIERS = {"default": "reached by default", "explicit-flag": "only with a server flag that no server has by itself"}


def wrapped(text: str, indent: str = "") -> str:
    """The text at the width of the terminal, 80 at least, its further lines indented; a word longer than that stays whole."""
    width = max(80, shutil.get_terminal_size((80, 24)).columns)
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False)


def lines(report: Report, judged: Judged, ledger: str = "") -> Iterator[str]:
    """A judged report; `ledger`: the file that new hits can be accepted in, empty where none is in use."""
    for tier, title in _TIERS.items():
        hits = [hit for hit in report.hits if hit.tier == tier and hit.failure != "no kernel"]
        if hits:
            yield f"{title}:\n"
        for place in dict.fromkeys((hit.file, hit.function) for hit in hits):
            yield from _function([hit for hit in hits if (hit.file, hit.function) == place], judged)
    lone = [hit for hit in report.hits if hit.failure == "no kernel"]
    if lone:
        fresh = [hit for hit in lone if hit in judged.new]
        yield f"registered kernels without one for this platform: {plural(len(lone), 'operator')}, {f'{len(fresh)} NEW' if fresh else 'all accepted'}"
        yield wrapped(", ".join(_marked(hit, hit.symbol, fresh) for hit in lone), "  ") + "\n"
    for entry, symbol in judged.gone:
        yield wrapped(f"gone: {symbol} of {entry.function} is listed ({entry.place}) and no longer happens: take it out, or end its versions") + "\n"
    if judged.new and ledger:
        yield wrapped(f"to accept what is new: look at each, fill in label and why, and add it to {ledger}") + "\n"
        yield from blocks(report, judged.new)
    yield wrapped(summary(report, judged))


def summary(report: Report, judged: Judged) -> str:
    """One line whose numbers add up: a hit is a use or an operator, and each is new or accepted; what is gone is no hit any more."""
    operators = sum(hit.failure == "no kernel" for hit in report.hits)
    uses = f"{plural(len(report.hits) - operators, 'use')} in {plural(len(report.functions), 'function')}"
    what = f"{plural(len(report.hits), 'hit')} ({uses}, {plural(operators, 'operator')})"
    verdicts = f"new {len(judged.new)}, accepted {len(judged.known)}; gone {len(judged.gone)}"
    when = "kept from an earlier run" if report.kept else f"{report.seconds:g} s"
    return f"{report.label}, {', '.join(report.scenarios)} ({when}): {what}: {verdicts}. Read from source, nothing was run."


def blocks(report: Report, new: list[Hit]) -> Iterator[str]:
    """An entry for the file of accepted hits for each function and failure that is new; label and why are left to whoever looked."""
    for file, function, failure in dict.fromkeys(("" if hit.failure == "no kernel" else hit.file, hit.function, hit.failure) for hit in new):
        hits = [hit for hit in new if (hit.function, hit.failure) == (function, failure) and file in ("", hit.file)]
        fields = {
            "package": report.package,
            "file": file,
            "function": function,
            "failure": failure,
            "symbols": list(dict.fromkeys(short(hit.symbol) for hit in hits)),
            "versions": f"=={report.version}" if report.version else "",
            "label": "",
            "why": "",
        }
        yield "[[hit]]\n" + "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items())


def difference(old: Report, new: Report, came: list[Hit], went: list[Hit]) -> Iterator[str]:
    """What came and what went between two versions."""
    for word, hits in (("came", came), ("went", went)):
        for hit in hits:
            flags = f", with {'; '.join(hit.needs)}" if hit.needs else ""
            yield wrapped(f"{word}: {hit.file}:{hit.line} {hit.function}: {hit.failure}, {short(hit.symbol)}{flags}")
    stayed = len({hit.key for hit in new.hits}) - len(came)
    yield wrapped(f"{old.label} to {new.label}: {len(came)} came, {len(went)} went, {stayed} stayed. Read from source, nothing was run.")


def _function(hits: list[Hit], judged: Judged) -> Iterator[str]:
    first = hits[0]
    known = dict(judged.known)
    fresh = [hit for hit in hits if hit not in known]
    yield f"{first.file}:{first.line} {first.function}"
    for failure in dict.fromkeys(hit.failure for hit in hits):
        uses = ", ".join(_marked(hit, f"{short(hit.symbol)} (line {hit.line})", fresh) for hit in hits if hit.failure == failure)
        yield wrapped(f"{failure}: {uses}", "  ")
    if first.note:
        yield wrapped(f"{first.note}, without a word in the log", "  ")
    if first.needs:
        yield wrapped(f"with {'; '.join(first.needs)}", "  ")
    if first.chain:
        yield wrapped(f"from {' > '.join(first.chain[-4:])}", "  ")
    yield wrapped(f"in {', '.join(first.scenarios)}", "  ")
    entries: dict[str, Entry] = {known[hit].place: known[hit] for hit in hits if hit in known}
    for entry in entries.values():
        yield wrapped(f"accepted ({entry.label}): {entry.why}", "  ")
    yield f"  NEW: {len(fresh)} of {len(hits)} uses\n" if fresh else ""


def _marked(hit: Hit, text: str, fresh: list[Hit]) -> str:
    return f"{text} NEW" if hit in fresh else text
