"""One route: the backend that SGLang chooses for a model on a target, whether it is the fast path, which gate sent it away, and what brings it back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.models import Model
from harness.errors import UsageError
from harness.offline.routes.dispatch import Dispatch, Outcome, Served
from harness.offline.routes.facts import Facts
from harness.offline.routes.heads import HeadGate
from harness.words import plural

TPS = (1, 2, 4, 8, 16)
_WIDER = (1, 2, 4, 8, 16, 32, 64)
_KIND = "use_mla"
_DOUBT = ("assumed", "not verified", "not fetched")
_MOST = 128  # heads a rank that are tried when padding


@dataclass(frozen=True)
class Gate:
    """A condition that sent the model away: its place, its text and what it was. turns: the other way round, it alone leads to the fast path."""

    file: str
    line: int
    condition: str
    was: bool
    turns: bool


@dataclass
class Route:
    """One row. heads, kv_heads: those of one rank. `fast` is None where this version does not serve the model, or where its code stopped at
    something undescribed (`stopped`)."""

    model: str
    target: str
    tp: int
    heads: int
    kv_heads: int
    kind: str
    backend: str
    decided_by: str
    fast: bool | None
    fast_backends: list[str]
    served: bool
    gates: list[Gate] = field(default_factory=list)
    remedies: list[dict[str, Any]] = field(default_factory=list)
    remedy: str = ""
    assumed: list[str] = field(default_factory=list)
    stopped: str = ""


class Judge:
    """Routes of one version of SGLang on one target."""

    def __init__(self, dispatch: Dispatch, facts: Facts, gate: HeadGate) -> None:
        self._dispatch, self._facts, self._gate = dispatch, facts, gate
        self._outcomes: dict[tuple[str, int], Outcome] = {}

    def route(self, model: Model, tp: int) -> Route:
        """The route of a model at a TP that its heads allow (UsageError otherwise, or where the facts lack the model)."""
        served, geometry = self._facts.served(model), model.rank(tp)
        fast = self._facts.fast_backends(self._dispatch.target, served.kind)
        outcome = self._outcome(served, tp)
        known = self._dispatch.seen(served).architecture in self._dispatch.architectures()
        row = Route(
            model=model.name,
            target=self._dispatch.target.id,
            tp=tp,
            heads=geometry.heads,
            kv_heads=geometry.kv_heads,
            kind=served.kind,
            backend=outcome.backend or "unknown",
            decided_by=outcome.decided,
            fast=None if outcome.stopped or not known else _all_fast(outcome, fast),
            fast_backends=fast,
            served=known,
            assumed=[*self._doubts(model, outcome), *(f"no {name} in the model's configuration" for name in sorted(outcome.assumed))],
            stopped=outcome.stopped,
        )
        if row.fast is False:
            row.gates = self._gates(served, tp, outcome, fast)
            row.remedies = [*self._other_tps(served, tp, fast), *self._padded(served, tp, fast), *self._explicit(served, tp, fast)]
            row.remedy = "; ".join(part["text"] for part in row.remedies) or "nothing that was tried"
        return row

    def _doubts(self, model: Model, outcome: Outcome) -> list[str]:
        """What the sources of the model's numbers say is not sure, and where SGLang sees another kind of attention than models.toml."""
        sources = [*model.source.split(";"), *self._facts.models[model.name]["source"].split(";")]
        doubts = [part.strip() for part in sources if any(word in part for word in _DOUBT)]
        if outcome.arch and (outcome.arch == "mla") != (model.kind == "mla"):
            doubts.append(f"models.toml says {model.kind}, SGLang's own conditions say {outcome.arch}")
        return doubts

    def _outcome(self, served: Served, tp: int) -> Outcome:
        key = served.model.name, tp
        if key not in self._outcomes:
            self._outcomes[key] = self._dispatch.choose(served, tp)
        return self._outcomes[key]

    def _gates(self, served: Served, tp: int, outcome: Outcome, fast: list[str]) -> list[Gate]:
        """The conditions that decide: each is turned round alone, and kept where the same code then answers the fast path.

        What kind of attention the model has is no gate. Where no single condition does it, the last one that the code evaluated.
        """
        deciding = dict.fromkeys((place, was) for place, was in outcome.conditions if place.function in self._dispatch.deciding and _KIND not in place.text)
        found = []
        for place, was in deciding:
            other = self._dispatch.choose(served, tp, forced={place: not was})
            if not other.stopped and _all_fast(other, fast):
                found.append(Gate(place.path, place.line, place.text, was, True))
        return found or [Gate(place.path, place.line, place.text, was, False) for place, was in list(deciding)[-1:]]

    def _other_tps(self, served: Served, tp: int, fast: list[str]) -> list[dict[str, Any]]:
        good = []
        for other in _WIDER:
            if other != tp and splits(served.model, other):
                outcome = self._outcome(served, other)
                if not outcome.stopped and _all_fast(outcome, fast):
                    good.append(other)
        ranks = [served.model.rank(n).heads for n in good]
        if not good:
            return []
        return [{"kind": "tp", "tp": good, "text": f"TP {_words(good)} ({_words(ranks)} {'head' if ranks == [1] else 'heads'} a rank)"}]

    def _padded(self, served: Served, tp: int, fast: list[str]) -> list[dict[str, Any]]:
        """The next head count a rank for which the code answers the fast path; MLA only, where query heads may be padded at will."""
        heads = served.model.rank(tp).heads
        for padded in range(heads + 1, _MOST + 1) if served.kind == "mla" else ():
            model = dataclasses.replace(served.model, heads=padded * tp, kv_heads=padded * tp)
            outcome = self._dispatch.choose(dataclasses.replace(served, model=model), tp)
            if not outcome.stopped and _all_fast(outcome, fast):
                return [{"kind": "pad", "heads": padded, "backend": outcome.backend, "text": _padding(heads, padded, outcome.backend)}]
        return []

    def _explicit(self, served: Served, tp: int, fast: list[str]) -> list[dict[str, Any]]:
        """--attention-backend with the first fast backend: whether nothing overrides it, and what its own head gate then does."""
        outcome = self._dispatch.choose(served, tp, {"attention_backend": fast[0]})
        if outcome.stopped or not _all_fast(outcome, fast):
            return []
        flag = f"--attention-backend {fast[0]}"
        if fast[0] != "aiter" or served.kind != "mla":
            return [{"kind": "flag", "flag": flag, "text": f"{flag} is kept"}]
        heads = served.model.rank(tp).heads
        row = self._gate.decode(heads)
        return [{"kind": "flag", "flag": flag, "accepted": row.accepted, "padded": row.padded, "mode": row.mode, "text": f"{flag}: {row.text}"}]


def _all_fast(outcome: Outcome, fast: list[str]) -> bool:
    return outcome.prefill in fast and outcome.decode in fast


def splits(model: Model, tp: int) -> bool:
    """Whether the model's heads allow that TP."""
    try:
        model.rank(tp)
    except UsageError:
        return False
    return True


def _padding(heads: int, padded: int, backend: str) -> str:
    more = 100 * (padded - heads) / heads
    return f"{plural(heads, 'head')} padded to {padded}: {backend} ({more:.0f} % more to compute)"


def _words(numbers: list[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])] if len(numbers) > 1 else [str(numbers[0])])
