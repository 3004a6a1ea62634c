"""Planted faults on the device of their inputs, whichever it is: a fault that mixes devices shows on a GPU as another mistake than its own."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from elsewhere import HERE, MAKERS, Elsewhere, Generator, OnHost

import harness.faults
from harness.contracts import Case, make_inputs, op
from harness.faults import FAULTS, Fault
from harness.machine.exchange import Unreadable
from harness.machine.execute import Bench
from harness.machine.memory import Scratch
from harness.machine.platforms import open_device
from harness.machine.shares import Shares
from harness.providers import Provider, registry
from harness.selection import DEFAULT_CASES, preset_cases

for _fault in FAULTS.values():  # the shelf is declared in the workers; here it would join the selections of other tests
    registry._providers.pop((_fault.op, _fault.provider), None)

# the others die, raise or wait on purpose
ANSWERING = [fault for fault in FAULTS.values() if fault.status in ("mismatch", "nondeterministic", "pass") and not fault.slow]
MODULES = sorted(Path(harness.faults.__file__).parent.glob("*.py"))
CASE = op("top_k_renorm").axes.case(batch=3, vocab=111, k=10)


@pytest.fixture(scope="module")
def bench():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as workers have it: threads that wait for each other take longer over small tensors
    yield Bench(open_device("cpu"))
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def generators(monkeypatch):
    monkeypatch.setattr(torch, "Generator", Generator)


def case_of(fault: Fault) -> Case:
    """Its own case, or the smallest that there is of its op."""
    return min(preset_cases(DEFAULT_CASES, "smoke", fault.op), key=lambda case: op(fault.op).impl.work(case).bytes) if fault.swept else fault.case


def left_on_host(bench: Bench, case: Case, provider: Provider) -> list[str]:
    """The outputs of a provider's call that are on the host though the inputs are not; RuntimeError where it mixes the two."""
    x = make_inputs(case, HERE)
    with Elsewhere(), contextlib.suppress(Unreadable):
        outputs = bench.call(op(case.op), x, provider, Scratch(HERE), Shares(), seed=0)
        return [name for name, output in outputs.items() if isinstance(output, OnHost)]
    return []


@pytest.mark.parametrize("fault", ANSWERING, ids=lambda fault: fault.provider)
def test_a_fault_keeps_to_the_device_of_its_inputs(bench, fault):
    assert left_on_host(bench, case_of(fault), fault.made) == []


def placeless(text: str) -> list[str]:
    """The calls in a module's text that make tensors or generators and do not say where."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch.")]
    found = []
    for call in calls:
        name = ast.unparse(call.func).removeprefix("torch.")
        told = any(given.arg in ("device", None) for given in call.keywords) or (name == "Generator" and call.args)
        if not told and name in {"Generator", *(maker.__name__ for maker in MAKERS)}:
            found.append(ast.unparse(call))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_whatever_a_fault_makes_it_says_where(path):
    """Also in the branches that the case above does not take."""
    assert placeless(path.read_text()) == []


def test_what_does_not_say_where_is_found():
    text = "torch.rand(3)\ntorch.rand(3, device=x.device)\ntorch.rand_like(x)\ntorch.Generator()\ntorch.Generator('cpu')\ntorch.arange(3).to(x.device)\n"
    assert placeless(text) == ["torch.rand(3)", "torch.Generator()", "torch.arange(3)"]


def answering(answer: Callable[[Any], Any]) -> Provider:
    """A provider of `top_k_renorm` that is on no shelf."""

    class Made:
        def prepare(self, x: Any, scratch: Any) -> None:
            self.x = x

        def run(self) -> Any:
            return answer(self.x)

    return dataclasses.replace(FAULTS["fault_keeps_one_more"].made, make=Made)


MIXING = {
    "made without a device": lambda x: x.probs * torch.arange(111),
    "a number with dimensions": lambda x: x.probs / torch.as_tensor(0.5).reshape(1, 1),
    "made from what was": lambda x: torch.where(torch.ones(3, 111).cumsum(1) > 4, x.probs, 0.0),
    "brought back and not there": lambda x: x.probs.cpu().sort(1).values - x.probs,
    "a host tensor indexed": lambda x: torch.zeros(3, 111)[:, x.probs[0].argsort()],
    "the host's generator": lambda x: torch.multinomial(x.probs, 1, generator=torch.Generator()),
    "the device's generator": lambda x: torch.multinomial(x.probs.cpu(), 1, generator=torch.Generator(x.device)),
}
LEFT = {
    "made without a device": lambda x: torch.zeros(x.probs.shape),
    "made on the host": lambda x: torch.full(x.probs.shape, 0.5, device="cpu"),
    "brought back": lambda x: x.probs.cpu() * 2,
    "moved by name": lambda x: torch.softmax(x.probs.to("cpu"), 1),
    "moved by example": lambda x: x.probs.to(torch.zeros(3)),
    "drawn on the host": lambda x: torch.multinomial(x.probs.cpu(), 1, generator=torch.Generator("cpu")),
    "one of several": lambda x: x.probs.cpu().topk(3).values,
}
KEPT = {
    "made on the device": lambda x: torch.zeros(x.probs.shape, device=x.device) + torch.ones_like(x.probs),
    "made where another is": lambda x: torch.arange(111, device=x.probs.device) * x.probs,
    "moved": lambda x: torch.multinomial(x.probs.cpu(), 1, generator=torch.Generator("cpu")).to(x.device),
    "moved by example": lambda x: torch.zeros(3, 111).to(x.probs),
    "copied": lambda x: torch.empty_like(x.probs).copy_(torch.zeros(3, 111)) + x.probs,
    "a number": lambda x: x.probs * torch.tensor(0.5),
    "indexed from the host": lambda x: x.probs[:, torch.arange(5)] + x.probs[:, :5],
    "the device's generator": lambda x: torch.multinomial(x.probs, 1, generator=torch.Generator(x.device)),
}


@pytest.mark.parametrize("answer", MIXING.values(), ids=MIXING)
def test_mixed_devices_are_an_error(bench, answer):
    with pytest.raises(RuntimeError, match="Expected"):
        left_on_host(bench, CASE, answering(answer))


@pytest.mark.parametrize("answer", LEFT.values(), ids=LEFT)
def test_what_is_left_on_the_host_is_found(bench, answer):
    assert left_on_host(bench, CASE, answering(answer)) == ["probs"]


@pytest.mark.parametrize("answer", KEPT.values(), ids=KEPT)
def test_what_is_on_the_device_is_let_pass(bench, answer):
    assert left_on_host(bench, CASE, answering(answer)) == []
