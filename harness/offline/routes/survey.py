"""All routes of one version of SGLang: every model, TP and target, with the head gates, sampling and copied tables; and what two versions differ in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.models import Model
from harness.errors import UsageError
from harness.offline.routes.dispatch import ARGUMENTS, BASE, OVERRIDES, Dispatch
from harness.offline.routes.facts import Facts
from harness.offline.routes.heads import AITER, HeadGate, HeadRow, outcome
from harness.offline.routes.judge import TPS, Judge, Route, splits
from harness.offline.routes.linking import Undescribed, told
from harness.offline.routes.parsing import Tree
from harness.offline.routes.sampling import Sampling, SamplingRow
from harness.offline.routes.tables import Drift, Router, copied, drifts
from harness.offline.sources import Source
from harness.offline.targets import Target

_V_DIM = 128
SWEPT = (1, 2, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)


@dataclass(frozen=True)
class Place:
    """A function that was run: what for, under which name, where; `how` says whether the whole of it ran."""

    what: str
    name: str
    file: str
    line: int
    how: str


@dataclass
class Survey:
    """What one version of SGLang does on the targets asked for. Evidence of every row: routed, nothing ran on a device."""

    sglang: str
    version: str
    places: list[Place] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    heads: list[tuple[str, HeadRow]] = field(default_factory=list)
    sampling: list[SamplingRow] = field(default_factory=list)
    drifts: list[Drift] = field(default_factory=list)
    copy: str = ""
    skipped: list[str] = field(default_factory=list)

    def off(self) -> list[Route]:
        """The rows that are not on the fast path of their target."""
        return [row for row in self.routes if row.fast is False]


def survey(source: Source, targets: Sequence[Target], models: Sequence[Model], tps: Sequence[int], facts: Facts, routers: Sequence[Router]) -> Survey:
    """Surveys a version. tps: those to ask for, empty for TPS; a model that none of them divides is named in `skipped`, and a UsageError if it is alone."""
    tree = Tree(source.root)
    if tree.module(ARGUMENTS) is None:
        raise UsageError(f"{source.label} has no srt/server_args.py: it is not a source tree of SGLang")
    found = Survey(source.label, source.version)
    asked = {model.name: [tp for tp in tps or TPS if splits(model, tp)] for model in models}
    if tps and len(models) == 1 and not asked[models[0].name]:
        models[0].rank(tps[0])
    found.skipped = [f"{name} (no TP of {', '.join(map(str, tps))} divides its heads)" for name, allowed in asked.items() if not allowed]
    counts = sorted({*SWEPT, *(model.rank(tp).heads for model in models for tp in asked[model.name])})
    for target in targets:
        installed = facts.installed.get(target.vendor)
        if installed is None:
            raise UsageError(f"{facts.path} has no [installed.{target.vendor}]")
        dispatch = Dispatch(tree, target, installed, dict.fromkeys(facts.none, _none))
        gate = HeadGate(dispatch)
        judge = Judge(dispatch, facts, gate)
        found.places = found.places or places(dispatch)
        found.routes += [judge.route(model, tp) for model in models for tp in asked[model.name]]
        found.sampling += Sampling(dispatch).rows()
        if target.vendor == "amd":
            found.heads += [(target.id, row) for row in _swept(gate, routers, counts)]
    copy = copied(tree)
    if copy is not None:
        found.copy = f"{copy[1]}:{copy[2]}"
        found.drifts = [drift for router in routers for drift in drifts(copy[0], router)]
    return found


def places(dispatch: Dispatch) -> list[Place]:
    """Where each decision was found, and a row that says so where one was not."""
    whole, cut = "run whole", "cut down to what decides the attention backend"
    modern = dispatch.modern
    asked = [
        ("MLA or not", "sglang.srt.configs.model_config", "ModelConfig", ("_derive_model_shapes",), "cut down to what decides the attention kind"),
        (
            "model's own backend",
            *((OVERRIDES, "", ("collect_model_override_declarations",)) if modern else (ARGUMENTS, "ServerArgs", ("_handle_model_specific_adjustments",))),
            cut,
        ),
        ("default backend", BASE, "", ("get_default_attn_backend",), whole),
        ("default backend", ARGUMENTS, "ServerArgs", ("_get_default_attn_backend",), whole),
        ("sampling backend", OVERRIDES, "", ("_sampling_backend_default",), whole),
        ("sampling backend", ARGUMENTS, "ServerArgs", ("_handle_sampling_backend",), whole),
        ("rejection sampling on HIP", "sglang.srt.arg_groups.speculative_hook", "", ("_should_auto_enable_hip_rejection_sampling",), whole),
        ("AITER fp8 prefill heads", AITER, "AiterAttnBackend", ("check_fp8_prefill_num_head",), whole),
        ("AITER pad_heads", AITER, "AiterAttnBackend", ("pad_heads",), whole),
    ]
    found: dict[str, Place] = {}
    for what, module_name, owner, names, how in asked:
        module = dispatch.tree.module(module_name)
        node = next((function for name in names if module and (function := module.function(name, owner))), None)
        if node is not None and module is not None:
            found.setdefault(what, Place(what, node.name, module.path, node.lineno, how))
    for what, row, how in _blocks(dispatch):
        if row.file and row.line:
            found[what] = Place(what, "", row.file, row.line, how)
    wanted = dict.fromkeys([*(line[0] for line in asked), *(what for what, _, _ in _blocks(dispatch))])
    return [*found.values(), *(Place(what, "", "", 0, "not in this version, or its form is not recognised") for what in wanted if what not in found)]


def _blocks(dispatch: Dispatch) -> list[tuple[str, HeadRow | SamplingRow, str]]:
    """Decisions that are no function of their own: what for, a row that says where, and which part of the code it is."""
    gate = HeadGate(dispatch)
    return [
        ("AITER head gate", gate.decode(16), "the last `if self.use_mla` of AiterAttnBackend's constructor"),
        ("DSA padding", gate.sparse(8), "the assignments of the padding in the constructor"),
        ("speculative verify", Sampling(dispatch).verify()[0], "the test of the branch that decodes argmax"),
    ]


def compare(old: Survey, new: Survey) -> list[dict[str, Any]]:
    """The rows whose answer differs, each with both answers; `worse` where the new one left the fast path, samples no more, takes fewer heads,
    or is not known any more."""
    changes = []
    before, after = _answers(old), _answers(new)
    for key in [*after, *(key for key in before if key not in after)]:
        was, now = before.get(key), after.get(key)
        if was != now:
            rank_was, rank_now = (value[1] if value else None for value in (was, now))
            worse = rank_was is not None and rank_now is not None and rank_now < rank_was
            changes.append({"what": key[0], "where": key[1], "was": was[0] if was else "absent", "now": now[0] if now else "absent", "worse": worse})
    return changes


def _answers(found: Survey) -> Mapping[tuple[str, str], tuple[str, int | None]]:
    """Every answer by its question, with a rank that says which of two is better."""
    answers: dict[tuple[str, str], tuple[str, int | None]] = {}
    for row in found.routes:
        rank = -1 if row.stopped else None if row.fast is None else int(row.fast)
        text = row.backend if row.served else "not in this version"
        answers[f"route of {row.model}", f"{row.target} TP {row.tp}"] = text, rank
    for target, head in found.heads:
        answers[head.place, f"{target} {head.heads} heads"] = _short(head), -1 if head.accepted is None else int(head.accepted and not head.aborts)
    for line in found.sampling:
        rank = -1 if line.stopped else {"samples": 1, "argmax": 0}.get(line.answer, 0)
        answers[line.question, line.target] = line.answer or line.stopped, rank
    return answers


def _short(row: HeadRow) -> str:
    return outcome(row) if row.accepted else row.text.split(" (srt")[0]


def _swept(gate: HeadGate, routers: Sequence[Router], counts: Sequence[int]) -> list[HeadRow]:
    rows = [gate.decode(heads, fp8) for fp8 in (False, True) for heads in counts]
    for heads in counts:
        try:
            row = gate.prefill(heads, heads, _V_DIM)
        except (Undescribed, Exception) as error:
            row = HeadRow("aiter fp8 prefill", heads, None, None, "", "", 0, f"unknown: {told(error)}")
        lacking = tuple(router.label for router in routers if row.padded and row.padded not in router.heads.get(_V_DIM, ()))
        rows.append(dataclasses.replace(row, aborts=lacking))
    return rows + [gate.sparse(heads) for heads in counts if heads <= 16]


def _none(*args: Any, **named: Any) -> None:
    return None


def plain(found: Survey) -> dict[str, Any]:
    """The survey as JSON has it; every row is evidence of the kind `routed`."""
    return {"evidence": "routed", **dataclasses.asdict(found), "heads": [{"target": target, **dataclasses.asdict(row)} for target, row in found.heads]}
