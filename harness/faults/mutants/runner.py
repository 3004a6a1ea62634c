"""Runs mutants over some server processes, and says of each how it ended."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from harness.errors import HarnessError, UsageError, unknown
from harness.faults.mutants.cells import cells
from harness.faults.mutants.equivalents import Equivalents
from harness.faults.mutants.population import Target, draw, targets
from harness.faults.mutants.process import LIBRARIES, Server
from harness.faults.mutants.server import Tried
from harness.faults.mutants.sites import Mutant
from harness.store.results import FINDINGS

_AN_OP = 6  # mutants, of a run that has not enough for all ops

Task = TypeVar("Task")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Outcome:
    """A mutant and how it ended.

    key         names it, without line numbers: what equivalents.toml lists
    kernel      `module:function`; `compiled` whether it is Triton's, else plain PyTorch
    operator    what kind of mistake it is
    file, line, before, after   the change
    killed      whether a check found it, or the library refuses what it took before; `by` how the cell ended (`status:reason`), `cell` which
    reached     whether any cell executes the changed statement; none is run where not
    equivalent  why it cannot change a result, by the reviewed list; such a mutant is not run
    seconds     it took
    """

    key: str
    kernel: str
    operator: str
    file: str
    line: int
    before: str
    after: str
    killed: bool = False
    by: str = ""
    cell: str = ""
    reached: bool = True
    equivalent: str = ""
    seconds: float = 0.0
    compiled: bool = True


def run(
    count: int | None = None,
    seed: int = 0,
    workers: int = 2,
    kernels: Collection[str] = (),
    done: Callable[[Outcome], None] = lambda outcome: None,
    *,
    names: Sequence[str] | None = None,
) -> list[Outcome]:
    """Draws `count` mutants (None: all there are) that are not known as equivalent, and the equivalent ones met on the way; runs them.

    kernels   parts of the names of the kernels to take; none: all
    done      called with each outcome as it comes, never by two threads at once
    names     ids of the cells to run; None: those of cells.txt

    Raises UsageError where the library or the kernel is not there, HarnessError where a process cannot do its work or a cell
    gives a finding as it is.
    """
    if workers < 1:
        raise UsageError(f"mutants need at least one worker, not {workers}")
    known, lock = Equivalents(), threading.Lock()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(contextlib.closing(Server())) for _ in range(workers)]
        found = [
            target for target in survey(servers, _some(cells() if names is None else names, count, seed, kernels), kernels) if target.name not in known.open
        ]
        by_name = {target.name: target for target in found}
        every = draw({target.name: (*target.reached, *target.unreached) for target in found}, None, seed)

        def attempt(server: Server, mutant: Mutant) -> Outcome:
            outcome = _outcome(server, mutant, by_name[mutant.kernel], known.reasons.get(mutant.key, ""))
            with lock:
                done(outcome)
            return outcome

        drawn = _first(every, count, known)
        return over(servers, drawn, attempt, lambda server, mutant: server.has(by_name[mutant.kernel].cells[0].timed.name))


def _some(names: Sequence[str], count: int | None, seed: int, kernels: Collection[str]) -> list[str]:
    """The cells of as many ops, drawn by the seed, as a few mutants are spread over: tracing all of them would take longer than the mutants."""
    ops = sorted({name.partition("[")[0] for name in names})
    wanted = len(ops) if count is None or kernels else min(len(ops), -(-count // _AN_OP))
    chosen = set(random.Random(seed).sample(ops, wanted))
    return [name for name in names if name.partition("[")[0] in chosen]


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The outcomes counted, for JSON: in all, for every kernel, and the survivors one by one.

    mutants    run or unreached, the equivalent ones left out
    killed     of these
    unreached  of these, in statements that no cell executes; they count as not killed
    by         findings (`status:reason`) and how many mutants each killed
    """
    kernels: dict[str, dict[str, int]] = {}
    for outcome in outcomes:
        row = kernels.setdefault(outcome.kernel, {"mutants": 0, "killed": 0, "unreached": 0, "equivalent": 0})
        row["equivalent"] += bool(outcome.equivalent)
        row["mutants"] += not outcome.equivalent
        row["killed"] += outcome.killed
        row["unreached"] += not outcome.reached and not outcome.equivalent
    total = {name: sum(row[name] for row in kernels.values()) for name in ("mutants", "killed", "unreached", "equivalent")}
    survivors = [asdict(outcome) for outcome in outcomes if not outcome.killed and not outcome.equivalent]
    by = Counter(outcome.by for outcome in outcomes if outcome.killed)
    return {**total, "by": dict(by.most_common()), "kernels": dict(sorted(kernels.items())), "survivors": survivors}


def unmatched(workers: int = 2) -> list[str]:
    """Keys and functions that equivalents.toml lists and no mutant of the installed library has."""
    known = Equivalents()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(contextlib.closing(Server())) for _ in range(workers)]
        found = survey(servers, cells())
    keys = [mutant.key for target in found for mutant in (*target.reached, *target.unreached)]
    return [*known.unmatched(keys), *sorted(known.open.keys() - {target.name for target in found})]


def survey(servers: Sequence[Server], names: Sequence[str], kernels: Collection[str] = ()) -> list[Target]:
    """What the cells reach. Raises HarnessError for a cell that does not pass on the library as it is."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("[")[0], []).append(name)
    order = sorted(groups.values(), key=len, reverse=True)
    traces = [trace for part in over(servers, order, lambda server, group: [server.trace(name) for name in group]) for trace in part]
    bad = [trace for trace in traces if trace.status not in ("pass", "absent", "unsupported", "missing")]
    if bad:
        raise HarnessError(f"{bad[0].cell} gives {bad[0].status} ({bad[0].reason}) without a mutant: {bad[0].detail}")
    found = targets(traces, LIBRARIES)
    if not found:
        raise UsageError(f"no kernel of {', '.join(LIBRARIES)} can be run here; install it with the packages its kernels import")
    chosen = [target for target in found if not kernels or any(part in target.name for part in kernels)]
    if not chosen:
        raise unknown("kernel", next(iter(kernels)), [target.name for target in found])
    return chosen


def _first(every: Sequence[Mutant], count: int | None, known: Equivalents) -> list[Mutant]:
    """The first `count` that are not equivalent, and those between them that are."""
    if count is None:
        return list(every)
    places = [number for number, mutant in enumerate(every) if mutant.key not in known.reasons]
    return list(every[: places[count - 1] + 1 if count <= len(places) else None])


def _outcome(server: Server, mutant: Mutant, target: Target, equivalent: str) -> Outcome:
    names = target.cells_of(mutant)
    tried = server.attempt(mutant, names) if names and not equivalent else Tried("", "", 0.0)
    return Outcome(
        mutant.key,
        mutant.kernel,
        mutant.operator,
        mutant.file,
        mutant.line,
        mutant.before,
        mutant.after,
        killed=tried.by.partition(":")[0] in (*FINDINGS, "refused"),
        by=tried.by,
        cell=tried.cell,
        reached=bool(names),
        equivalent=equivalent,
        seconds=tried.seconds,
        compiled=target.kernel,
    )


def over(
    servers: Sequence[Server],
    tasks: Sequence[Task],
    work: Callable[[Server, Task], Made],
    suits: Callable[[Server, Task], bool] = lambda server, task: True,
) -> list[Made]:
    """`work` of every task, each server taking the next one that suits it, else the next; the results in the order of the tasks."""
    waiting, made, lock = dict(enumerate(tasks)), dict[int, Made](), threading.Lock()
    failures: list[BaseException] = []

    def take(server: Server) -> tuple[int, Task] | None:
        with lock:
            number = next((n for n, task in waiting.items() if suits(server, task)), next(iter(waiting), None))
            return None if number is None or failures else (number, waiting.pop(number))

    def drain(server: Server) -> None:
        try:
            while (taken := take(server)) is not None:
                made[taken[0]] = work(server, taken[1])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=drain, args=(server,), daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [made[number] for number in sorted(made)]
