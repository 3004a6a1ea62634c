"""`kernel-parity fuzz`: a search over the axes of ops, provider by provider, for inputs at which they fail."""

from __future__ import annotations

import functools
import json
import math
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from harness import report
from harness.commands.run import ledger_of, selection_of
from harness.contracts import Case, ops
from harness.errors import UsageError
from harness.machine.pool import Limits
from harness.offline.sources import cache_folder
from harness.providers import Provider, providers_of
from harness.search import regression
from harness.search.bounds import bounds_of
from harness.search.campaign import Campaign
from harness.search.hunt import Clock, Finding, Hunt
from harness.search.kept import Kept
from harness.search.space import Space
from harness.selection import Cell, Selection, check_names, standing
from harness.session import Session
from harness.store.results import Result, ResultLog
from harness.words import plural

COSTS = {"interpret": 1_000_000, "cpu": 20_000_000}  # operations and bytes of an example: about a second's work at most
_COST = 4_000_000_000  # on a GPU
_SECONDS = 60.0
Row = dict[str, Any]


def search(**options: Any) -> int:
    """Searches until the examples or the seconds are used up; returns the exit code."""
    selection = selection_of({**options, "preset": "smoke", "model": None, "tp": 1, "shard": "", "cells": ()})
    check_names(selection)
    chosen = list(dict.fromkeys(selection.ops)) or list(ops())
    bounds = bounds_of(options["axes"], chosen)
    seed = random.SystemRandom().randrange(1 << 32) if options["seed"] is None else options["seed"]
    if any(math.isnan(options[name] or 0) for name in ("seconds", "shrink_seconds")):
        raise UsageError("--seconds and --shrink-seconds take a number of seconds, not nan")
    seconds = options["seconds"] if options["seconds"] or options["examples"] else _SECONDS
    able, elsewhere = _standing(selection, chosen)
    if not able:
        raise UsageError(f"nothing to search: none of the chosen providers runs here ({'; '.join(sorted({why for _, why in elsewhere}))})")
    limits = Limits(options["timeout"], options["build_timeout"])
    began = time.monotonic()
    with ExitStack() as stack:
        session = stack.enter_context(Session(selection.machine, plugins=tuple(options["plugins"]), limits=limits))
        log = stack.enter_context(ResultLog(Path(options["results"]))) if options["results"] else None
        campaign = _campaign(able, session, log, bounds, selection, options, stack.enter_context(_patient()))
        click.echo(f"fuzz on {selection.machine}, seed {seed}: {plural(len(campaign.hunts), 'provider')} of {plural(len(chosen), 'op')}", err=True)
        interrupted = _run(campaign, seed, options["examples"], seconds)
    if len(campaign.empty) == len(campaign.hunts):
        raise UsageError(f"no case that {', '.join(sorted({hunt.space.provider.name for hunt in campaign.empty}))} take lies within these bounds; widen --axis")
    rows = [_row(finding, options) for hunt in campaign.hunts for finding in hunt.found.values()]
    searched = [_searched(hunt, hunt in campaign.empty) for hunt in campaign.hunts]
    if options["add_regression"]:
        for finding in (finding for hunt in campaign.hunts for finding in hunt.found.values()):
            regression.add(selection.cases_dir, finding.result)
    if options["as_json"]:
        click.echo(json.dumps({"seed": seed, "findings": rows, "searched": searched}, indent=2))
    else:
        _print(rows, searched, elsewhere, options)
        click.echo(f"{_count(searched)} in {time.monotonic() - began:.0f} s; seed {seed}, {plural(len(rows), 'finding')}")
    if interrupted:
        return 130
    return 3 if any(row["status"] == "error" for row in rows) else int(bool(rows))


def _standing(selection: Selection, chosen: list[str]) -> tuple[list[tuple[Provider, str]], list[tuple[Provider, str]]]:
    """The providers that run here with their platform, and those that do not with the reason."""
    able, elsewhere = [], []
    for provider in (provider for name in chosen for provider in providers_of(name)):
        if selection.providers and provider.name not in selection.providers:
            continue
        platform, status, why = standing(provider, selection.machine)
        if not status and provider.variant and not selection.providers:
            status, why = "unsupported", "a variant of another provider's call: searched when it is named"
        if status:
            elsewhere.append((provider, f"{status}: {why}"))
        else:
            able.append((provider, platform))
    return able, elsewhere


@contextmanager
def _patient() -> Iterator[Callable[[], None]]:
    """Ctrl-C waits for what this gives to be called, between two cells, and is raised there: in the middle of hypothesis it ends in an
    assertion of its own. A second one is raised at once."""
    caught = False

    def hold(*_: Any) -> None:
        nonlocal caught
        caught = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def look() -> None:
        if caught:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, before)


def _campaign(
    able: list[tuple[Provider, str]],
    session: Session,
    log: ResultLog | None,
    bounds: Row,
    selection: Selection,
    options: Row,
    look: Callable[[], None],
) -> Campaign:
    """A search a provider, all on one worker; `look` is called between cells."""
    arch = session.hello()[0].get("arch", "")
    ledger = ledger_of(options["ledger"], selection.cases_dir)
    folder = None if options["database"] == "none" else Path(options["database"] or cache_folder() / "fuzz")
    kept, clock = Kept(folder), Clock(shrink=options["shrink_seconds"])

    def ask(provider: Provider, platform: str, case: Case, seed: int) -> Result:
        look()
        result = session.run(Cell(provider.op, provider, case, platform), seed=seed)
        if log is not None:
            log.append(result)
        return result

    def alone(provider: Provider, platform: str, case: Case, seed: int) -> Result:
        return session.run_alone(Cell(provider.op, provider, case, platform), seed=seed)

    hunts = []
    for provider, platform in able:
        asked = (functools.partial(ask, provider, platform), functools.partial(alone, provider, platform))
        cost = options["cost"] or COSTS.get(platform, _COST)
        hunts.append(Hunt(Space(provider, platform, cost=cost, bounds=bounds, arch=arch), *asked, ledger, kept, clock, tell=_tell))
    return Campaign(hunts, clock)


def _tell(finding: Finding) -> None:
    result = finding.result
    click.echo(f"{finding.how}: {result.cell}: {result.status}" + (f" ({result.reason})" if result.reason else ""), err=True)


def _run(campaign: Campaign, seed: int, examples: int | None, seconds: float | None) -> bool:
    """Whether the search was interrupted."""
    try:
        campaign.run(seed=seed, examples=examples, seconds=seconds)
        campaign.finish()
    except KeyboardInterrupt:
        campaign.finish(rerun=False)
        return True
    return False


def _row(finding: Finding, options: Row) -> Row:
    """A finding for JSON, with its text and its line of the regressions."""
    result = finding.result
    return {
        **msgspec.to_builtins(result),
        "verdict": finding.verdict.kind,
        "how": finding.how,
        "alone": finding.alone,
        "cells": finding.cells,
        "first": finding.first.cell,
        "first_seed": finding.first.seed,
        "regression": regression.row_of(result),
        "text": report.explain(result, finding.verdict, plugins=options["plugins"], ledger=options["ledger"]),
    }


def _searched(hunt: Hunt, empty: bool) -> Row:
    tally, provider = hunt.tally, hunt.space.provider
    ended = "takes no case within these bounds" if empty else tally.why_ended
    return {"op": provider.op, "provider": provider.name, **msgspec.to_builtins(tally), "findings": len(hunt.found), "why_ended": ended}


def _print(rows: list[Row], searched: list[Row], elsewhere: list[tuple[Provider, str]], options: Row) -> None:
    for row in rows:
        click.echo(report.found(row) + "\n")
    click.echo(report.searched(searched))
    for why in sorted({why for _, why in elsewhere}):
        names = sorted({provider.name for provider, other in elsewhere if other == why})
        click.echo(f"not run here, {why}: {', '.join(names)}")


def _count(searched: list[Row]) -> str:
    ran, passed, known, unjudged = (sum(row[key] for row in searched) for key in ("ran", "passed", "known", "unjudged"))
    said = f"{plural(ran, 'cell')}: {passed} passed"
    return said + (f", {known} as the ledger says" if known else "") + (f", {unjudged} not judged" if unjudged else "")
