"""The varied calls of a relation: made, judged by their own references, and held against the plain call."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from harness.checks.agreement import agree, differ, identical, raw, room
from harness.checks.distribution import tells
from harness.checks.outcome import Outcome
from harness.contracts import Case, Close, Drawn, Expected, Filtered, Inputs, Op, Relation, Semantics, fingerprint, op
from harness.machine.exchange import prints
from harness.machine.memory import Scratch
from harness.machine.platforms import Device, synchronise
from harness.machine.shares import Shares
from harness.machine.streams import Launch, Refilled, Replayed, beside, plainly
from harness.providers import Provider
from harness.store.results import Result, plain

if TYPE_CHECKING:
    from harness.machine.execute import Bench

_CPU_ROOM = 1 << 28  # bytes that varied inputs may take on a CPU, beside other workers


@dataclass
class Prepared:
    """Inputs with their hashes, taken before a provider saw them, and golden results by semantics."""

    x: Inputs
    prints: dict[str, int]
    golden: dict[tuple[tuple[str, str], ...], dict[str, Expected]] = field(default_factory=dict)


@dataclass
class At:
    """Where a cell is: whose code runs (`inputs`, `provider`, `check`), in which of its calls, and whether the device is still to be trusted."""

    stage: str
    place: str
    tainted: bool = False


@dataclass
class _Called:
    """A call that was made: its outputs in the contract's form, and what they should be."""

    outputs: dict[str, Any]
    golden: dict[str, Expected]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self.outputs.items() if isinstance(value, torch.Tensor) and name in self.golden}

    def rooms(self) -> dict[str, torch.Tensor]:
        found = {name: room(value, self.golden[name]) for name, value in self.tensors().items()}
        return {name: space for name, space in found.items() if space is not None}


def impossible_here(case: Case, device: Device) -> str | None:
    """Why this machine cannot show the case's relation: no streams, or no room for what it needs. None where it can."""
    law = op(case.op).relation(case)
    if law is None:
        return None
    if law.on_a_device and device.string == "cpu":
        return "a CPU has neither streams nor graphs"
    needed, free = law.nbytes(case), _free(device)
    return f"does not fit: the varied inputs take {needed >> 20} MiB, {free >> 20} are left for them" if needed > free else None


def _free(device: Device) -> int:
    if device.string == "cpu":
        return min(_CPU_ROOM, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return int(torch.cuda.mem_get_info()[0]) // 2


def relate(
    bench: Bench,
    at: At,
    declared: Op,
    prepared: Prepared,
    outputs: dict[str, Any],
    provider: Provider,
    semantics: Semantics,
    result: Result,
    shares: Shares,
) -> None:
    """Goes on from the plain call to what the case's relation asks, if it is about one; `result` takes the verdict.

    A plain call that is wrong ends the cell, but for a flag: there the varied call tells whether it was ignored, unless a number is
    missing (NaN), which no flag explains.
    """
    law = declared.relation(prepared.x.case)
    telling = law is not None and law.off and result.reason in ("numerics", "support") and "inf" not in result.errors.values()
    if law is None or (result.status != "pass" and not telling):
        return
    first = _Called(outputs, prepared.golden[tuple(sorted(semantics.items()))])
    if law.how == "process":
        _sign(first, result)
        return
    told, at.place = at.place, ""
    at.stage = "inputs"
    with shares.phase("inputs"):
        varied = law.vary(prepared.x, first.tensors())
        launch = _launch(law, prepared.x)
    for y in varied:
        why = provider.declines(y.case, result.platform, bench.device.facts["arch"]) or provider.gated(y.case, bench.device.facts["arch"])
        if why:
            result.status, result.reason, result.detail = "unsupported", "varied call", f"the call with {law.doc} is not taken: {why}"
            return
    calls = []
    for y in varied:
        at.place = f"in the call with {law.doc}: "
        called, judged = _call(bench, at, declared, y, provider, semantics, result, shares, launch)
        if judged.status != "pass" and result.status == "pass":
            result.status, result.reason, result.detail = judged.status, judged.reason, judged.detail
            return
        for name, error in judged.errors.items():
            result.errors[name] = plain(max(float(result.errors.get(name, 0.0)), float(error)))
        calls.append(called)
    if isinstance(launch, Refilled):
        at.place = "in the replay at the lengths of the capture: "
        judged = _judge_first(bench, at, declared, launch, semantics, result, shares)
        if judged.status != "pass" and result.status == "pass":
            result.status, result.reason, result.detail = judged.status, judged.reason, judged.detail
            return
    if isinstance(launch, Replayed):
        at.place = ""
        _compare_replays(launch, declared, calls[0].golden, provider.promises, result)
    with shares.phase("check"):
        at.stage, at.place = "check", ""
        _compare(law, provider, prepared.x, first, calls, result)
    if result.status == "mismatch" and result.reason in ("numerics", "support"):
        at.place = told


def _launch(law: Relation, x: Inputs) -> Launch:
    """How the law has its varied calls made."""
    if law.how == "refilled":
        return Refilled(law.captured(x), x)
    return Replayed() if law.how == "replay" else beside if law.how == "stream" else plainly


def _call(
    bench: Bench, at: At, declared: Op, y: Inputs, provider: Provider, semantics: Semantics, result: Result, shares: Shares, launch: Launch
) -> tuple[_Called, Result]:
    """A varied call, judged in a result of its own."""
    prepared, golden = _golden(bench, at, declared, y, semantics, shares)
    scratch = Scratch(bench.device.string)
    at.stage = "provider"
    try:
        outputs = bench.call(declared, y, provider, scratch, shares, seed=2 * result.seed, launch=launch)
    finally:
        at.tainted = isinstance(launch, Replayed) and launch.failed
    at.stage = "check"
    judged = _blank(result)
    with shares.phase("check"):
        outputs, _ = bench.check(declared, prepared, semantics, scratch, outputs, judged, confirm=True)
    return _Called(outputs, golden), judged


def _golden(bench: Bench, at: At, declared: Op, y: Inputs, semantics: Semantics, shares: Shares) -> tuple[Prepared, dict[str, Expected]]:
    at.stage = "inputs"
    with shares.phase("inputs"):
        prepared = Prepared(y, prints(y))
    with shares.phase("reference"):
        golden = prepared.golden[tuple(sorted(semantics.items()))] = declared.impl.reference(y, semantics)
        synchronise(bench.device)
    return prepared, golden


def _judge_first(bench: Bench, at: At, declared: Op, launch: Refilled, semantics: Semantics, result: Result, shares: Shares) -> Result:
    """The replay before the buffers were refilled must give what the inputs of the capture ask for."""
    prepared, _ = _golden(bench, at, declared, launch.captured, semantics, shares)
    judged = _blank(result)
    at.stage = "check"
    with shares.phase("check"):
        bench.check(declared, prepared, semantics, Scratch(bench.device.string), _named(declared, launch.first), judged, confirm=True)
    return judged


def _blank(result: Result) -> Result:
    return msgspec.structs.replace(result, status="pass", reason="", detail="", errors={}, figures={})


def _compare(law: Relation, provider: Provider, x: Inputs, first: _Called, calls: list[_Called], result: Result) -> None:
    """Holds the plain call's outputs against what the varied ones come to."""
    mine, space = law.part(x, first.tensors()), law.part(x, first.rooms())
    theirs = law.back(x, [called.tensors() for called in calls])
    if law.slack is None:
        other = law.back(x, [called.rooms() for called in calls])
    elif "lse" in theirs:
        goldens: list[Any] = [called.golden for called in calls]
        other = law.slack(goldens, [called.rooms() for called in calls])
    else:
        result.status, result.reason, result.detail = "unsupported", "varied call", "the provider gives no log-sum-exp to judge by"
        return
    if law.off:
        _flag(law, first, calls[0], mine, theirs, space, other, result)
        return
    bitwise = law.promise in provider.promises if law.promise else False
    for name in mine.keys() & theirs.keys():
        both = space[name] + other[name] if name in space and name in other else None
        if bitwise:
            _take(identical(mine[name], theirs[name], both), name, law, result, promised=law.promise)
        elif both is not None:
            _take(agree(mine[name], theirs[name], both, by_row=isinstance(first.golden[name], Filtered)), name, law, result)


def _take(outcome: Outcome, name: str, law: Relation, result: Result, promised: str = "") -> None:
    figures = result.figures.setdefault(name, {})
    if outcome.right:
        figures["apart"] = plain(outcome.error)
        return
    if result.status == "pass":
        result.status, result.reason = ("nondeterministic", promised) if promised else ("mismatch", outcome.reason)
        word = f"which the provider promises to be equal to the bit ({promised})" if promised else "which must agree within both budgets"
        result.detail = f"Output {name!r}: the plain call and that with {law.doc}, {word}, do not\n{outcome.text}"
        figures.update({key: plain(value) for key, value in outcome.figures.items()})


def _flag(law: Relation, first: _Called, varied: _Called, mine: Any, theirs: Any, space: Any, other: Any, result: Result) -> None:
    """Whether the flag changed the first output; the references must say that it should."""
    name = next(iter(mine))
    both = space[name] + other[name]
    outcome = differ(mine[name], theirs[name], both)
    if outcome.right:
        result.figures.setdefault(name, {})["apart"] = plain(outcome.figures["apart"])
        return
    on, off = first.golden[name], varied.golden[name]
    if isinstance(on, Close) and isinstance(off, Close) and not differ(on.value, off.value, both).right:
        result.status, result.reason, result.detail = "unsupported", "varied call", f"with these inputs {law.doc} changes nothing that can be seen"
        return
    result.status, result.reason = "mismatch", "ignored-flag"
    result.detail = f"Output {name!r}: {law.doc}: {outcome.text}"


def _compare_replays(replay: Replayed, declared: Op, golden: dict[str, Expected], promises: frozenset[str], result: Result) -> None:
    """Two replays of one graph: alike where the provider promises to repeat itself, not alike where it draws."""
    first, second = (_named(declared, returned) for returned in replay.replays)
    for name, expected in golden.items():
        before, after = first.get(name), second.get(name)
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor) or result.status != "pass":
            continue
        outcome = identical(before, after, room(after, expected) if not isinstance(expected, Filtered) else None)
        if isinstance(expected, Drawn):
            if outcome.right and tells(after, expected):
                result.status, result.reason = "mismatch", "reused-random"
                result.detail = f"Output {name!r}: two replays of one graph drew the same {after.numel()} tokens"
        elif not outcome.right and "repeat" in promises:
            result.status, result.reason = "nondeterministic", "repeat"
            result.detail = f"Output {name!r}: two replays of one graph are not equal to the bit\n{outcome.text}"


def _named(declared: Op, returned: Any) -> dict[str, Any]:
    if isinstance(returned, dict):
        return returned
    return dict(zip(declared.outputs, returned if isinstance(returned, tuple) else (returned,), strict=False))


def _sign(called: _Called, result: Result) -> None:
    """A hash of the bits of every output, for another process to be held against."""
    rooms = called.rooms()
    for name, value in called.tensors().items():
        bits = raw(value)
        if name in rooms:
            bits = bits.masked_fill(rooms[name].isinf(), 0)
        result.figures.setdefault(name, {})["bits"] = f"{int(fingerprint(bits)) & 0xFFFFFFFFFFFFFFFF:016x}"
