"""Routes as text."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from typing import Any

from tabulate import tabulate

from harness.offline.routes.heads import HeadRow, outcome
from harness.offline.routes.judge import Gate, Route
from harness.offline.routes.known import Finding
from harness.offline.routes.sampling import DRAFTS
from harness.offline.routes.survey import Survey
from harness.words import plural, trimmed

_WIDTH = 150


def report(found: Survey, findings: Sequence[Finding], every: bool, counts: Set[int] | None = None) -> str:
    """The whole of a survey. every: also the rows on the fast path, one by one; counts: the head counts whose gates are shown, or None for all."""
    parts = [
        f"{found.sglang}: routed on described targets; nothing ran on a device",
        routes(found, every),
        sampling(found),
        heads(found, counts),
        tables(found),
    ]
    parts += [assumptions(found), functions(found), verdict(findings)]
    return "\n\n".join(part for part in parts if part)


def routes(found: Survey, every: bool) -> str:
    """The rows off the fast path with their gate and remedy; below, in a line a target, what is on it."""
    gates: dict[Gate, int] = {}
    rows = []
    for row in found.routes:
        if every or row.fast is not True:
            numbers = " ".join(f"[{gates.setdefault(gate, len(gates) + 1)}]" for gate in row.gates)
            state = "yes" if row.fast else "no" if row.fast is False else "unknown" if row.stopped else "not served"
            rows.append([row.target, row.model, row.tp, row.heads, row.backend, state, numbers, row.remedy or row.stopped])
    head = ["target", "model", "TP", "heads", "backend", "fast path", "gate", "what brings it back"]
    parts = [tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True, maxcolwidths=[None] * 7 + [74])] if rows else []
    parts += ["\n".join(f"[{number}] {_gate(gate)}" for gate, number in gates.items())] if gates else []
    parts += [f"not asked: {'; '.join(found.skipped)}"] if found.skipped else []
    parts += ["\n".join(_on(found.routes, target) for target in dict.fromkeys(row.target for row in found.routes))]
    return "\n\n".join(parts)


def sampling(found: Survey) -> str:
    """Sampling back end and verify, a line a decision; drafts that a place treats alike share one."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in found.sampling:
        question, _, draft = row.question.partition(", ")
        where = f"{_short(row.file)}:{row.line}" if row.file else ""
        groups[row.target, question, row.answer or f"unknown: {row.stopped}", where, row.condition].append(draft)
    rows = [[key[0], key[1], "all" if len(drafts) == len(DRAFTS) else "; ".join(filter(None, drafts)), *key[2:]] for key, drafts in groups.items()]
    head = ["target", "question", "drafts", "answer", "where", "because of"]
    return tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True, maxcolwidths=[None, None, 30, 40, None, 40]) if rows else ""


def heads(found: Survey, counts: Set[int] | None = None) -> str:
    """The head gates: what happens to which counts, a line an outcome. counts: only these."""
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for target, row in found.heads:
        if counts is not None and row.heads not in counts:
            continue
        groups[target, row.place, _outcome(row)].append(row.heads)
    rows = [[*key, ", ".join(map(str, numbers))] for key, numbers in groups.items()]
    head = ["target", "heads a rank at", "outcome", "counts"]
    return tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True, maxcolwidths=[None, None, 90, 40]) if rows else ""


def tables(found: Survey) -> str:
    """The copied head table against AITER's router."""
    if not found.copy:
        return ""
    lines = [f"heads of mla_reduce_v1 that SGLang copied ({_short(found.copy)}), against AITER's router:"]
    for drift in found.drifts:
        words = [f"AITER alone has {', '.join(map(str, drift.lacking))}"] if drift.lacking else []
        words += [f"SGLang alone has {', '.join(map(str, drift.foreign))}"] if drift.foreign else []
        lines.append(f"  {drift.aiter}, value dimension {drift.dim}: {'; '.join(words)}")
    return "\n".join(lines if found.drifts else [*lines, "  no difference"])


def assumptions(found: Survey) -> str:
    """What was taken for granted, by model."""
    fixed = (
        "assumed everywhere: no environment variable is set, server arguments are SGLang's defaults, no plugin platform, no speculation, no data parallelism"
    )
    by_text: dict[str, set[str]] = defaultdict(set)
    for row in found.routes:
        for text in row.assumed:
            by_text[text].add(row.model)
    by_models: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for text, models in by_text.items():
        by_models[tuple(sorted(models))].append(text)
    lines = [f"assumed of {', '.join(models)}: {'; '.join(texts)}" for models, texts in by_models.items()]
    return "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in [fixed, *lines])


def functions(found: Survey) -> str:
    """Where each decision was found."""
    rows = [
        [place.what, place.name or ("a block" if place.file else "not found"), f"{_short(place.file)}:{place.line}" if place.file else "", place.how]
        for place in found.places
    ]
    return tabulate(rows, headers=["decision", "function", "where", "how"], tablefmt="simple", disable_numparse=True)


def verdict(findings: Sequence[Finding]) -> str:
    """A line a finding (TPs of one kind together), and how many."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for finding in findings:
        groups[finding.kind, finding.model, finding.target, finding.text].append(finding.tp)
    lines = []
    for (kind, model, target, text), tps in groups.items():
        at = f" at TP {', '.join(map(str, tps))}" if any(tps) else ""
        lines.append(f"{kind}: {model} on {target}{at}: {text}")
    return "\n".join([*lines, f"findings: {len(findings)}"])


def changes(old: Survey, new: Survey, rows: Iterable[dict[str, Any]]) -> str:
    """What two versions differ in; one line where several TPs or head counts of a target changed alike."""
    groups: dict[tuple[str, str, str, str, bool], list[str]] = defaultdict(list)
    for row in rows:
        target, _, rest = row["where"].partition(" ")
        groups[row["what"], target, row["was"], row["now"], row["worse"]].append(rest)
    table = [[target, what, _ranges(rest), was, now, "worse" if worse else ""] for (what, target, was, now, worse), rest in groups.items()]
    head, table = trimmed(["target", "what", "at", old.sglang, new.sglang, "verdict"], table)
    body = tabulate(table, headers=head, tablefmt="simple", disable_numparse=True, maxcolwidths=[None, 40, 30, 40, 40, None][: len(head)])
    return body if table else f"{old.sglang} and {new.sglang} route alike"


def _ranges(parts: list[str]) -> str:
    words = [part.split(" ") for part in parts if part]
    if words and all(len(word) == 2 and word[0] == "TP" for word in words):
        return "TP " + ", ".join(word[1] for word in words)
    if words and all(len(word) == 2 and word[1] == "heads" for word in words):
        return ", ".join(word[0] for word in words) + (" head" if words == [["1", "heads"]] else " heads")
    return ", ".join(parts)


def _gate(gate: Gate) -> str:
    turns = "" if gate.turns else " (the last condition; turning it round alone does not lead to the fast path)"
    return f"{_short(gate.file)}:{gate.line}: {gate.condition} is {gate.was}{turns}"


def _on(rows: Iterable[Route], target: str) -> str:
    mine = [row for row in rows if row.target == target]
    fast = [row for row in mine if row.fast]
    by_backend: dict[str, list[str]] = defaultdict(list)
    for model in dict.fromkeys(row.model for row in fast):
        tps = [row.tp for row in fast if row.model == model]
        whole = len(tps) == len([row for row in mine if row.model == model])
        by_backend[next(row.backend for row in fast if row.model == model)].append(model if whole else f"{model} (TP {', '.join(map(str, tps))})")
    listed = "; ".join(f"{backend}: {', '.join(models)}" for backend, models in by_backend.items())
    text = f"{target}: {len(fast)} of {plural(len(mine), 'row')} on the fast path. {listed}"
    return textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def _outcome(row: HeadRow) -> str:
    if not row.accepted:
        return row.text
    said = row.text if row.text.startswith("no head check") else outcome(row)
    return said + ("" if row.persistent is None else ", persistent kernel" if row.persistent else ", not the persistent kernel")


def _short(file: str) -> str:
    return file.removeprefix("sglang/")
