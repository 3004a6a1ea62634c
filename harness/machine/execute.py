"""One cell in this process: build the inputs, compute the golden result, call the provider in guarded memory, judge."""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import torch

from harness import checks
from harness.contracts import Case, Draw, Inputs, Op, Semantics, make_inputs, op
from harness.machine.anew import draws_anew
from harness.machine.classify import classify, poisons, words_of
from harness.machine.exchange import Unreadable, collect, describe, last_frame, prints, reading
from harness.machine.interpreted import strict
from harness.machine.memory import Guarded, Scratch
from harness.machine.others import judged_by_others
from harness.machine.platforms import EVIDENCE, Device, synchronise
from harness.machine.relations import At, Prepared, impossible_here, relate
from harness.machine.shares import Shares, listen_to_triton
from harness.machine.streams import Launch, plainly
from harness.providers import Provider, versions
from harness.store.results import Result, plain

_KEEP = 4  # cases
_KEEP_BYTES = 1 << 30


class Bench:
    """Runs cells on one device, keeping the inputs and golden results of the last `keep` cases. `begun` is called when inputs and
    reference are done and the provider begins, `compiling` when Triton begins (True) and ends a compilation in this process."""

    def __init__(
        self, device: Device, begun: Callable[[], None] = lambda: None, compiling: Callable[[bool], None] = lambda at_work: None, *, keep: int = _KEEP
    ) -> None:
        self.device = device
        self.begun = begun
        self._keep = keep
        self.versions = versions()
        listen_to_triton(compiling)
        self._cases: OrderedDict[tuple[str, str, int], Prepared] = OrderedDict()
        self._chosen: dict[str, str] = {}

    def run(self, case: Case, provider: Provider, platform: str, seed: int = 0, *, gates: bool = True, rivals: bool = False) -> tuple[Result, bool]:
        """The cell's result, and whether the device context is still usable. `gates` False: what the library's dispatch refuses is
        tried; `rivals`: the rules of others judge as well."""
        shares = Shares()
        result = self.row(case, provider, platform, seed)
        healthy = True
        reason = provider.declines(case, platform, self.device.facts["arch"]) or impossible_here(case, self.device)
        if reason:
            result.status, result.reason, result.detail = "unsupported", "declined", reason
        elif gates and (gate := provider.gated(case, self.device.facts.get("arch", ""))):
            result.status, result.reason, result.detail = "refused", "gate", gate
        else:
            healthy = self._judge(case, provider, result, shares, rivals)
        if result.status in ("unsupported", "missing") or result.reason == "gate":  # nothing ran
            result.evidence = "none"
        result.seconds = shares.close()
        return result, healthy

    def row(self, case: Case, provider: Provider, platform: str, seed: int) -> Result:
        """A cell's result before anything ran: a pass."""
        return Result(
            cell=f"{case.op}[{provider.name}-{case.id}]",
            op=case.op,
            provider=provider.name,
            case=case.id,
            status="pass",
            platform=platform,
            evidence=EVIDENCE[platform],
            device=self.device.facts,
            versions=self.versions,
            notes=list(provider.notes),
            seed=seed,
            values=dict(case.point),
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _judge(self, case: Case, provider: Provider, result: Result, shares: Shares, rivals: bool) -> bool:
        declared = op(case.op)
        scratch = Scratch(self.device.string)
        at = At("inputs", "in the plain call: " if declared.relation(case) else "")
        self._chosen = {}
        try:
            semantics = provider.semantics_on(result.platform)
            prepared = self._prepare(declared, case, semantics, result.seed, shares)
            result.inputs = describe(prepared.x)
            result.input_hash = f"{sum(prepared.prints.values()) & 0xFFFFFFFFFFFFFFFF:016x}"
            self.begun()
            at.stage = "provider"
            outputs = self.call(declared, prepared.x, provider, scratch, shares, seed=2 * result.seed)
            at.stage, result.chosen = "check", self._chosen
            with shares.phase("check"):
                outputs, doubtful = self.check(declared, prepared, semantics, scratch, outputs, result, rivals=rivals)
            if doubtful:
                at.stage = "provider"
                self._again(declared, prepared.x, semantics, provider, shares, result)
            elif result.status == "pass":
                at.stage = "provider"
                golden = prepared.golden[_key(semantics)]
                draws_anew(outputs, golden, lambda: self.call(declared, prepared.x, provider, Scratch(self.device.string), shares, seed=None), result)
            relate(self, at, declared, prepared, outputs, provider, semantics, result, shares)
        except Unreadable as error:
            _found(result, "shape", "", words_of(error))
        except BaseException as error:
            result.status, result.reason = classify(error)
            result.detail = f"{type(error).__name__}: {words_of(error)}"[:4000] + "\n" + last_frame(error)
            if at.stage != "provider":
                self._cases.clear()
                if result.status == "out-of-memory":
                    result.status, result.reason = "unsupported", "does not fit"
                elif at.stage == "inputs" or not poisons(error):
                    raise
            return not poisons(error) and not at.tainted and self.settled()
        finally:
            if result.detail:
                result.detail = at.place + result.detail
            if result.reason == "input-changed":
                self._cases.clear()
        return result.reason != "out-of-bounds"  # nobody knows what else was overwritten

    def settled(self) -> bool:
        """Whether a call that raised left no error of the device behind."""
        with contextlib.suppress(Exception):
            synchronise(self.device)
            return True
        return False

    def _prepare(self, declared: Op, case: Case, semantics: Semantics, seed: int, shares: Shares) -> Prepared:
        """Inputs, their hash and the golden result, all before the provider runs."""
        key = (case.op, case.id, seed)
        prepared = self._cases.pop(key, None)
        if prepared is None:
            while self._cases and (len(self._cases) >= self._keep or self._bytes() > _KEEP_BYTES):
                self._cases.popitem(last=False)
            with shares.phase("inputs"):
                x = make_inputs(case, self.device.string, seed)
                prepared = Prepared(x, prints(x))
        self._cases[key] = prepared
        if _key(semantics) not in prepared.golden:
            with shares.phase("reference"):
                prepared.golden[_key(semantics)] = declared.impl.reference(prepared.x, semantics)
                synchronise(self.device)
        return prepared

    def _bytes(self) -> int:
        return sum(tensor.nbytes for prepared in self._cases.values() for _, tensor in prepared.x.tensors())

    def _again(self, declared: Op, x: Inputs, semantics: Semantics, provider: Provider, shares: Shares, result: Result) -> None:
        """The second look at draws that were suspicious: the contract's larger case with fresh random numbers decides."""
        case, first = result.case, result.detail
        with shares.phase("inputs"):
            more = declared.impl.again(x, Draw(f"{x.case.op}:{case}:again", result.seed, self.device.string))
            prepared = Prepared(more, prints(more))
        with shares.phase("reference"):
            prepared.golden[_key(semantics)] = declared.impl.reference(more, semantics)
            synchronise(self.device)
        scratch = Scratch(self.device.string)
        outputs = self.call(declared, more, provider, scratch, shares, seed=2 * result.seed + 1)
        result.status = "pass"
        result.reason = result.detail = ""
        with shares.phase("check"):
            self.check(declared, prepared, semantics, scratch, outputs, result, confirm=True)
        result.notes.append("draws were suspicious and drawn again, four times as many" if result.status == "pass" else f"the first look said: {first}")

    def call(
        self, declared: Op, x: Inputs, provider: Provider, scratch: Scratch, shares: Shares, *, seed: int | None, launch: Launch = plainly
    ) -> dict[str, Any]:
        """One call of the provider, made anew, in guarded memory: its outputs by name. `seed` None: torch's generator goes on."""
        mine = x.copy_with(**{name: scratch.copy(getattr(x, name)) for name in declared.mutates})
        made = provider.make()
        if seed is not None:
            torch.manual_seed(seed)
        with _defaults(), strict(scratch, lambda: [tensor for _, tensor in (*x.tensors(), *mine.tensors())]), Guarded(scratch):
            with shares.phase("prepare"):
                made.prepare(mine, scratch)
                synchronise(self.device)
            planned = len(scratch.launched)
            with shares.phase("kernel"):
                returned = launch(made, scratch)
                synchronise(self.device)
        if chosen := getattr(made, "chosen", None):
            ran = ", ".join(dict.fromkeys(scratch.launched[planned:]))
            self._chosen = {**chosen(), **({"kernels": ran} if ran else {})}
        return collect(declared, returned, mine, scratch)

    def check(
        self,
        declared: Op,
        prepared: Prepared,
        semantics: Semantics,
        scratch: Scratch,
        outputs: dict[str, Any],
        result: Result,
        *,
        confirm: bool = False,
        rivals: bool = False,
    ) -> tuple[dict[str, Any], bool]:
        """Judges every output; the outputs in the contract's form, and whether all that is wrong is draws that deserve a second look."""
        golden = prepared.golden[_key(semantics)]
        convert = getattr(declared.impl, "convert", None)
        if convert is not None:
            with reading("the outputs"):
                outputs = convert(prepared.x, outputs, semantics)
        doubtful = False
        trespass = scratch.trespassed()
        after = prints(prepared.x)
        changed = [name for name, before in prepared.prints.items() if name not in declared.mutates and before != after[name]]
        if trespass:
            _found(result, "out-of-bounds", "", trespass)
        elif changed:
            _found(result, "input-changed", changed[0], f"the call changed its input {', '.join(changed)}")
        for name in declared.outputs:
            if outputs.get(name) is None and name != declared.outputs[0]:
                continue
            expected = golden[name]  # one that the contract leaves out is the contract's mistake
            with reading(f"output {name!r}"):
                outcome = checks.judge(outputs.get(name), expected, confirm)
            if not math.isnan(outcome.error):
                result.errors[name] = plain(outcome.error)
            if outcome.figures:
                result.figures[name] = {key: plain(value) for key, value in outcome.figures.items()}
            if not outcome.right and result.status == "pass":
                _found(result, _unwritten(scratch, outputs.get(name), outcome), name, outcome.text)
                doubtful = outcome.suspicious
        if rivals:
            result.rivals = judged_by_others(declared, prepared.x, outputs, golden)
        return outputs, doubtful


@contextlib.contextmanager
def _defaults() -> Iterator[None]:
    """Puts back torch's process-wide defaults, which a library may change and the next cell relies on."""
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def _key(semantics: Semantics) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(semantics.items()))


def _unwritten(scratch: Scratch, actual: Any, outcome: checks.Outcome) -> str:
    if isinstance(actual, torch.Tensor) and outcome.reason in ("numerics", "support") and bool(scratch.unwritten(actual).any()):
        return "unwritten"
    return outcome.reason


def _found(result: Result, reason: str, output: str, text: str) -> None:
    result.status, result.reason = "mismatch", reason
    result.detail = f"Output {output!r}: {text}" if output and reason != "input-changed" else text
