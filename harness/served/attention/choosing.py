"""The back end that SGLang's own default picks for a model on a target, by its own dispatch code (harness/offline/routes), and what sent it there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.contracts.models import Model
from harness.offline.routes.facts import load_facts
from harness.offline.routes.judge import Route
from harness.offline.routes.survey import survey
from harness.offline.sources import find_source
from harness.offline.targets import choose, load_targets


def targets_of(cases: Path) -> list[str]:
    """The names of the targets that are described in the cases folder."""
    return list(load_targets(cases / "targets.toml"))


def defaults(model: Model, tp: int, targets: Iterable[str], cases: Path) -> list[Route]:
    """The route that the installed SGLang takes by default on each target. Raises UsageError for an unknown target, a tp that does not divide the
    heads, or where SGLang is not installed."""
    chosen = choose(load_targets(cases / "targets.toml"), tuple(targets))
    return survey(find_source("sglang"), chosen, [model], [tp], load_facts(cases / "routes.toml"), []).routes


def backend_for(route: Route, mode: str) -> str:
    """The flag of the back end that serves the mode: SGLang may choose one for prefill and one for decode."""
    prefill, _, decode = route.backend.partition("+")
    return prefill if mode in ("prefill", "prefix") or not decode else decode


def words(route: Route) -> str:
    """The choice in one line: the back end, whether it is the fast path there, the gate and the cure."""
    if route.stopped:
        return f"{route.target}: not known, SGLang's dispatch code stopped at {route.stopped}"
    if not route.served:
        return f"{route.target}: this SGLang does not know {route.model}; its dispatch code would answer {route.backend}"
    said = f"{route.target}: {route.backend} by default ({route.heads} heads a rank)"
    if route.fast:
        return f"{said}, its fast path"
    gates = "; ".join(f"{gate.file}:{gate.line} `{gate.condition}` was {gate.was}" for gate in route.gates)
    return f"{said}, not its fast path ({', '.join(route.fast_backends)}); gate: {gates or 'none found'}; cure: {route.remedy}"
