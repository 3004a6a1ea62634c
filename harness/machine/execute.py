"""One cell in this process: build the inputs, compute the golden result, call the provider in guarded memory, judge."""

from __future__ import annotations

import math
import time
import traceback
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from harness import checks
from harness.contracts import Case, Expected, Inputs, Op, Semantics, fingerprint, make_inputs, op
from harness.machine.classify import classify, poisons
from harness.machine.memory import Guarded, Scratch
from harness.machine.platforms import EVIDENCE, Device, synchronise
from harness.providers import Provider, versions
from harness.store.results import Result, plain

_KEEP = 4


@dataclass
class _Prepared:
    x: Inputs
    prints: dict[str, int]
    golden: dict[tuple[tuple[str, str], ...], dict[str, Expected]] = field(default_factory=dict)


class Bench:
    """Runs cells on one device, keeping the inputs and golden results of the last few cases."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.versions = versions()
        self._cases: OrderedDict[tuple[str, str, int], _Prepared] = OrderedDict()

    def run(self, case: Case, provider: Provider, platform: str, seed: int = 0) -> tuple[Result, bool]:
        """The cell's result, and whether the device context is still usable."""
        began = time.perf_counter()
        seconds: dict[str, float] = {}
        result = Result(
            cell=f"{case.op}[{provider.name}-{case.id}]",
            op=case.op,
            provider=provider.name,
            case=case.id,
            status="pass",
            platform=platform,
            evidence=EVIDENCE[platform],
            seconds=seconds,
            device=self.device.facts,
            versions=self.versions,
            notes=list(provider.notes),
            seed=seed,
            values=dict(case.point),
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )
        healthy = True
        reason = self._unsupported(case, provider, platform)
        if reason:
            result.status, result.reason, result.detail, result.evidence = "unsupported", "declined", reason, "none"
        else:
            healthy = self._judge(case, provider, result, seconds)
        named = sum(seconds.values())
        seconds["harness"] = time.perf_counter() - began - named
        for share, value in seconds.items():
            seconds[share] = round(value, 6)
        return result, healthy

    @staticmethod
    def _unsupported(case: Case, provider: Provider, platform: str) -> str | None:
        if platform == "interpret" and "bf16" in case.point.values():
            return "Triton's interpreter has no bf16 arithmetic"
        return provider.why_not(case)

    def _judge(self, case: Case, provider: Provider, result: Result, seconds: dict[str, float]) -> bool:
        declared = op(case.op)
        scratch = Scratch(self.device.string)
        stage = "inputs"
        try:
            semantics = provider.semantics_on(result.platform)
            prepared = self._prepare(declared, case, semantics, result.seed, seconds)
            result.inputs = describe(prepared.x)
            result.input_hash = f"{sum(prepared.prints.values()) & 0xFFFFFFFFFFFFFFFF:016x}"
            stage = "provider"
            outputs = self._call(declared, prepared.x, provider, scratch, seconds)
            stage = "check"
            mark = time.perf_counter()
            self._check(declared, prepared, semantics, scratch, outputs, result)
            seconds["check"] = time.perf_counter() - mark
        except Exception as error:
            if stage != "provider" and not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and not poisons(error):
                raise
            result.status, result.reason = classify(error)
            result.detail = f"{type(error).__name__}: {error}"[:4000] + "\n" + _last_frame(error)
            if stage != "provider":
                self._cases.clear()
            return not poisons(error)
        finally:
            if result.reason == "input-changed":
                self._cases.clear()
        return True

    def _prepare(self, declared: Op, case: Case, semantics: Semantics, seed: int, seconds: dict[str, float]) -> _Prepared:
        """Inputs, their hash and the golden result, all before the provider runs."""
        key = (case.op, case.id, seed)
        prepared = self._cases.pop(key, None)
        if prepared is None:
            mark = time.perf_counter()
            x = make_inputs(case, self.device.string, seed)
            prepared = _Prepared(x, prints(x))
            seconds["inputs"] = time.perf_counter() - mark
            while len(self._cases) >= _KEEP:
                self._cases.popitem(last=False)
        self._cases[key] = prepared
        if _key(semantics) not in prepared.golden:
            mark = time.perf_counter()
            prepared.golden[_key(semantics)] = declared.impl.reference(prepared.x, semantics)
            synchronise(self.device)
            seconds["reference"] = time.perf_counter() - mark
        return prepared

    def _call(self, declared: Op, x: Inputs, provider: Provider, scratch: Scratch, seconds: dict[str, float]) -> dict[str, Any]:
        mine = x.copy_with(**{name: scratch.copy(getattr(x, name)) for name in declared.mutates})
        made = provider.make()
        torch.manual_seed(0)
        with Guarded(scratch):
            mark = time.perf_counter()
            made.prepare(mine, scratch)
            synchronise(self.device)
            seconds["prepare"] = time.perf_counter() - mark
            mark = time.perf_counter()
            returned = made.run()
            synchronise(self.device)
            seconds["run"] = time.perf_counter() - mark
        return collect(declared, returned, mine, scratch)

    def _check(self, declared: Op, prepared: _Prepared, semantics: Semantics, scratch: Scratch, outputs: dict[str, Any], result: Result) -> None:
        golden = prepared.golden[_key(semantics)]
        convert = getattr(declared.impl, "convert", None)
        if convert is not None:
            outputs = convert(prepared.x, outputs, semantics)
        trespass = scratch.trespassed()
        changed = [name for name, before in prepared.prints.items() if name not in declared.mutates and before != int(fingerprint(getattr(prepared.x, name)))]
        if trespass:
            _found(result, "out-of-bounds", "", trespass)
        elif changed:
            _found(result, "input-changed", changed[0], f"the call changed its input {', '.join(changed)}")
        for name in declared.outputs:
            if outputs.get(name) is None and name != declared.outputs[0]:
                continue
            outcome = checks.judge(outputs.get(name), golden[name])
            if not math.isnan(outcome.error):
                result.errors[name] = plain(outcome.error)
            if outcome.right:
                continue
            result.figures[name] = {key: plain(value) for key, value in outcome.figures.items()}
            if result.status == "pass":
                _found(result, _unwritten(scratch, outputs[name], outcome), name, outcome.text)


def _key(semantics: Semantics) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(semantics.items()))


def _unwritten(scratch: Scratch, actual: Any, outcome: checks.Outcome) -> str:
    if isinstance(actual, torch.Tensor) and outcome.reason in ("numerics", "support") and bool(scratch.unwritten(actual).any()):
        return "unwritten"
    return outcome.reason


def _found(result: Result, reason: str, output: str, text: str) -> None:
    result.status, result.reason = "mismatch", reason
    result.detail = f"Output {output!r}: {text}" if output and reason != "input-changed" else text


def prints(x: Inputs) -> dict[str, int]:
    """A hash of every input tensor, by name."""
    named = list(x.tensors())
    if not named:
        return {}
    values = torch.stack([fingerprint(tensor) for _, tensor in named]).tolist()
    return dict(zip((name for name, _ in named), values, strict=True))


def collect(declared: Op, returned: Any, x: Inputs, scratch: Scratch) -> dict[str, Any]:
    """What a provider returned, by output name: a dict, a tensor, a tuple in the contract's order, or None for buffers and inputs it wrote."""
    if isinstance(returned, dict):
        return returned
    if returned is None:
        written = {name: getattr(x, name) for name in declared.outputs if name in declared.mutates}
        return {**written, **scratch.outputs}
    values = returned if isinstance(returned, (tuple, list)) else (returned,)
    return dict(zip(declared.outputs, values, strict=False))


def describe(x: Inputs) -> dict[str, str]:
    """The call's arguments in words: dtype and shape of tensors, scalars as they are."""
    said = {}
    for name, value in x.__dict__.items():
        if isinstance(value, torch.Tensor):
            said[name] = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        elif isinstance(value, (int, float, str, bool)) and name != "device":
            said[name] = repr(value)
    return said


def _last_frame(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"raised at {frames[-1].filename.split('site-packages/')[-1]}:{frames[-1].lineno}" if frames else ""
