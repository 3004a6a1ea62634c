"""Tables over many results, by tabulate."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from tabulate import tabulate

from harness.store.ledger import Verdict
from harness.store.results import STATUSES, Result
from harness.words import plural

Judged = tuple[Result, Verdict]
_SHARES = ("harness", "check", "inputs", "reference", "prepare", "kernel", "compile", "import", "run")


def summary(rows: Sequence[Judged]) -> str:
    """A line an op and provider that ran: how, and how many cells ended how; below, by reason, the providers that could not run here."""
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    elsewhere: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        result, verdict = row
        if result.case or verdict.bad:
            groups[result.op, result.provider].append(row)
        else:
            elsewhere[result.status, result.detail][result.provider] += 1
    shown = [status for status in STATUSES if any(result.status == status for group in groups.values() for result, _ in group)]
    table = [[*key, *_line(group, shown)] for key, group in groups.items()]
    parts = [tabulate(table, headers=["op", "provider", "evidence", *shown, "notes"], tablefmt="simple", disable_numparse=True)] if table else []
    for (status, why), names in elsewhere.items():
        listed = ", ".join(f"{name} ({plural(count, 'op')})" for name, count in sorted(names.items()))
        parts.append(textwrap.fill(f"not run here, {status} ({why}): {listed}", 150, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join(parts)


def _line(group: list[Judged], shown: list[str]) -> list[str]:
    statuses = Counter(result.status for result, _ in group)
    verdicts = Counter(verdict.kind for _, verdict in group)
    evidence = next((result.evidence for result, _ in group if result.evidence != "none"), "-")
    notes = [_count(verdicts[kind], kind) for kind in ("finding", "gone", "known", "error") if verdicts[kind]]
    return [evidence, *(str(statuses[status] or "") for status in shown), ", ".join(notes)]


def _count(number: int, kind: str) -> str:
    plural = "s" if kind in ("finding", "error") and number > 1 else ""
    return f"{number} {kind}{plural}"


def totals(rows: Iterable[Judged]) -> str:
    """One line: cells by status and by verdict."""
    statuses: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    evidence: Counter[str] = Counter()
    for result, verdict in rows:
        statuses[result.status] += 1
        kinds[verdict.kind] += 1
        evidence[result.evidence] += bool(result.case)
    by_status = ", ".join(f"{statuses[status]} {status}" for status in STATUSES if statuses[status])
    ran = ", ".join(f"{count} {name}" for name, count in evidence.items() if name != "none" and count)
    return f"{plural(sum(statuses.values()), 'row')}: {by_status}; {ran or 'none ran'}; findings {kinds['finding'] + kinds['gone']}, known {kinds['known']}"


def power(results: Iterable[Result]) -> str:
    """A line a cell whose draws were held against their distribution: draws of a row, seconds of the call, p-value, and the smallest
    relative bias of a token that would have been found, by the token's probability."""
    table, tokens = [], []
    for result in results:
        for figures in result.figures.values():
            if "draws_a_row" not in figures or "p_value" not in figures:
                continue
            biases = {name.removeprefix("bias_at_"): value for name, value in figures.items() if name.startswith("bias_at_")}
            tokens = list(biases)
            seconds = f"{result.seconds['kernel']:.3f}" if "kernel" in result.seconds else "-"  # the call that imported its library has none
            shown = ["none" if value == "inf" else f"{100 * float(value):.3g} %" for value in biases.values()]
            table.append([result.cell, str(figures["draws_a_row"]), seconds, f"{float(figures['p_value']):.3g}", *shown])
    headers = ["cell", "draws a row", "seconds", "p-value", *(f"bias of p = {token}" for token in tokens)]
    return tabulate(table, headers=headers, tablefmt="simple", disable_numparse=True) if table else "no cell drew often enough to show a bias"


def least(results: Iterable[Result]) -> str:
    """A line an op, provider, dtype and output that was judged by a budget: the least relative error that would have been found, of a
    whole row and of one element (a share of its row's root mean square): the median cell's median row, and the worst row of all."""
    groups: dict[tuple[str, ...], list[dict[str, float]]] = defaultdict(list)
    for result in results:
        for output, figures in result.figures.items():
            if "scale_worst" in figures:
                key = (result.op, result.provider, str(result.values.get("dtype", "")), output)
                groups[key].append({name: float(figures[name]) for name in ("scale", "scale_worst", "element", "element_worst")})
    table = []
    for place, seen in groups.items():
        shown = []
        for name in ("scale", "element"):
            middle, worst = median(figures[name] for figures in seen), max(figures[f"{name}_worst"] for figures in seen)
            shown += [f"{100 * middle:.3g} %", f"{100 * worst:.3g} %"]
        table.append([*place, str(len(seen)), *shown])
    headers = ["op", "provider", "dtype", "output", "cells", "a row off by", "worst", "an element", "worst"]
    return tabulate(table, headers=headers, tablefmt="simple", disable_numparse=True) if table else "no cell was judged by a budget"


def harness_share(results: Iterable[Result]) -> str:
    """Seconds by share over all cells that ran, and milliseconds a cell."""
    total: Counter[str] = Counter()
    cells = 0
    for result in results:
        cells += bool(result.seconds)
        for share, seconds in result.seconds.items():
            total[share] += seconds  # type: ignore[assignment]
    everything = sum(total.values()) or 1.0
    rows = [[share, f"{total[share]:.2f}", f"{100 * total[share] / everything:.1f} %", f"{1000 * total[share] / max(cells, 1):.2f}"] for share in _SHARES]
    return tabulate(rows, headers=["share", "seconds", "of all", "ms a cell"], tablefmt="simple", disable_numparse=True)
