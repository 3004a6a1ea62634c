"""Refills each provider under Triton's interpreter: the longest call, the shortest and the longest again in the buffers of one.

Arguments: an op and the id of its case. Prints a line a provider; ends with an error where one is wrong.
"""

from __future__ import annotations

import sys

import torch

from harness.contracts import make_inputs, op
from harness.machine.memory import Scratch
from harness.providers import providers_of

declared = op(sys.argv[1])
case = declared.axes.parse(sys.argv[2])
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
    print(provider.name)
