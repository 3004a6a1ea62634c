"""The acts of a story: what was found by running, as lines, and whether the bug still shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePath
from statistics import median
from typing import Any

from harness.commands import timing
from harness.contracts import op
from harness.contracts.models import Model
from harness.offline.routes.facts import Facts
from harness.offline.sources import Source
from harness.offline.symbols.package import Report
from harness.offline.targets import Target
from harness.providers import providers, providers_of
from harness.selection import Cell, standing
from harness.served.story import cost as costs
from harness.served.story import heads, renorm
from harness.session import Session
from harness.store.results import Result

_PADDED = {"batch": 2, "heads": costs.HEADS, "length": 9, "dtype": "fp16", "relation": "padheads"}
_RUNS = 3
_CALLERS = 4  # the last of a chain that are shown


@dataclass(frozen=True)
class Act:
    """One bug: `lines` of `label  text`, and what is lacking for it to show (empty: it shows)."""

    title: str
    lines: list[str]
    lacking: str

    @property
    def shown(self) -> bool:
        """Whether the bug shows, and its cure with it."""
        return not self.lacking

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "shown": self.shown}


def _line(label: str, text: str) -> str:
    return f"{label:<16}{text}"


def first(source: Source, scan: Report) -> Act:
    """The filters that are None in the DSPARK accept: as the sources say, as the code does, and cured."""
    bound = renorm.bound(source)
    lines = [_line("bound on ROCm", ", ".join(f"{name} = {getattr(value, '__name__', value)}" for name, value in bound.items()))]
    hits = [hit for hit in scan.hits if hit.failure == "TypeError" and hit.symbol.rpartition(":")[2] in renorm.CURE]
    for place in dict.fromkeys((hit.file, hit.function, hit.chain) for hit in hits):
        at = ", ".join(str(hit.line) for hit in hits if (hit.file, hit.function, hit.chain) == place)
        lines.append(_line("read", f"{place[0].removeprefix('sglang/')}:{at} in {place[1]}: TypeError; from {' > '.join(place[2][-_CALLERS:])}"))
    lines += [] if hits else [_line("read", "no use of a filter that is None")]
    ended = renorm.accept(source)
    said = f"{type(ended.error).__name__}: {ended.error}, at {ended.where} in {ended.function}" if ended.error else "it comes to its kernel"
    lines.append(_line("run", f"accept_draft_tokens on three requests (top-k 8; top-p 0.9; top-k 20 with top-p 0.7): {said}"))
    title = f"1. {source.label}: the first request with top-k or top-p ends a server that drafts with DSPARK"
    if not (isinstance(ended.error, TypeError) and None in bound.values()):
        return Act(title, lines, "the filters are bound" if None not in bound.values() else "the accept does not end in the TypeError")
    if not hits:
        return Act(title, lines, "the scan of the sources does not name it")
    return Act(title, [*lines, *_cured(source)], _uncured(source))


def _cured(source: Source) -> list[str]:
    found = renorm.cure_by_contract()
    right = sum(not wrong for _, wrong in found)
    text = f"a sort, a mask and a divide in their place, through the same accept: {_uncured(source) or 'it comes to its kernel'}"
    text += "; the target probabilities it hands on are judged by verify_target_probs, support and values"
    return [
        _line("cured", text),
        _line("by contract", f"the cure in {right} of {len(found)} cases of {' and '.join(renorm.CASES)}: right tokens, right weights"),
    ]


def _uncured(source: Source) -> str:
    """Why the cure does not hold, or empty."""
    ended = renorm.accept(source, cured=True)
    if ended.probs is None:
        return f"the cured accept ends in {type(ended.error).__name__}: {ended.error}"
    wrong = renorm.judged(ended.probs) or next((f"{cell}: {text}" for cell, text in renorm.cure_by_contract() if text), "")
    return wrong.splitlines()[0] if wrong else ""


def second(sources: list[Source], model: Model, tp: int, target: Target, facts: Facts, pad: Result) -> Act:
    """The default's route of 12 heads, its gate and remedies, the explicit back end by version, and padding as the law has it."""
    found = heads.routed(sources, model, tp, target, facts)
    route = found.route
    lines = [_line("default", f"{route.backend}; the fast path on {route.target} is {', '.join(route.fast_backends)}")]
    lines += [_line("gate", f"{gate.file.removeprefix('sglang/')}:{gate.line}: {gate.condition} is {gate.was}") for gate in route.gates]
    lines += [_line("brings it back", remedy["text"]) for remedy in route.remedies]
    for label, rows in found.explicit.items():
        told = "; ".join(f"{', '.join(map(str, counts))} {words}" for words, counts in heads.grouped(rows))
        lines.append(_line("explicit aiter", f"{label}, heads a rank: {told}"))
    lines.append(_line("zero padding", _padding(pad)))
    title = f"2. {sources[-1].label}: {model.name} at TP {tp} has {route.heads} heads a rank, and goes to Triton by default"
    if not found.shows:
        return Act(title, lines, f"the default is {route.backend}" if route.served else f"{sources[-1].label} does not serve {model.name}")
    return Act(title, lines, "" if pad.status == "pass" else f"padding is {pad.status}")


def _padding(pad: Result) -> str:
    apart = pad.figures.get("o", {}).get("apart")
    said = "" if apart is None else ", the first 12 equal to the bit" if not apart else f", the first 12 apart by {apart:.3g} of what two right answers may be"
    return f"{pad.cell}: 12 heads and 16 of which 4 are zeros: {pad.status}{said} ({pad.evidence or 'not run'})"


def padded(session: Session) -> Result:
    """The law `padheads` of 12 heads on SGLang's Triton kernel, as any cell is run."""
    provider = providers()["mla_decode", costs.GENERIC]
    platform, status, why = standing(provider, session.machine)
    cell = Cell("mla_decode", provider, op("mla_decode").axes.case(**_PADDED), platform, status, why)
    return session.run(cell)


def cost(session: Session, machine: str) -> list[str]:
    """What padding computes more, and on a GPU what it takes."""
    work = {count: op("mla_decode").impl.work(_decode(count)) for count in (costs.HEADS, costs.PADDED)}
    more = 100 * (work[costs.PADDED].flops / work[costs.HEADS].flops - 1)
    lines = [_line("costs", f"{more:.0f} % more to compute in an MLA decode, by the contract's count of operations")]
    if machine == "cpu":
        return [*lines, _line("gains", "not measured here: this machine has no GPU")]
    timed, device = _timed(session)
    return lines + ([_line("gains", line) for line in costs.told(timed, device)] if timed else [_line("gains", "not measured: no kernel was right here")])


def _decode(count: int) -> Any:
    return op("mla_decode").axes.case(**costs.SHAPE, heads=count)


def _timed(session: Session) -> tuple[list[costs.Timed], str]:
    """Every kernel that is right, at 12 and 16 heads, and at 12 padded to 16."""
    cells = []
    for provider in providers_of("mla_decode"):
        platform, status, _ = standing(provider, session.machine)
        if not status and provider.library.name != "torch" and not provider.variant:
            cells += [Cell("mla_decode", provider, _decode(count), platform) for count in (costs.HEADS, costs.PADDED)]
    results = {cell.id: session.run(cell) for cell in cells if cell.case and not cell.provider.declines(cell.case, cell.platform)}
    timing.take(session, cells, results, runs=_RUNS, step=lambda result: None)
    small = [cell.id for cell in cells if cell.case and cell.case.heads == costs.HEADS and results.get(cell.id) and results[cell.id].timings]
    timing.remedies(session, cells, results, [name for name in small if results[name].remedy is None], runs=_RUNS, step=lambda result: None)
    found, device = [], ""
    for cell in cells:
        result = results.get(cell.id)
        if result is None or not result.timings or cell.case is None:
            continue
        device = str(result.device.get("name", PurePath(session.machine).name))
        found.append(costs.Timed(cell.provider.name, cell.case.heads, False, median(timing.times(result)[1])))
        if result.remedy and result.remedy.us:
            found.append(costs.Timed(cell.provider.name, costs.HEADS, True, median(result.remedy.us)))
    return found, device
