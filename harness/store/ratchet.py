"""What a refresh may do to a baseline by itself, and what a person must accept with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from harness.errors import UsageError
from harness.speed.regression import FAST, RUNS, SLOW, Rule
from harness.speed.suite import Judged, Timed, judge
from harness.store.baselines import Accepted, Baseline, Cell, Start
from harness.store.ledger import Ledger
from harness.store.results import FINDINGS, Result
from harness.store.timing import THROTTLED

STARTS = 5  # machine starts that are pooled: the last ones
_SHIFT = 0.009  # the most by which a machine start moves nearly any cell either way
_APART = 0.03  # the most by which two starts were seen to differ in one kernel: 2.7 % on H200s
NOISY = 0.02  # deviation of a control's medians between the runs of one refresh; on an H200 it was 0.07 to 0.15 %
HOT = 0.1  # share of the runs that a throttled device may have spoilt: they are left out
_SHOWN = 3  # kernels that a line names
APPENDED, REPLACED, ADDED, KEPT, TAKEN, REFUSED = "appended", "replaced", "added", "kept", "accepted", "refused"
SLOWER, RENAMED, LOST, UNCLASSIFIED = "slower", "renamed", "gone", "unclassified"


@dataclass(frozen=True)
class Change:
    """What became of a cell. `what`: appended, replaced (confirmed faster), added (new), kept, accepted, or refused (it needs a reason);
    `why` of a refusal or an acceptance: slower, renamed, gone, or unclassified (it ran kernels that no known family has); `was` and `now`:
    times and kernels; `share`: the change of the time as a share of what it was."""

    cell: str
    what: str
    why: str = ""
    was: str = ""
    now: str = ""
    share: float | None = None


def objections(results: Iterable[Result], ledger: Ledger) -> list[str]:
    """Why nothing may be refreshed from these results: one line each for parity, the ledger, throttling and a noisy control."""
    found: list[str] = []
    throttled: list[bool] = []
    controls: dict[str, list[float]] = {}
    for result in results:
        verdict = ledger.judge(result)
        if verdict.kind == "error" or (verdict.kind == "finding" and result.status in FINDINGS):
            found.append(f"{result.cell} ended with {result.status}; a baseline needs what is right")
        elif verdict.kind != "ok" and verdict.bad:
            found.append(f"{result.cell} is not as the ledger says ({verdict.why}); settle the ledger first")
        throttled += [timing.stop == THROTTLED for timing in result.timings]
        if result.timings and all(timing.stop == THROTTLED for timing in result.timings):
            found.append(f"{result.cell} was timed on a throttled device, in every run; let it cool, or lift the cap")
        for timing in result.timings:
            if timing.control:
                controls.setdefault(timing.control, []).append(timing.control_us)
    if sum(throttled) > HOT * len(throttled):
        found.append(f"{sum(throttled)} of {len(throttled)} runs were taken on a throttled device; let it cool, or lift the cap")
    return found + [line for name, times in controls.items() if (line := _restless(name, times))]


def _restless(name: str, times: Sequence[float]) -> str:
    """A line where a control's median absolute deviation, as a standard deviation, is over `NOISY` of its median."""
    middle = median(times)
    spread = 1.4826 * median(abs(us - middle) for us in times) / middle
    return f"the control {name} varied by {100 * spread:.1f} % between runs; another program is on the device" if spread > NOISY else ""


def refresh(
    before: Baseline,
    cells: Mapping[str, Cell],
    start: str,
    described: Start,
    *,
    accept: Mapping[str, str],
    append: bool = True,
    expected: Iterable[str] | None = None,
    controls: Mapping[str, Timed] | None = None,
    unclassified: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Baseline, list[Change]]:
    """A new baseline from what was measured on one machine start, and what became of every cell; `before` is left as it was.

    cells     as `measured` gives them; `append`: what is unchanged is pooled into the last `STARTS` starts, else left alone; a start that
              the baseline has already counts once, with its newest runs
    expected  cells of the baseline that were to run (default: all): one that did not is gone
    accept    reasons by cell; controls: of the same runs, to tell a device that moved
    unclassified   by cell the kernels that no known family has; those that the baseline's cell has already were accepted with it

    Raises UsageError for an acceptance of a cell that needs none.
    """
    verdicts = _verdicts(before, cells, start, controls or {})
    asked = before.cells.keys() if expected is None else before.cells.keys() & set(expected)
    kept, record, changes = dict(before.cells), list(before.accepted), []
    for name in sorted(cells.keys() | asked):
        old, new = before.cells.get(name), cells.get(name)
        named = None if new is None else msgspec.structs.replace(new, runs={start: new.runs[""]})
        strange = set((unclassified or {}).get(name, ())) - set(old.kernels if old else ())
        cell, change = _step(name, old, named, verdicts.get(name), accepted=name in accept, append=append, strange=bool(strange))
        changes.append(change)
        if change.what == TAKEN:
            record.append(Accepted(name, change.why, accept[name], change.was, change.now, described.at))
        if cell is None:
            kept.pop(name, None)
        else:
            kept[name] = cell
    if idle := sorted(accept.keys() - {change.cell for change in changes if change.what == TAKEN}):
        raise UsageError(f"--accept {idle[0]}: it is neither slower, renamed nor gone here; leave it out")
    used = {name for cell in kept.values() for name in cell.runs}
    starts = {name: one for name, one in {**before.starts, start: described}.items() if name in used}
    return Baseline(before.family, before.device, starts, kept, record), changes


def _verdicts(before: Baseline, cells: Mapping[str, Cell], start: str, controls: Mapping[str, Timed]) -> dict[str, Judged]:
    both = {name: (before.cells[name], new) for name, new in cells.items() if name in before.cells and before.cells[name].mode == new.mode}
    timed = {name: Timed(new.mode, old.runs, new.runs[""], start, old.host or new.host, beside=(old.beside, new.beside)) for name, (old, new) in both.items()}
    return judge({**timed, **controls})[0]


def _step(name: str, old: Cell | None, new: Cell | None, judged: Judged | None, *, accepted: bool, append: bool, strange: bool) -> tuple[Cell | None, Change]:
    """What a cell becomes. `strange`: it ran kernels that nobody has classified or accepted."""
    why = LOST if new is None else "" if old is None else _worse(old, new, judged)
    if not why and strange:
        why = UNCLASSIFIED
    if why == SLOWER and accepted and append and old and new and _middle(new) <= (1 + _APART) * _middle(old):
        return _pooled(old, new, accepted=new.accepted), _change(name, TAKEN, old, new, why)
    if why:
        return (new if accepted else old), _change(name, TAKEN if accepted else REFUSED, old, new, why)
    if old is None or new is None:
        return new, _change(name, ADDED, old, new)
    return _unworsened(name, old, new, judged, append=append)


def _change(name: str, what: str, old: Cell | None, new: Cell | None, why: str = "") -> Change:
    share = _middle(new) / _middle(old) - 1 if old and new else None
    return Change(name, what, why, said(old), said(new), share)


def _unworsened(name: str, old: Cell, new: Cell, judged: Judged | None, *, append: bool) -> tuple[Cell, Change]:
    """What a cell becomes that got no worse: a lucky run or a doubtful one changes nothing."""
    fast, doubtful = (judged is not None and judged.verdict == FAST), (judged is not None and (judged.rerun > 0 or judged.restless))
    if fast and len(_only(new)) >= RUNS:
        return new, _change(name, REPLACED, old, new)
    if fast or doubtful or not append:
        return old, _change(name, KEPT, old, new)
    return _pooled(old, new, accepted=old.accepted), _change(name, APPENDED, old, new)


def _pooled(old: Cell, new: Cell, *, accepted: float) -> Cell:
    """The cell with the runs of both, of the last starts."""
    last = dict(list({**old.runs, **new.runs}.items())[-STARTS:])
    return msgspec.structs.replace(old, runs=last, accepted=accepted, kernels=old.kernels or new.kernels, host=old.host or new.host)


def _worse(old: Cell, new: Cell, judged: Judged | None) -> str:
    """Why the change of a cell needs a reason, or an empty string. Starts that are each a little slower may not creep: what is pooled
    may not be above what was accepted by more than the floor and the shift between two starts, one of them the accepted, that each may have."""
    if new.mode != old.mode or (old.kernels and new.kernels and old.kernels != new.kernels):
        return RENAMED
    if judged is not None and judged.verdict == SLOW:
        return SLOWER
    if judged is not None and judged.restless:
        return ""
    pooled = [median(runs) for runs in {**old.runs, **new.runs}.values()][-STARTS:]
    crept = not (old.host or new.host) and median(pooled) > old.accepted * (1 + dict(Rule().floors)[old.mode] + 2 * _SHIFT)
    return SLOWER if crept else ""


def _only(cell: Cell) -> list[float]:
    return next(iter(cell.runs.values()))


def _middle(cell: Cell) -> float:
    return median(us for runs in cell.runs.values() for us in runs)


def said(cell: Cell | None) -> str:
    """A cell in a line, its first kernels named: `93.9 us graph (_fwd_kernel)`."""
    if cell is None:
        return ""
    more = [f"{len(cell.kernels) - _SHOWN} more"] if len(cell.kernels) > _SHOWN else []
    return f"{_middle(cell):.4g} us {cell.mode}" + (f" ({', '.join([*cell.kernels[:_SHOWN], *more])})" if cell.kernels else "")
