"""Tables over many results, by tabulate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from harness.store.ledger import Verdict
from harness.store.results import STATUSES, Result

Judged = tuple[Result, Verdict]
_SHARES = ("harness", "check", "inputs", "reference", "prepare", "kernel", "compile", "import", "run")


def summary(rows: Sequence[Judged]) -> str:
    """A line an op and provider: how it was run, and how many cells ended how."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    evidence: dict[tuple[str, str], str] = {}
    verdicts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    why: dict[tuple[str, str], str] = {}
    for result, verdict in rows:
        key = (result.op, result.provider)
        counts[key][result.status] += 1
        verdicts[key][verdict.kind] += 1
        if result.evidence != "none":
            evidence[key] = result.evidence
        elif not result.case:
            why[key] = result.detail
    shown = [status for status in STATUSES if any(counts[key][status] for key in counts)]
    table = []
    for key, counter in counts.items():
        said = [_count(verdicts[key][kind], kind) for kind in ("finding", "gone", "known", "error") if verdicts[key][kind]]
        note = ", ".join(said) or why.get(key, "")
        table.append([*key, evidence.get(key, "-"), *(counter[status] or "" for status in shown), note])
    return tabulate(table, headers=["op", "provider", "evidence", *shown, "notes"], tablefmt="simple", disable_numparse=True)


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
    return f"{sum(statuses.values())} rows: {by_status}; {ran or 'none ran'}; findings {kinds['finding'] + kinds['gone']}, known {kinds['known']}"


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
