"""The second bug: where SGLang's own dispatch sends 12 heads a rank on ROCm, and what an explicit `aiter` makes of each head count, by version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.contracts.models import Model
from harness.offline.routes.dispatch import Dispatch
from harness.offline.routes.facts import Facts
from harness.offline.routes.heads import HeadGate, HeadRow
from harness.offline.routes.judge import Judge, Route
from harness.offline.routes.parsing import Tree
from harness.offline.sources import Source
from harness.offline.targets import Target

COUNTS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # heads a rank that the explicit back end is asked about


@dataclass(frozen=True)
class Routed:
    """The default's route in one version, and by version what `--attention-backend aiter` does with each head count of COUNTS."""

    route: Route
    explicit: Mapping[str, list[HeadRow]] = field(default_factory=dict)

    @property
    def shows(self) -> bool:
        """Whether the default leaves the fast path for a generic kernel, by a gate, with a remedy."""
        route = self.route
        return bool(route.fast is False and route.backend == "triton" and route.gates and route.remedies)


def routed(sources: list[Source], model: Model, tp: int, target: Target, facts: Facts) -> Routed:
    """The route of a model in the last of the sources, and the head gate of the AITER back end in each of them."""
    dispatches = {source.label: _dispatch(source, target, facts) for source in sources}
    last = list(dispatches.values())[-1]
    gates = {label: HeadGate(dispatch) for label, dispatch in dispatches.items()}
    route = Judge(last, facts, gates[sources[-1].label]).route(model, tp)
    return Routed(route, {label: [gate.decode(heads) for heads in COUNTS] for label, gate in gates.items()})


def _dispatch(source: Source, target: Target, facts: Facts) -> Dispatch:
    return Dispatch(Tree(source.root), target, facts.installed[target.vendor], dict.fromkeys(facts.none, _none))


def _none(*args: object, **named: object) -> None:
    return None


def grouped(rows: list[HeadRow]) -> list[tuple[str, list[int]]]:
    """Head counts by what becomes of them, in words."""
    found: dict[str, list[int]] = {}
    for row in rows:
        how = {"zero": "with zeros", "repeat": "by repeating", "tile": "by repeating"}.get(row.mode, "")
        if row.accepted is None:
            words = row.text
        elif not row.accepted:
            words = f"refused at start-up: {row.condition or row.text}"
        else:
            words = "taken as they are" if row.padded == row.heads else f"padded to {row.padded} {how}"
        found.setdefault(words, []).append(row.heads)
    return list(found.items())
