"""Refills each provider under Triton's interpreter: the longest call, the shortest and the longest again in the buffers of one.

Arguments: ops, each with the id of a case. Prints a line a case with the providers that were tried; ends with an error where one is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from harness.contracts import make_inputs, op
from harness.machine.memory import Scratch
from harness.providers import providers_of


def tried(name: str, case_id: str) -> Iterator[str]:
    """The providers of a case, each refilled and held against the reference."""
    declared = op(name)
    case = declared.axes.parse(case_id)
    law = declared.relation(case)
    x = make_inputs(case, "cpu")
    for provider in providers_of(case.op):
        if "interpret" not in provider.platforms or provider.declines(case, "interpret") or "splitkv" in provider.name:
            continue  # splits without work give NaN, which the ledger has
        made, scratch = provider.make(), Scratch("cpu")
        made.prepare(law.vary(x, {})[0], scratch)
        for given in (x, law.captured(x), x):
            made.refill(given)
            made.run()
            golden = declared.impl.reference(given, provider.semantics_on("interpret"))["o"].value
            torch.testing.assert_close(scratch.outputs["o"].double(), golden, rtol=1e-4, atol=1e-5)
        yield provider.name


for name, case_id in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    print(case_id, *tried(name, case_id))
